"""Long MicroMsg2 payloads in fragments, both ways; over a stream in memory."""

import io

from checks import Memory, check, equal, raises, run
from micromsg2_peer import ack, connected, drained, message

from umotemq.fragments import FragmentClient


@check
def fragments_are_joined_in_a_fixed_buffer():
    got = []

    def hear(topic, payload):
        got.append((payload, client.properties))

    for step in (1, 100, 1 << 20):
        del got[:]
        client, stream, heard = connected(Memory(step), FragmentClient, message_size=600)
        client.subscribe("f", hear)
        part = b"x" * 250
        stream.feed(message(1, b"topic/f", part, b"k:N1", 16))
        stream.feed(ack(1) + b"\x01\x04ping")  # may come between
        stream.feed(message(2, b"topic/f", part, b"k:N2", 16) + message(3, b"topic/f", b"end"))
        for number in (4, 5):
            stream.feed(message(number, b"topic/f", part, b"", 16))
        stream.feed(message(6, b"topic/f", part) + message(7, b"topic/f", b"plain", b"a:b"))
        stream.feed(message(8, b"topic/f", b"z" * 2000, b"", 24) + message(9, b"topic/f", b"end"))
        stream.feed(message(10, b"topic/f", b"", b"", 16) + message(11, b"topic/f", b"whole"))
        drained(client, stream)
        want = [(part * 2 + b"end", b"k:N1"), (b"plain", b"a:b"), (b"whole", b"")]
        equal((got, client.discarded, heard[-1]), (want, 2, ("ack", 11)))
        stream.feed(message(12, b"topic/f", b"a", b"", 16) + message(13, b"topic/g", b"b"))
        raises("wire", drained, client, stream)
    client, stream, heard = connected()  # without FragmentClient
    client.subscribe("f", lambda topic, payload: got.append(payload))
    del got[:]
    stream.feed(message(1, b"topic/f", b"a", b"", 16) + message(2, b"topic/f", b"b"))
    stream.feed(message(3, b"topic/f", b"c"))
    drained(client, stream)
    equal((got, client.discarded, heard[-1]), ([b"c"], 1, ("ack", 3)))


class Source:
    """Gives at most 50 bytes at a time; fails at its end, or ends early."""

    def __init__(self, size, fails=False):
        self.left = size
        self.fails = fails

    def readinto(self, buffer):
        size = min(50, self.left, len(buffer))
        if not size and self.fails:
            raise OSError(5)
        buffer[:size] = b"d" * size
        self.left -= size
        return size


@check
def long_payloads_are_sent_in_fragments():
    for length in (1, 229, 230, 231, 1000):
        client, stream, heard = connected(None, FragmentClient, window=2)
        client.publish_from("long", length, Source(length))
        client.publish("a", b"after")
        sizes = [len(frame[3]) for frame in heard]
        equal(sum(sizes[:-1]), length)
        numbers = [frame[1] for frame in heard]
        equal(numbers, list(range(2, 2 + len(numbers))))
        flags = []
        sent = stream.take()
        at = -1
        while sent.find(b"topic/long", at + 1) >= 0:
            at = sent.find(b"topic/long", at + 1)
            flags.append(sent[at - 4] & 16)
        equal(flags, [16] * (len(flags) - 1) + [0])
    for source in (Source(300), Source(300, True)):
        client, stream, heard = connected(None, FragmentClient)
        raises("source", client.publish_from, "long", 1000, source)
    client = FragmentClient(Memory(), tx_size=80)
    raises(ValueError, client.publish_from, "t" * 70, 9, io.BytesIO(b"x" * 9))


@check
def a_handler_does_not_come_between_fragments():
    def answer(topic, payload):
        client.publish("b", b"x")

    for window in (2, 100):
        client, stream, heard = connected(None, FragmentClient, window=window, message_size=0)
        client.subscribe("a", answer)
        del heard[:]
        stream.feed(message(1, b"topic/a", b"1"))
        client.publish_from("long", 2000, Source(2000))
        client.poll(0)
        sent = [frame[2] for frame in heard if frame[0] == "send"]
        equal(sent[-1], b"topic/b")
        equal(set(sent[:-1]), {b"topic/long"})


run()
