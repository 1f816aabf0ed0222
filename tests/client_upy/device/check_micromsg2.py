"""The MicroMsg2 client, over a stream in memory."""

# First: to compile it takes more in one piece than a small heap has once it is in use.
from umotemq.micromsg2 import MicroMsg2Client

# isort: split
from checks import Memory, check, equal, raises, run, within
from micromsg2_peer import ack, connected, drained, message, named

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
def what_is_published_is_numbered():
    client, stream, heard = connected()
    client.publish("a/b", "21.5 °C")
    client.publish("jobs", b"x", queued=True)
    client.publish("a/b", b"y" * 100, properties="count:N1;unit:Tcelsius")
    equal(
        [frame[1:] for frame in heard][:2],
        [(2, b"topic/a/b", "21.5 °C".encode()), (3, b"jobs", b"x")],
    )
    equal(message(4, b"topic/a/b", b"y" * 100, b"count:N1;unit:Tcelsius") in stream.take(), True)
    wide = MicroMsg2Client(Memory(), tx_size=600)
    wide._pack(b"topic/", b"a", b"z" * 256)
    equal(bytes(wide._out[: wide._last]), message(1, b"topic/a", b"z" * 256, flags=8))
    error = raises(ValueError, client.publish, "a", b"x" * 250)
    equal(error.args[0], "264 bytes, tx_size 256")
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
    for number, full, left in (
        (7, True, 4),
        (65533, True, 4),
        (65535, False, 2),
        (65534, False, 2),
        (2, False, 0),
    ):
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
    client, _, heard = connected()
    client.subscribe("a", print, filter="unit=Tcelsius & more")
    client.subscribe("a", print, filter=("n>N3", b"n<N9"))
    client.subscribe("jobs", print, queued=True)
    client.unsubscribe("a")
    client.unsubscribe("jobs", queued=True)
    said = [text for _, text in heard]
    equal(said[0], b"subscribe;destination=topic%2Fa,filter=unit%3DTcelsius%20%26%20more")
    equal(said[1], b"subscribe;destination=topic%2Fa,filter=n%3EN3,filter=n%3CN9")
    equal(
        said[2:],
        [
            b"subscribe;destination=jobs",
            b"unsubscribe;destination=topic%2Fa",
            b"unsubscribe;destination=jobs",
        ],
    )
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


run()
