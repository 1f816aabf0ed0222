"""The MicroMsg2 client, over a stream in memory."""

import io

from checks import Blocked, Memory, check, equal, raises, run, within
from micromsg2_peer import ack, answers, connected, drained, message, named

from umotemq.fragments import FragmentClient
from umotemq.micromsg2 import MicroMsg2Client

_HELLO = b"\x01\0\0\x01n\0\x1ebatch-ack:max-count=100;pubsub\0\0"


@check
def the_handshake_is_three_messages():
    client, stream, heard = named()
    client.subscribe("home/*/lamp", print)
    client.connect(timeout_ms=1000)
    drained(client, stream)
    equal(heard[0], ("hello", _HELLO))
    equal(heard[1], ("hello", _HELLO))  # the client repeats it with the choice
    equal(heard[2], ("send", 1, b"topic/ping", b""))  # which reaches nobody; and its ack proves it
    equal(heard[3], ("command", b"subscribe;destination=topic%2Fhome%2F%2A%2Flamp"))
    equal((len(heard), client.up, client.connects), (4, True, 1))


@check
def the_smaller_window_holds():
    for said in (
        b"batch-ack:max-count=3",
        b"json;batch-ack:count=3;dotnet",
        b"batch-ack:MessagesPerAck=3,AckExpireTime=1000",
        b"batch-ack:batch-max:3",
        b"batch-ack:max-count=300,count=3;",
    ):
        stream = Memory()
        client = MicroMsg2Client(stream, name=b"n", retry_ms=0)
        reply = b"\x01\0\0\x01s\0\0\0" + bytes([len(said)]) + said
        stream.answer = answers(stream, reply=reply)
        client.connect(timeout_ms=1000)
        equal(stream.take().count(b"max-count=3;"), 1, repr(said))
        stream.answer = None
        for n in range(3):
            client.publish("a", b"%d" % n)
        client.timeout_ms = 50
        within(40, 500, raises, "timeout", client.publish, "a", b"x")


@check
def what_the_peer_requires_and_we_lack_ends_it():
    for required, word in (
        (b"pubsub;batch-ack", None),
        (b"pub-sub", None),
        (b"x-mine", None),
        (b"json", "refused"),
        (b"pubsub;x-else", "refused"),
    ):
        stream = Memory()
        client = MicroMsg2Client(stream, name=b"n", retry_ms=0, extensions="x-mine:a=1")
        reply = b"\x01\0\0\0\0" + bytes([len(required)]) + required + b"\0\0"
        stream.answer = answers(stream, reply=reply)
        if word:
            error = raises(word, client.connect, timeout_ms=1000)
            name = required.split(b";")[-1].decode()
            equal(error.args[1], "unsupported extension: " + name)
            said = error.args[1].encode()
            equal(stream.take()[-len(said) - 2 :], b"\x04" + bytes([len(said)]) + said)
        else:
            client.connect(timeout_ms=1000)
            equal(b"pubsub;x-mine:a=1\0\0" in stream.take(), True)


@check
def what_is_published_is_numbered():
    client, stream, heard = connected()
    client.publish("a/b", "21.5 °C")
    client.publish("jobs", b"x", queued=True)
    client.publish("a/b", b"y" * 100, properties="count:N1;unit:Tcelsius")
    equal([frame[1:] for frame in heard][:2], [(2, b"topic/a/b", "21.5 °C".encode()), (3, b"jobs", b"x")])
    equal(message(4, b"topic/a/b", b"y" * 100, b"count:N1;unit:Tcelsius") in stream.take(), True)
    wide = MicroMsg2Client(Memory(), tx_size=600)
    wide._pack(b"topic/", b"a", b"z" * 256)
    equal(bytes(wide._out[: wide._last]), message(1, b"topic/a", b"z" * 256, flags=8))
    error = raises(ValueError, client.publish, "a", b"x" * 250)
    equal(error.args[0], "message of 264 bytes, tx_size is 256")
    for topic in ("", "/", "a\0b", b"\xff", "a" * 250, "ü" * 125):
        raises(ValueError, client.publish, topic, b"x")
    client.publish("/" + "ü" * 110, b"x")
    raises(ValueError, client.publish, "a", b"x", confirm=True)


