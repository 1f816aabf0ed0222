"""Mistakes of programs, and of whoever they talk to, by both drivers; over streams in memory.

The last argument is the driver: sync or aio.
"""

import time
from array import array

from checks import Blocked, Memory, check, equal, publication, raises, run
from clients_in_memory import broker, named
from drivers import Driver, raised, to_end

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.outage import Ring

_SOON_MS = 3000


def lightmq(**options):
    """Return a LightMQ client that is not connected yet, and a stream that accepts it."""
    stream = Memory()
    stream.answer = lambda data: b"\x02\0\x01\0" if data[0] == 1 else b""
    return LightmqClient(stream, b"me", **options), stream


@check
def what_never_fits_is_refused_before_it_is_kept():
    async def main():
        client, stream = named(tx_size=60)
        async with Driver(client) as link:
            for flags in ({"again": True}, {"will": True}, {"again": True, "retain": True}):
                error = await raised(ValueError, link.publish(b"a", bytes(100), **flags))
                equal(error.args[0], "107 bytes, tx_size 60")
            raises(ValueError, client.subscribe, b"a" * 60, print)
            await link.connect(_SOON_MS)
            for count in range(2, 5):
                await raised(ValueError, link.publish(b"a", bytes(100), again=True))
                stream.ended = True
                await link.until(lambda count=count: client.connects == count, _SOON_MS)
            stream.take()
            await link.publish(b"a", b"x")
            equal(stream.take(), publication(b"a", b"x"))

    to_end(main())


