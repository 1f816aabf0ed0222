"""What is published with confirm, by both drivers; over streams in memory.

The last argument is the driver: sync or aio.
"""

from checks import Memory, check, equal, publication, raises, run
from clients_in_memory import broker, named
from drivers import Driver, raised, to_end

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.outage import Ring

_SOON_MS = 3000


class Taking(Memory):
    """A broker that processes what it reads, and answers pings; but ``deaf`` it only reads, and
    ``forgetful`` it keeps nothing of that: no heap is large enough for what never ends."""

    deaf = False
    forgetful = False

    def __init__(self):
        Memory.__init__(self)
        self.answer = self.heard

    def heard(self, data):
        return b"" if self.deaf else broker(data)

    def write(self, data):
        if self.forgetful:
            return len(data)
        return Memory.write(self, data)


def bodies(sent):
    """Return the payloads that were published to m."""
    found = []
    at = sent.find(b"\x01\0\0\0\x03m")
    while at >= 0:
        found.append(int(sent[at + 6 : at + 9]))
        at = sent.find(b"\x01\0\0\0\x03m", at + 1)
    return found


def fmqp(**options):
    stream = Taking()
    return FmqpClient(stream, name=b"n", retry_ms=20, **options), stream


@check
def it_is_kept_until_the_broker_answers():
    async def main():
        client, stream = fmqp(outage=Ring(500), keepalive_ms=60000)
        ring = client.outage
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.deaf = True
            for n in range(5):
                await link.publish(b"m", b"%03d" % n, confirm=True)
                await link.publish("n", "plain")
            equal(ring.count, 5)
            await link.rest(100)
            equal(ring.count, 5)  # written is not answered
            stream.deaf = False
            stream.ended = True
            await link.until(lambda: client.connects == 2, _SOON_MS)
            await link.until(lambda: not ring.count, _SOON_MS)
            equal(bodies(stream.take()), list(range(5)) * 2)
            for n in range(50):
                await link.publish(b"m", b"%03d" % n, confirm=True)
            await link.until(lambda: not ring.count, _SOON_MS)
            equal((bodies(stream.take()), ring.dropped), (list(range(50)), 0))

    to_end(main())


@check
def it_is_kept_while_there_is_no_link():
    async def main():
        client, stream = fmqp(outage=Ring(500))
        ring = client.outage
        for n in range(3):
            client.publish("m", "%03d" % n, confirm=True)
        equal((ring.count, stream.opened), (3, 0))
        async with Driver(client) as link:
            await link.until(lambda: not ring.count, _SOON_MS)
            equal(bodies(stream.take()), [0, 1, 2])

    to_end(main())


@check
def a_ring_that_is_full_waits_for_answers():
    async def main():
        client, stream = fmqp(outage=Ring(120, newest=False), tx_size=40)
        ring = client.outage
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(60):
                await link.publish(b"m", b"%03d" % n, confirm=True)
            await link.until(lambda: not ring.count, _SOON_MS)
            equal((bodies(stream.take()), ring.dropped), (list(range(60)), 0))
            # A broker that never answers: bounded, and counted.
            client.timeout_ms = 20
            client.keepalive_ms = 60000
            stream.deaf = True
            stream.forgetful = True
            client.on_down = None
            for n in range(10):
                await link.publish(b"m", b"%03d" % n, confirm=True)
            equal(ring.count <= 6, True)
            equal(ring.count + ring.dropped, 10)

    to_end(main())


@check
def lightmq_is_confirmed_by_its_answers():
    async def main():
        stream = Memory()
        seen = []
        asked = []

        def answer(data):
            said = b""
            at = 0
            while at < len(data):
                size = 3 + (data[at + 1] << 8 | data[at + 2])
                if data[at] == 1:
                    said += b"\x02\0\x01\0"
                elif data[at] == 5:
                    asked.append(bytes(data[at + 3 : at + 5]))
                    seen.append(bytes(data[at + 6 : at + size]))
                at += size
            return said

        stream.answer = answer
        ring = Ring(300)
        client = LightmqClient(stream, b"me", retry_ms=20, outage=ring)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(3):
                await link.post(b"%d" % n, 1000, confirm=True)
            equal((seen, ring.count), ([b"0", b"1", b"2"], 3))
            stream.feed(b"\x06\0\x02" + asked[1])  # the second first
            await link.rest(50)
            equal(ring.count, 3)
            stream.feed(b"\x06\0\x02" + asked[0])
            await link.until(lambda: ring.count == 1, _SOON_MS)
            stream.ended = True
            await link.until(lambda: client.connects == 2, _SOON_MS)
            await link.until(lambda: len(seen) == 4, _SOON_MS)
            equal((seen[3], len(set(asked))), (b"2", 4))
            stream.feed(b"\x06\0\x02" + asked[3])
            await link.until(lambda: not ring.count, _SOON_MS)

    to_end(main())


@check
def it_needs_a_ring_and_an_answer():
    client, _ = named()
    raises(ValueError, client.publish, b"a", b"b", confirm=True)
    client, _ = named(outage=Ring(200))
    for flag in ("will", "again"):  # what is told on each new link is nothing to be kept
        raises(ValueError, client.publish, b"a", b"b", confirm=True, **{flag: True})
    client = FmqpClient(Memory(), name=b"", outage=Ring(200))
    raises(ValueError, client.publish, b"a", b"b", confirm=True)
    client = LightmqClient(Memory(), b"me")
    raises(ValueError, client.post, b"a", confirm=True)

    async def main():
        client, _ = fmqp(outage=Ring(200), tx_size=60)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            await raised(ValueError, link.publish(b"m", bytes(100), confirm=True))
            equal(client.outage.count, 0)

    to_end(main())


@check
def a_stamp_tells_when_it_was_and_which_one():
    async def main():
        ring = Ring(500, stamp=lambda payload, number, seconds: b"%d " % number + payload)
        client, stream = fmqp(outage=ring)
        client.publish(b"m", b"first", confirm=True)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for _ in range(3):  # like the last one, but for the stamp
                await link.publish(b"m", b"second", confirm=True)
                await link.publish(b"m", b"plain.", confirm=False)
            await link.until(lambda: not ring.count, _SOON_MS)
            sent = stream.take()
            for want in (b"1 first", b"2 second", b"3 plain.", b"4 second", b"5 plain."):
                equal(publication(b"m", want) in sent, True, repr(sent))

    to_end(main())


run()
