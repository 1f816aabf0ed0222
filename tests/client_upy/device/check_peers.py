"""Six ways for a peer to fail, by both drivers and each protocol; over streams in memory.

So boards without a network run them, too: ``check_faults`` does the same over real ones. The last
argument is the driver: sync or aio.
"""

# First: to compile it takes more in one piece than a small heap has once it is in use.
from umotemq.micromsg2 import MicroMsg2Client

# isort: split
from checks import Blocked, check, equal, run, since
from checks import now as instant
from clients_in_memory import broker
from drivers import Driver, raised, to_end
from micromsg2_peer import answers

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient

_TIMEOUT_MS = 300
_KEEPALIVE_MS = 200
_GRACE_MS = 1000
_OPTIONS = {"timeout_ms": _TIMEOUT_MS, "keepalive_ms": _KEEPALIVE_MS, "retry_ms": 100}


class Fmqp:
    """How the peer of an FMQP client answers, and what it begins and does not end."""

    half = b"\0\x01\0\0\0\x05a12"
    huge = b"\0\x01\x0b\xeb\xc2\0a"
    absurd = "wire"

    @staticmethod
    def answer(stream):
        return broker

    @staticmethod
    def client(stream):
        return FmqpClient(stream, name=b"n", **_OPTIONS)

    @staticmethod
    async def publish(link):
        await link.publish(b"a", b"x")


class Lightmq:
    """The same of a LightMQ client. Its lengths end at 64 KiB: it waits for those."""

    half = b"\x05\0\x09\0\x01\0a"
    huge = b"\x05\xff\xff\0\x01\0"
    absurd = "timeout"

    @staticmethod
    def answer(stream):
        def answer(data):
            if data[0] == 1:
                return b"\x02\0\x01\0"
            return b"\x04" + data[1:] if data[0] == 3 else b""

        return answer

    @staticmethod
    def client(stream):
        return LightmqClient(stream, b"me", **_OPTIONS)

    @staticmethod
    async def publish(link):
        await link.post(b"x", _TIMEOUT_MS)


class MicroMsg2:
    """The same of a MicroMsg2 client."""

    half = b"\0\0\x01\x07topic/a\0\0\x0512"
    huge = b"\x08\0\x01\x07topic/a\0\0\x0b\xeb\xc2\0"
    absurd = "wire"
    answer = staticmethod(answers)

    @staticmethod
    def client(stream):
        return MicroMsg2Client(stream, name=b"n", **_OPTIONS)

    @staticmethod
    async def publish(link):
        await link.publish(b"a", b"x")


def notice(spoil, within_ms, word=None, publish=False, mute=False):
    """Each protocol notices in time what ``spoil(stream, kind)`` does, and come back after it."""

    async def main(kind):
        stream = Blocked()
        client = kind.client(stream)
        told = []
        client.on_down = lambda: told.append(client.error.args[0])
        if not mute:
            stream.answer = kind.answer(stream)
        async with Driver(client) as link:
            start = instant()
            if not mute:
                await link.connect(5000)
                spoil(stream, kind)
                start = instant()
            if publish:
                await raised("timeout", kind.publish(link))
            await link.until(lambda: told or client.error)
            equal(since(start) < within_ms + _GRACE_MS, True, "%d ms" % since(start))
            equal((told or client.error.args)[0], word or kind.absurd)
            connects = client.connects
            stream.answer = kind.answer(stream)
            stream.room = 1 << 20
            await link.until(lambda: client.connects > connects or client.up)

    for kind in (Fmqp, Lightmq, MicroMsg2):
        to_end(main(kind))


@check
def who_never_answers_the_first_words():
    notice(None, _TIMEOUT_MS, "timeout", mute=True)


@check
def half_a_message_then_silence():
    def spoil(stream, kind):
        stream.answer = None
        stream.feed(kind.half)

    notice(spoil, _TIMEOUT_MS, "timeout")


@check
def half_a_message_then_the_end():
    def spoil(stream, kind):
        stream.feed(kind.half)
        stream.ended = True

    notice(spoil, 0, "closed")


@check
def an_absurd_length():
    def spoil(stream, kind):
        stream.answer = None
        stream.feed(kind.huge)

    notice(spoil, _TIMEOUT_MS)


@check
def who_reads_and_answers_no_ping():
    def spoil(stream, kind):
        stream.answer = None

    notice(spoil, _KEEPALIVE_MS + _TIMEOUT_MS, "timeout")


@check
def who_stops_reading():
    def spoil(stream, kind):
        stream.room = 0

    notice(spoil, _TIMEOUT_MS, "timeout", publish=True)


run()
