"""What a MicroMsg2 peer may do, or not do, to the client; over a stream in memory."""

# First: to compile it takes more in one piece than a small heap has once it is in use.
from umotemq.micromsg2 import MicroMsg2Client

# isort: split
from checks import Blocked, Memory, check, equal, raises, run, within
from micromsg2_peer import ack, answers, connected, drained, message


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
        (b"x-motemq-login", None),
        (b"json", "refused"),
        (b"pubsub;x-else", "refused"),
    ):
        stream = Memory()
        client = MicroMsg2Client(stream, name=b"n", retry_ms=0, secret="küche")
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
            said = b"pubsub;x-motemq-login\0\0\x02\x03\x06" + "küche".encode()
            equal(said in stream.take(), True)


@check
def messages_are_acknowledged_together():
    got = []

    def hear(topic, payload):
        got.append((topic, payload, client.properties))

    for step in (1, 2, 7, 1 << 20):
        del got[:]
        client, stream, heard = connected(Memory(step), rx_size=300)
        client.subscribe("a/*", hear)
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
def what_a_handler_works_on_is_not_acknowledged():
    # Nor what comes meanwhile, as an ack covers all before it; when it has returned, or raised, and
    # the program goes on, all of it is.
    client, stream, heard = connected()
    got = []

    def work(topic, payload):
        if payload == b"2":
            stream.feed(message(3, b"jobs", b"3") + message(1, b"jobs", b"1"))
            client.poll(0)
            client.publish("a", b"meanwhile")
        got.append(payload)
        if payload == b"4":
            raise ValueError("4")

    client.subscribe("jobs", work, queued=True)
    del heard[:]
    stream.feed(message(1, b"jobs", b"1") + message(2, b"jobs", b"2"))
    drained(client, stream)
    equal(got, [b"1", b"3", b"2"])
    # 1 again, because it came again.
    equal([each[:2] for each in heard if each[0] != "send"], [("ack", 1), ("ack", 3)])
    del heard[:]
    stream.feed(message(4, b"jobs", b"4"))
    raises(ValueError, client.poll, 0)
    equal(heard, [])
    client.poll(0)
    equal((got[-1], heard), (b"4", [("ack", 4)]))


@check
def a_topic_that_changes_is_looked_at_each_time():
    client, _, heard = connected()
    changing = bytearray(b"abc")
    for topic in (changing, memoryview(changing)):
        for _ in range(2):
            client.publish(topic, b"x")
            equal(heard.pop()[2:], (b"topic/" + bytes(changing), b"x"))
            changing[0] += 1


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
    client, stream, _ = connected(Blocked())
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
    # A byte at a time, and many reads, take an emulated chip very long.
    for step, most in ((1, 400), (97, 5000), (1 << 20, 60000)):
        del got[:]
        client, stream, heard = connected(Memory(step), rx_size=300)
        client.subscribe("a", lambda topic, payload: got.append(payload))
        part = b"k:v;" * (min(most, 1000) // 4)
        size = most.to_bytes(2, "big")
        stream.feed(b"\x08\0\x01\x07topic/a\0\0\0\0" + size)
        stream.feed(part, most // len(part))
        stream.feed(message(2, b"topic/a", b"small"))
        stream.feed(b"\0\0\x03\x07topic/a" + size)  # its properties are so long
        stream.feed(part, most // len(part))
        stream.feed(b"\x14" + b"y" * 20)
        stream.feed(message(4, b"topic/a", b"y" * (most // 30 + 301), b"k:" + b"v" * 290, flags=8))
        stream.feed(b"\x09\0\0" + size)  # a command
        stream.feed(part, most // len(part))
        stream.feed(message(5, b"d" * 255, b"last", b"k:vvvv"))
        stream.feed(message(6, b"topic/a", b"last"))
        drained(client, stream)
        equal((got, client.discarded), ([b"small", b"last"], 4))
        equal(heard[-1], ("ack", 6))


@check
def an_error_frame_says_why():
    for step in (1, 1 << 20):
        client, stream, _ = connected(Memory(step))
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
    for wrong in (
        b"\x03\x01",
        b"\x20",
        b"\x40",
        b"\x80",
        b"\x11",
        b"\x12",
        b"\x14",
        b"\x02\0",
        b"\x02\x03",
        b"\x02\x01\x01\0",
        b"\x09\xff",
        b"\x08\0\x01\x01q\0\0\x01",
    ):
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
def no_choice_of_options_fills_the_table_of_attributes():
    # As of the other clients: check_link.
    options = {
        name: getattr(MicroMsg2Client, name)
        for name in (
            "alive keepalive_ms link_up on_down on_up outage retry_max_ms retry_ms rx_size secret "
            "timeout_ms tx_size window"
        ).split()
    }
    stream = Memory()
    client = MicroMsg2Client(stream)
    stream.answer = answers(stream)
    client.connect(timeout_ms=1000)
    least = len(client.__dict__)
    del options["retry_ms"]
    client, stream, _ = connected(**options)
    client.publish("a", b"b")
    client.subscribe("a", print, raw=True)
    most = len(client.__dict__)
    equal([size for size in (29, 37, 47, 59, 73) if least <= size <= most], [])


run()
