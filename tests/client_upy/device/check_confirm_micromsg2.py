"""MicroMsg2's window, and what is published with confirm, by both drivers; over streams in memory.

The last argument is the driver: sync or aio.
"""

# First: to compile it takes more in one piece than a small heap has once it is in use.
from umotemq.micromsg2 import MicroMsg2Client

# isort: split
from checks import Memory, check, equal, now, run, since
from drivers import Driver, raised, to_end
from micromsg2_peer import ack, answers

from umotemq.outage import Ring

_SOON_MS = 3000


class Server(Memory):
    """A MicroMsg2 server; ``deaf``, it reads and acknowledges nothing.

    ``refused``: how many of the next writes the stream does not take.
    """

    deaf = False
    refused = 0

    def __init__(self):
        Memory.__init__(self)
        self.heard = []
        told = answers(self, self.heard)

        def answer(data):
            said = told(data)
            return b"" if self.deaf else said

        self.answer = answer

    def write(self, data):
        if self.refused:
            self.refused -= 1
            return None
        self.sent = b""  # it is in ``heard``
        return Memory.write(self, data)

    def numbers(self):
        """Return (number, payload) of what was published to m since this was last asked."""
        found = [(each[1], int(each[3])) for each in self.heard if each[2:3] == (b"topic/m",)]
        del self.heard[:]
        return found


def micromsg2(**options):
    stream = Server()
    return MicroMsg2Client(stream, name=b"n", retry_ms=20, **options), stream


@check
def micromsg2_is_confirmed_by_its_acks():
    async def main():
        client, stream = micromsg2(outage=Ring(500), keepalive_ms=60000)
        ring = client.outage
        for n in range(3):  # before there is a link
            client.publish(b"m", b"%d" % n, confirm=True)
        async with Driver(client) as link:
            await link.until(lambda: client.up and not ring.count, _SOON_MS)
            equal(stream.numbers(), [(2, 0), (3, 1), (4, 2)])
            stream.deaf = True
            for n in range(5):
                await link.publish(b"m", b"%d" % n, confirm=True)
                await link.publish("n", "plain")
            equal((ring.count, stream.numbers()), (5, [(5 + 2 * n, n) for n in range(5)]))
            stream.feed(ack(10))  # of three of them
            await link.until(lambda: client._pong == 10, _SOON_MS)
            await link.rest(50)
            equal(ring.count <= 5, True)
            stream.deaf = False
            stream.ended = True
            await link.until(lambda: client.connects == 2, _SOON_MS)
            await link.until(lambda: not ring.count, _SOON_MS)
            again = stream.numbers()
            equal(again in ([(2 + n, n) for n in range(5)], [(2, 3), (3, 4)]), True, repr(again))
            for n in range(50):
                await link.publish(b"m", b"%d" % n, confirm=True)
            await link.until(lambda: not ring.count, _SOON_MS)
            payloads = [payload for _, payload in stream.numbers()]
            equal((payloads, ring.dropped), (list(range(50)), 0))

    to_end(main())


@check
def room_that_comes_late_is_noticed():
    """The ack comes while the stream takes nothing; what it takes then is no answer."""

    async def main():
        client, stream = micromsg2(outage=Ring(400), timeout_ms=20000, keepalive_ms=60000)
        ring = client.outage
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.deaf = True
            count = 0
            while not ring.is_full(client):
                await link.publish(b"m", b"%d" % count, confirm=True)
                count += 1
            stream.refused = 50
            blocking = client._blocking
            client._blocking = False  # as a handler's that publishes under asyncio
            client.publish("n", b"plain")
            client._blocking = blocking
            stream.feed(ack(client._ping))
            await link.until(lambda: client._pong == client._ping, _SOON_MS)
            equal((count > 2, client._last > 0, ring.is_full(client)), (True, True, True))
            start = now()
            await link.publish(b"m", b"%d" % count, confirm=True)
            equal(since(start) < _SOON_MS, True, "%d ms" % since(start))
            equal(ring.dropped, 0)

    to_end(main())


@check
def what_is_sent_again_keeps_to_the_window():
    async def main():
        client, stream = micromsg2(outage=Ring(2000), window=4, keepalive_ms=60000)
        ring = client.outage
        for n in range(30):
            client.publish(b"m", b"%d" % n, confirm=True)
        stream.deaf = False
        async with Driver(client) as link:
            await link.until(lambda: client.up, _SOON_MS)
            await link.until(lambda: not ring.count, _SOON_MS)
            equal(stream.numbers(), [(2 + n, n) for n in range(30)])
            stream.deaf = True
            for n in range(10):
                await link.publish(b"m", b"%d" % n, confirm=n % 2 == 0)
            equal(stream.numbers(), [(32 + n, n) for n in range(4)])
            equal(ring.count >= 8, True, "%d" % ring.count)
            for number, more in ((33, 2), (35, 2), (37, 2)):
                stream.feed(ack(number))
                await link.until(lambda want=more: len(stream.heard) == want, _SOON_MS)
                equal(len(stream.numbers()), more)
            stream.feed(ack(41))
            await link.until(lambda: not ring.count, _SOON_MS)

    to_end(main())


@check
def without_a_ring_a_full_window_waits():
    async def main():
        client, stream = micromsg2(window=3, keepalive_ms=60000)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(40):
                await link.publish(b"m", b"%d" % n)
            await link.until(lambda: client._pong == client._ping, _SOON_MS)
            equal(stream.numbers(), [(2 + n, n) for n in range(40)])
            stream.deaf = True
            client.timeout_ms = 100
            for n in range(3):
                await link.publish(b"m", b"%d" % n)
            await raised("timeout", link.publish(b"m", b"9"))

    to_end(main())


run()
