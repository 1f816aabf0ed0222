"""What is published with confirm keeps its place, and its topic; by both drivers.

The last argument is the driver: sync or aio. Over streams in memory.
"""

from checks import check, equal, publication, run
from clients_in_memory import broker, named
from drivers import Driver, to_end

from umotemq.outage import Ring
from umotemq.store import RtcStore

_SOON_MS = 3000


def bodies(sent):
    """Return the payloads that were published to m."""
    found = []
    at = sent.find(b"\x01\0\0\0\x03m")
    while at >= 0:
        found.append(int(sent[at + 6 : at + 9]))
        at = sent.find(b"\x01\0\0\0\x03m", at + 1)
    return found


class Rtc:
    """The memory of a machine.RTC."""

    held = b""

    def memory(self, data=None):
        if data is None:
            return self.held
        self.held = bytes(data)


@check
def what_waits_in_the_store_is_not_overtaken():
    """Not by a publication like it, which is to be sent once and need not be confirmed."""

    async def main():
        ring = Ring(48, store=RtcStore(Rtc(), 600))  # two of them; then they are in the store
        client, stream = named(outage=ring, tx_size=40, keepalive_ms=60000)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.answer = None
            topic = b"m"
            for n in range(12):
                await link.publish(topic, b"%03d" % n, confirm=n % 4 < 3)
            sent = bodies(stream.take())
            equal(sent, list(range(len(sent))), "by the link that is lost")
            stream.answer = broker
            stream.ended = True
            await link.until(lambda: client.connects == 2 and not ring.count, _SOON_MS)
            again = bodies(stream.take())
            equal(again, list(range(again[0], 12)), "by the next one")
            equal((again[0] <= len(sent), ring.dropped), (True, 0))

    to_end(main())


@check
def what_a_handler_publishes_while_a_ring_is_full_is_not_mixed_up():
    """By the synchronous driver it is called in the middle of a publication that waits for room."""

    async def main(size):
        client, stream = named(outage=Ring(48), tx_size=40)
        ring = client.outage
        inner = b"b"
        client.subscribe("go", lambda topic, payload: client.publish(inner, b"z" * size))
        topic = b"m"
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(2):
                await link.publish(topic, b"%03d" % n, confirm=True)
            # It comes right behind the answer that makes room.
            stream.answer = lambda data: broker(data) and broker(data) + publication(b"go", b"")
            await link.publish(topic, b"002", confirm=True)
            await link.publish(*((inner, b"yyy") if size == 3 else (topic, b"3" * size)))
            await link.until(lambda: publication(inner, b"z" * size) in stream.sent, _SOON_MS)
            stream.answer = broker
            await link.until(lambda: not ring.count, _SOON_MS)
            sent = stream.take()
            wanted = [publication(topic, b"%03d" % n) for n in range(3)]
            wanted.append(publication(*((inner, b"yyy") if size == 3 else (topic, b"3" * size))))
            for want in wanted:
                equal(want in sent, True, "%r in %r" % (want, sent))

    for size in (3, 5):
        to_end(main(size))


def numbered(n):
    """Return a payload that begins with its number, of one of several lengths."""
    return b"%03d" % n + bytes(n * n % 7 & 3)


def counted(sent, count):
    """Look through packets; return how many of those numbers were sent, none before the last."""
    at = 0
    while at < len(sent):
        start = at + 6 + sent[at + 1]
        end = start + sent[at + 5]
        if sent[at + 6 : start] == b"m":
            number = int(sent[start : start + 3])
            equal((sent[start:end], number <= count), (numbered(number), True))
            count = max(count, number + 1)
        at = end
    return count


@check
def none_is_lost_however_answers_and_lengths_change():
    """Answered each or many at once, between plain ones, over links that are lost."""

    async def main(size, chance):
        ring = Ring(size)
        client, stream = named(outage=ring, tx_size=60, keepalive_ms=60000)
        count = 0
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(60):
                chance = chance * 75 % 65537  # the same on each interpreter
                if n % 20 == 19:
                    stream.ended = True
                    await link.until(lambda: not client.up, _SOON_MS)
                    await link.connect(_SOON_MS)
                stream.answer = None if chance & 3 == 1 else broker
                await link.publish(b"m", numbered(n), confirm=True)
                if chance & 16:
                    await link.publish(b"p", b"plain")
                if n == 59 or chance & 32:
                    stream.answer = broker
                    client._ask(True)  # its answer is one to all before
                    await link.until(lambda: not ring.count, _SOON_MS)
                count = counted(stream.take(), count)
            equal((count, ring.dropped), (60, 0))

    for size in (700, 1000):
        for chance in (1, 5):
            to_end(main(size, chance))


run()