@check
def numbers_wrap_after_65535():
    client, stream, heard = connected(window=4)
    client._ping = client._pong = 65533
    client.publish("a", b"1")
    client.publish("a", b"2")
    client.publish("a", b"3")
    equal([frame[1] for frame in heard], [65534, 65535, 1])
    stream._feed.clear()
    equal(client._full, False)
    client.publish("a", b"4")
    equal(client._full, True)
    stream._feed.clear()
    for number, full, left in ((7, True, 4), (65533, True, 4), (65535, False, 2), (65534, False, 2), (2, False, 0)):
        stream.feed(ack(number))
        client.poll(0)
        equal((client._full, (client._ping - client._pong) % 65535), (full, left), str(number))


@check
def a_full_window_waits_for_acks():
    client, stream, heard = connected(window=3)
    stream.answer = None
    for n in range(3):
        client.publish("a", b"%d" % n)
    client.timeout_ms = 100
    within(90, 400, raises, "timeout", client.publish, "a", b"x")
    client, stream, heard = connected(window=3)
    for n in range(40):  # it reads the acks as it needs to
        client.publish("a", b"%d" % n)
    equal([frame[1] for frame in heard], list(range(2, 42)))
    client.poll(0)


@check
def messages_are_acknowledged_together():
    got = []
    for step in (1, 2, 7, 1 << 20):
        del got[:]
        client, stream, heard = connected(Memory(step), rx_size=300)
        client.subscribe("a/*", lambda topic, payload: got.append((topic, payload, client.properties)))
        client.subscribe("jobs", lambda topic, payload: got.append((topic, payload)), queued=True)
        client.subscribe("jobs", lambda topic, payload: got.append("topic"))
        del heard[:]
        text = b"".join(
            [
                message(1, b"topic/a/b", b"1", b"n:N1"),
                message(2, b"jobs", b"2", flags=8),
                b"\x01\x04ping" + b"\x02\x02\x00",  # a command, and an extension without frames
                message(3, b"topic/a/b/c", b"nobody's"),
                message(4, b"topic/a/c", b"y" * 250),
            ]
        )
        stream.feed(text)
        drained(client, stream)
        equal(got, [(b"a/b", b"1", b"n:N1"), (b"jobs", b"2"), (b"a/c", b"y" * 250, b"")])
        equal(client.discarded, 1)
        equal(heard[-1], ("ack", 4))
        if step > 1000:
            equal(heard, [("ack", 4)])  # of all that was read at once
        # What comes again is not taken again, but acknowledged.
        del heard[:], got[:]
        stream.feed(message(4, b"topic/a/c", b"y" * 250) + message(2, b"jobs", b"2"))
        drained(client, stream)
        equal((got, heard[-1]), ([], ("ack", 4)))
        stream.feed(message(5, b"jobs", b"5"))
        drained(client, stream)
        equal((got, heard[-1]), ([(b"jobs", b"5")], ("ack", 5)))


@check
def duplicates_are_known_across_the_wrap():
    client, stream, heard = connected(window=5)
    got = []
    client.subscribe("a", lambda topic, payload: got.append(int(payload)))
    client._heard = 65532
    for number in (65533, 65534, 65535, 1, 65535, 2, 65533, 3, 1, 65535):
        stream.feed(message(number, b"topic/a", b"%d" % number))
        drained(client, stream)
    equal(got, [65533, 65534, 65535, 1, 2, 3])
    equal(heard[-1], ("ack", 3))


@check
def an_ack_waits_for_room():
    client, stream, heard = connected(Blocked())
    client.subscribe("a", lambda topic, payload: None)
    stream.take()
    stream.room = 3
    stream.answer = None
    stream.feed(message(1, b"topic/a", b"1"))
    client.poll(0)
    equal(stream.take(), b"\x02\x01\x02")
    stream.feed(message(2, b"topic/a", b"1"))
    client.poll(0)
    stream.room = 100
    client.poll(20)
    client.poll(20)
    equal(stream.take(), b"\0\x01" + ack(2))


@check
def what_does_not_fit_is_skipped():
    got = []
    for step in (1, 97, 1 << 20):
        del got[:]
        client, stream, heard = connected(Memory(step), rx_size=300)
        client.subscribe("a", lambda topic, payload: got.append(payload))
        stream.feed(message(1, b"topic/a", b"x" * 5000, flags=8))
        stream.feed(message(2, b"topic/a", b"small"))
        stream.feed(message(3, b"topic/a", b"y" * 20, b"k:" + b"v" * 60000))
        stream.feed(message(4, b"topic/a", b"y" * 2000, b"k:" + b"v" * 290, flags=8))
        stream.feed(b"\x09\0\0\x10\0" + b"c" * 4096)  # a command
        stream.feed(message(5, b"d" * 255, b"last", b"k:vvvv"))
        stream.feed(message(6, b"topic/a", b"last"))
        drained(client, stream)
        equal((got, client.discarded), ([b"small", b"last"], 4))
        equal(heard[-1], ("ack", 6))