@check
def text_is_sent_as_utf_8():
    text = "21.5 °C"

    async def main():
        client, stream = named()
        got = []
        client.subscribe("zimmer/küche", lambda topic, payload: got.append((topic, payload)))
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            await link.ping(_SOON_MS)
            stream.take()
            for _ in range(3):
                await link.publish("zimmer/küche", text)
            await link.publish(b"a", "°°°°°")
            await link.publish(b"a", "o°°°°")
            await link.publish(b"a", "ooooo")
            want = publication("zimmer/küche".encode(), text.encode()) * 3
            for each in ("°°°°°", "o°°°°", "ooooo"):
                want += publication(b"a", each.encode())
            equal(stream.take(), want)
            for wrong in (None, 5, 2.5, ["x"]):
                await raised(Exception, link.publish(b"a", wrong))
                await raised(Exception, link.publish(wrong, b"a"))
            equal(stream.take(), b"")
            stream.feed(want[: len(want) // 2])
            await link.until(lambda: got, _SOON_MS)
            equal(got[0], ("zimmer/küche".encode(), text.encode()))

    async def requests():
        client, stream = lightmq()
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.take()
            await link.post(text, 100)
            equal(stream.take()[6:], text.encode())

    to_end(main())
    to_end(requests())


@check
def what_has_bytes_is_sent_whole():
    """An array has fewer items than bytes; what may change is not taken for what it was."""
    numbers = array("H", [1, 2, 3])
    changing = bytearray(b"abc")

    async def main():
        client, stream = named()
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.take()
            for payload in (numbers, memoryview(numbers), memoryview(b"12345678")[1:7]):
                for _ in range(2):
                    await link.publish(b"t", payload)
                    equal(stream.take(), publication(b"t", bytes(memoryview(payload))))
            for topic in (changing, memoryview(changing)):
                for _ in range(2):
                    await link.publish(topic, changing)
                    equal(stream.take(), publication(bytes(changing), bytes(changing)))
                    changing[0] += 1

    async def requests():
        client, stream = lightmq()
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.take()
            await link.post(numbers, 100)
            equal(stream.take()[6:], bytes(memoryview(numbers)))

    to_end(main())
    to_end(requests())


@check
def what_waits_is_not_changed_by_what_comes_after():
    # By a handler under asyncio, for example, which cannot wait until there is room.
    both = publication(b"t", b"one") + publication(b"t", b"two")
    for room in (0, 4, len(both) // 2):
        for outage in (None, Ring(300)):
            stream = Blocked()
            client = FmqpClient(stream, name=b"", outage=outage)
            client.connect(timeout_ms=_SOON_MS)
            client._blocking = False
            stream.take()
            stream.room = room
            client.publish(b"t", b"one")
            client.publish(b"t", b"two")
            stream.room = 1 << 20
            while client._last or (outage and outage.count):
                client.poll(1)
            # Without a name nothing is asked for, but for signs of life.
            equal(stream.take(), both, "room for %d bytes" % room)
            client.close()


@check
def no_ping_is_answered_without_a_name():
    async def main():
        stream = Blocked()
        client = FmqpClient(stream, name=b"")
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.room = 0
            await raised(ValueError, link.ping(100))

    to_end(main())


@check
def a_response_that_does_not_fit_is_told_to_who_asked():
    async def main():
        client, stream = lightmq(handler=lambda data: data * 30, tx_size=50)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.take()
            stream.feed(b"\x05\0\x0d\0\x01\0datadatada")
            await link.until(lambda: client.oversized, _SOON_MS)
            await link.until(lambda: stream.sent, _SOON_MS)
            told = b"error: 300 bytes, room for 45"
            equal(stream.take(), b"\x06\0" + bytes([2 + len(told)]) + b"\0\x01" + told)
            equal(client.up, True)

    to_end(main())


@check
def every_handler_gets_a_message_whatever_the_others_do():
    async def main():
        client, stream = named()
        got = []

        def greedy(topic, payload):
            got.append((1, payload))
            if hasattr(client, "run"):
                client.poll(5)  # takes what came behind it, where this one was
            if payload == b"raise":
                raise KeyError("mine")

        client.subscribe(b"a/*", greedy)
        client.subscribe(b"*/b", lambda topic, payload: got.append((2, topic, payload)))
        client.subscribe(b"a/b", lambda v, a, b, c, d: got.append((3, bytes(v[c:d]))), raw=True)
        try:
            async with Driver(client) as link:
                await link.connect(_SOON_MS)
                stream.feed(publication(b"a/b", b"first") + publication(b"a/c", b"2nd" * 9))
                await link.until(lambda: len(got) == 4, _SOON_MS)
                for one in ((1, b"first"), (2, b"a/b", b"first"), (3, b"first"), (1, b"2nd" * 9)):
                    equal(one in got, True, "%r in %r" % (one, got))
                del got[:]
                stream.feed(publication(b"a/b", b"raise"))
                await link.rest(300)
        except KeyError:
            equal(sorted([one[0] for one in got]), [1, 2, 3])
            return
        raise AssertionError("it was not raised")

    to_end(main())


class Megabyte(bytes):
    """A payload that is five bytes longer."""

    def __len__(self):
        return (1 << 20) + 5


@check
def a_megabyte_is_not_five_bytes():
    # No board has so many bytes; it can be asked for their number.
    big = bytes((1 << 20) + 5) if hasattr(time, "process_time") else Megabyte()

    async def main():
        client, stream = named()
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            await link.publish(b"ab", b"12345")
            await link.publish(b"ab", b"12345")
            await raised(ValueError, link.publish(b"abc", big))
            equal(client.up, True)
            stream.take()
            await link.publish(b"a", b"54321")
            equal(stream.take(), publication(b"a", b"54321"))

    to_end(main())


@check
def a_topic_that_no_broker_takes_is_refused():
    async def main():
        client, stream = named(outage=Ring(300))
        async with Driver(client) as link:
            for is_up in (False, True):
                if is_up:
                    await link.connect(_SOON_MS)
                    await link.publish("a", b"x")
                    stream.take()
                for topic in ("", "/", "a\0b", b"\xff", "a" * 256):
                    for flags in ({}, {"confirm": True}, {"retain": True}, {"will": True}):
                        await raised(ValueError, link.publish(topic, b"x", **flags))
                for topic in (None, 7):  # None: nothing is like it
                    await raised((AttributeError, TypeError), link.publish(topic, b"x"))
                equal((client.outage.count, stream.take()), (0, b""))

    to_end(main())


@check
def calls_in_the_shape_of_umqtt_are_refused():
    client, stream = named()
    for wrong in (
        lambda: client.publish(b"a", b"b", True),
        lambda: client.publish(b"a", b"b", True, 1),
        lambda: client.publish(b"a", b"b", False, 1),
        lambda: client.publish(b"a", b"b", None, retain=True),
        lambda: client.publish(b"a", b"b", False, confirm=True),
        lambda: client.publish(b"a", b"b", flags=0),
        lambda: client.subscribe(b"a"),
        lambda: client.subscribe(b"a", 1),
        lambda: client.connect(True),
        lambda: FmqpClient("umqtt_client", "192.168.1.2"),
        lambda: FmqpClient(stream, keepalive=30),
    ):
        raises(TypeError, wrong)
        equal(stream.take(), b"")
    client.connect(timeout_ms=1000)
    for retain in (False, True):
        client.publish(b"a", b"b", retain=retain)
        stream.take()
        error = raises(TypeError, client.publish, b"a", b"b", retain)
        equal((error.args[0], stream.take()), ("flags by name, as retain=True", b""))


@check
def what_can_never_work_is_refused_in_words():
    """At once, and not by a link that never comes up."""
    stream = Memory()
    for given in ("umqtt_client", ("192.168.1.2", 8765), None, 7):
        for client in (
            lambda given=given: FmqpClient(given),
            lambda given=given: LightmqClient(given, "me"),
        ):
            error = raises(TypeError, client)
            equal(error.args[0], "%r is no transport, as Tcp(host, port) is" % (given,))
    for least, client in (
        (25, lambda size: FmqpClient(stream, name="n", rx_size=size)),
        (5, lambda size: LightmqClient(stream, "me", rx_size=size)),
    ):
        for size in (0, least - 1):
            error = raises(ValueError, client, size)
            equal(error.args[0], "rx_size %d, at least %d" % (size, least))
        client(least)
    for size in (0, 16):
        error = raises(ValueError, Ring, size)
        equal(error.args[0], "size %d, at least 17" % size)
    for client in (
        lambda: FmqpClient(stream, name="n", tx_size=24),
        lambda: LightmqClient(stream, "me", tx_size=5),
    ):
        equal(" bytes, tx_size " in raises(ValueError, client).args[0], True)
    for size in (0, 256):
        error = raises(ValueError, LightmqClient, stream, b"x" * size)
        equal(error.args[0], "client_id of %d bytes, not 1 to 255" % size)
    client = FmqpClient(stream, outage=Ring(200))
    for flag in ("will", "again"):
        error = raises(ValueError, client.publish, b"a", b"b", confirm=True, **{flag: True})
        equal(error.args[0], "confirm is not for what is sent on each link: will, again")


class Long(bytes):
    """What says that it is longer than any message, and takes no heap for it."""

    def __len__(self):
        return 65464


@check
def data_that_no_frame_takes_is_refused_in_words():
    client, stream = lightmq()
    client.connect(timeout_ms=1000)
    stream.take()
    error = raises(ValueError, client.post, Long())
    equal(error.args[0], "65464 bytes of data, at most 65463")
    equal(stream.take(), b"")


@check
def the_least_that_is_taken_works():
    async def main():
        stream = Memory()
        stream.answer = broker
        async with Driver(FmqpClient(stream, name="n", rx_size=25, tx_size=25)) as link:
            await link.connect(_SOON_MS)
            await link.ping(_SOON_MS)
        client, stream = lightmq(rx_size=5, tx_size=6)
        client.outage = Ring(17)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.take()
            client._id = 6
            await link.post(b"", 100, confirm=True)
            equal((stream.take(), client.outage.count), (b"\x05\0\x03\0\x07\0", 1))
            stream.feed(b"\x06\0\x02\0\x07")
            await link.until(lambda: not client.outage.count, _SOON_MS)

    to_end(main())


run()