@check
def an_error_frame_says_why():
    for step in (1, 1 << 20):
        client, stream, heard = connected(Memory(step))
        stream.feed(b"\x04\x0ano no\xff no!")
        error = None
        while not error:
            try:
                client.poll(0)
            except OSError as said:
                error = said
        equal(error.args[0], "refused")
        stream = Memory(step)
        stream.feed(b"\x0c\0\0\0\x05tired")
        client = MicroMsg2Client(stream, retry_ms=0)
        equal(raises("refused", client.connect, timeout_ms=1000).args[1], "tired")


@check
def malformed_frames_end_the_link():
    for wrong in (b"\x03\x01", b"\x20", b"\x40", b"\x80", b"\x11", b"\x12", b"\x14", b"\x02\0", b"\x02\x03", b"\x02\x01\x01\0", b"\x09\xff", b"\x08\0\x01\x01q\0\0\x01"):
        for step in (1, 100):
            client, stream, heard = connected(Memory(step))
            stream.feed(wrong + bytes(8))
            error = None
            while error is None:
                equal(stream.empty, False, "%r was accepted" % wrong)
                try:
                    client.poll(0)
                except OSError as said:
                    error = said
            equal((error.args[0], heard[-1][0]), ("wire", "error"), repr(wrong))
    for wrong in (b"\0", b"\x02\0\0\0", b"HTTP/1.1 400", b"\x01\0\0\0\x40\0"):
        stream = Memory()
        stream.feed(wrong + bytes(300))
        raises("wire", MicroMsg2Client(stream, retry_ms=0).connect, timeout_ms=1000)


@check
def arguments_are_checked():
    raises(ValueError, MicroMsg2Client, Memory(), name="küche")
    raises(ValueError, MicroMsg2Client, Memory(), name="x" * 256)
    raises(ValueError, MicroMsg2Client, Memory(), window=0)
    raises(ValueError, MicroMsg2Client, Memory(), window=32768)
    raises(ValueError, MicroMsg2Client, Memory(), rx_size=200)
    raises(ValueError, MicroMsg2Client, Memory(), name="x" * 240)  # it would never fit
    raises(TypeError, MicroMsg2Client, Memory(), b"kitchen")
    client, _, _ = named()
    raises(TypeError, client.subscribe, "a", 1)
    raises(TypeError, client.publish, "a", b"x", True)
    raises("down", client.publish, "a", b"x")


@check
def subscriptions_are_told_in_their_words():
    client, stream, heard = connected()
    client.subscribe("a", print, filter="unit=Tcelsius & more")
    client.subscribe("a", print, filter=("n>N3", b"n<N9"))
    client.subscribe("jobs", print, queued=True)
    client.unsubscribe("a")
    client.unsubscribe("jobs", queued=True)
    said = [text for _, text in heard]
    equal(said[0], b"subscribe;destination=topic%2Fa,filter=unit%3DTcelsius%20%26%20more")
    equal(said[1], b"subscribe;destination=topic%2Fa,filter=n%3EN3,filter=n%3CN9")
    equal(said[2:], [b"subscribe;destination=jobs", b"unsubscribe;destination=topic%2Fa", b"unsubscribe;destination=jobs"])
    equal(client._standing, [])
    raises(ValueError, client.subscribe, "a", print, filter="f" * 300)


@check
def a_ping_is_a_message_to_nobody():
    client, stream, heard = connected()
    client.publish("a", b"x")
    equal(client.ping(1000) >= 0, True)
    equal(heard[1], ("send", 3, b"topic/ping", b""))
    stream.answer = None
    within(90, 400, raises, "timeout", client.ping, 100)
    equal(client.up, True)


@check
def fragments_are_joined_in_a_fixed_buffer():
    for step in (1, 100, 1 << 20):
        got = []
        client, stream, heard = connected(Memory(step), FragmentClient, message_size=600)
        client.subscribe("f", lambda topic, payload: got.append((payload, client.properties)))
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
    for window in (2, 100):
        client, stream, heard = connected(None, FragmentClient, window=window)
        client.subscribe("a", lambda topic, payload: client.publish("b", b"x"))
        del heard[:]
        stream.feed(message(1, b"topic/a", b"1"))
        client.publish_from("long", 5000, Source(5000))
        client.poll(0)
        sent = [frame[2] for frame in heard if frame[0] == "send"]
        equal(sent[-1], b"topic/b")
        equal(set(sent[:-1]), {b"topic/long"})


run()
