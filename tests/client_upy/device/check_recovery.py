"""What a week on a real board meets, by both drivers; over streams in memory.

The last argument is the driver: sync or aio.
"""

import gc
import sys
import time

from checks import Blocked, Memory, check, equal, publication, run, since
from checks import now as instant
from clients_in_memory import broker, named
from drivers import Driver, raised, tasks_left, to_end

from umotemq.fmqp import FmqpClient
from umotemq.lightmq import LightmqClient
from umotemq.link import LinkError
from umotemq.outage import Ring

_SOON_MS = 3000


def lightmq(**options):
    """Return a LightMQ client that is not connected yet, and a stream that accepts it."""
    stream = Memory()
    stream.answer = lambda data: b"\x02\0\x01\0" if data[0] == 1 else b""
    return LightmqClient(stream, b"me", **options), stream


def forget(stream):
    """Lose the link of a stream in memory."""
    stream.ended = True


@check
def whatever_was_caught_the_link_comes_up_again():
    class Odd(Exception):
        pass

    def odd(*_):
        raise Odd()

    async def main():
        for name in ("alive", "on_up", "on_down", "handler"):
            client, stream = named()
            if name != "handler":
                setattr(client, name, odd)
            client.subscribe(b"a", odd if name == "handler" else print)
            for _ in range(3):
                seen = 0
                try:
                    async with Driver(client) as link:
                        await link.connect(_SOON_MS)
                        stream.feed(publication(b"a", b"x") if name == "handler" else b"")
                        await link.ping(_SOON_MS)
                        forget(stream)
                        await link.rest(300)
                except Odd:
                    seen = 1
                equal(seen, 1, name)
            client.alive = client.on_up = client.on_down = None
            client.unsubscribe(b"a")
            async with Driver(client) as link:
                await link.connect(_SOON_MS)
                await link.ping(_SOON_MS)
            equal(stream.closed, True)

    to_end(main())


@check
def a_peer_that_sends_but_reads_nothing_is_noticed():
    class Talking(Blocked):
        """Says something at every read once it has stopped reading."""

        talks = False

        def readinto(self, buffer):
            if self.talks and self.empty:
                self.feed(publication(b"x", b"y"))
            return Memory.readinto(self, buffer)

    async def main():
        stream = Talking()
        stream.answer = broker
        client = FmqpClient(stream, name=b"n", timeout_ms=300, retry_ms=10000, keepalive_ms=100)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.room = 0
            stream.talks = True
            start = instant()
            await link.until(lambda: not client.up, _SOON_MS)
            equal(client.error.args[0], "timeout")
            equal(since(start) < 100 + 300 + 1000, True, "%d ms" % since(start))

    to_end(main())


@check
def a_moment_without_room_is_no_silence():
    """Not even if a sign of life becomes due meanwhile, which nothing can ask for then."""

    async def main():
        stream = Blocked()
        stream.answer = broker
        client = FmqpClient(stream, name=b"n", timeout_ms=5000, keepalive_ms=100, retry_ms=20)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            client._blocking = False  # as whoever sends under asyncio
            stream.room = 3
            client.publish(b"a", b"x")
            await link.rest(400)
            stream.room = 1 << 20
            await link.ping(_SOON_MS)
            equal((client.up, client.connects, client.error), (True, 1, None))

    to_end(main())


@check
def what_waits_when_the_link_is_lost_is_kept():
    """By the ring, also what need not be confirmed; and what the stream has taken is no more."""

    async def main(before, is_taken):
        stream = Blocked()
        stream.answer = broker
        ring = Ring(200)
        client = FmqpClient(stream, name=b"n", outage=ring, retry_ms=20, keepalive_ms=60000)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            client._blocking = False  # as whoever sends under asyncio
            for _ in range(before):  # one like them is written where it is packed
                client.publish("a", b"0")
            stream.room = 3
            client.publish("a", b"1")
            equal((client._last > 0, ring.count), (True, 0))
            if is_taken:
                stream.room = 1 << 20
                await link.until(lambda: not client._last, _SOON_MS)
                client.subscribe("b", print)
                stream.room = 0
            forget(stream)
            await link.until(lambda: not client.up, _SOON_MS)
            equal((ring.count, ring.dropped), (0 if is_taken else 1, 0))
            stream.room = 1 << 20
            await link.until(lambda: client.up and not ring.count, _SOON_MS)
            equal(stream.take().count(publication(b"a", b"1")), 1)

    for before in (0, 2):
        for is_taken in (False, True):
            to_end(main(before, is_taken))


@check
def posts_that_were_lost_are_told():
    async def main():
        client, stream = lightmq(retry_ms=20)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(5):
                await link.post(b"%d" % n, 100)
            forget(stream)
            await link.until(lambda: client.connects == 2, _SOON_MS)
            equal(client.unanswered, 5)
            error = await raised("unanswered", link.flush(1000))
            equal(error.args[1], "5 posts")
            await link.flush(1000)  # it is told once
            await link.post(b"late", 100)
            error = await raised("unanswered", link.flush(50))
            equal((error.args[1], client.up, client.unanswered), ("1 posts", True, 6))

    to_end(main())


@check
def a_peer_that_never_answers_costs_one_wait_and_no_post():
    async def main():
        client, stream = lightmq()
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.take()
            start = instant()
            for n in range(60):
                await link.post(b"%02d" % n, 200)
            equal(since(start) < 200 + 500, True, "%d ms" % since(start))
            equal(len(stream.take()), 60 * 8)

    to_end(main())


class Leaving(Memory):
    """A broker that greets and hangs up."""

    def write(self, data):
        size = Memory.write(self, data)
        self.ended = True
        return size


@check
def a_broker_that_greets_and_hangs_up_is_left_in_peace():
    async def main():
        stream = Leaving()
        stream.answer = broker
        # A pause that is longer than ``timeout_ms`` is no link that lasted.
        client = FmqpClient(stream, name=b"n", retry_ms=20, timeout_ms=100)
        async with Driver(client) as link:
            await link.rest(1500)
        # 20, 40, 80, … 1280 ms, each shortened by half at most.
        equal(2 <= client.connects <= 8, True, "%d times" % client.connects)

    async def lasting():
        # Asked more often than it may be silent, as over a serial line.
        client, stream = named(timeout_ms=100, keepalive_ms=40, retry_ms=20)
        async with Driver(client) as link:
            for count in range(1, 8):
                await link.until(lambda count=count: client.connects == count, _SOON_MS)
                await link.rest(150)
                start = instant()
                forget(stream)
                await link.until(lambda count=count: client.connects > count, _SOON_MS)
                equal(since(start) < 300, True, "%d ms" % since(start))

    to_end(main())
    to_end(lasting())


@check
def what_was_closed_can_be_opened_again():
    async def main(retry_ms):
        client, stream = named(retry_ms=retry_ms)
        buffers = client._buf, client._out
        for count in range(1, 5):
            try:
                async with Driver(client) as link:
                    await link.connect(_SOON_MS)
                    await link.ping(_SOON_MS)
                    if count == 2:  # a loss, which without retries is final for now
                        forget(stream)
                        await link.rest(30)
                        client.close()
            except LinkError:
                equal(retry_ms, 0)
            equal(client.up, False)
            equal((client._buf is buffers[0], client._out is buffers[1]), (True, True))
        equal(client.connects >= 4, True)

    to_end(main(0))
    to_end(main(10000))


@check
def opening_again_takes_no_heap():
    async def main():
        client, stream = named()

        async def turn():
            async with Driver(client) as link:
                await link.connect(_SOON_MS)
                await link.ping(_SOON_MS)
            stream.take()

        for _ in range(3):
            await turn()
        gc.collect()
        # In Node a collection waits until JavaScript has its turn.
        counts = hasattr(gc, "mem_alloc") and sys.platform != "webassembly"
        least = 1 << 30
        for _ in range(3):  # what leaks grows in each; a collector may see a pointer too many
            before = gc.mem_alloc() if counts else 0
            for _ in range(10):
                await turn()
            gc.collect()
            least = min(least, gc.mem_alloc() - before if before else 0)
        equal(least <= 256, True, "%d bytes" % least)

    to_end(main())


@check
def what_is_closed_leaves_nothing_to_run():
    class Odd(Exception):
        pass

    def odd():
        raise Odd()

    async def main():
        client, _ = named()
        for rest_ms in (0, 1, 30):
            async with Driver(client) as link:
                await link.connect(_SOON_MS)
                await link.ping(_SOON_MS)
                await link.rest(rest_ms)
            equal(tasks_left(), 0)
        async with Driver(client):
            pass  # before anything was done
        equal(tasks_left(), 0)
        client.on_down = odd
        seen = False
        try:
            async with Driver(client) as link:
                await link.connect(_SOON_MS)
        except Odd:
            seen = True
        equal((seen, tasks_left(), client._on_drop, client._blocking), (True, 0, [], True))

    to_end(main())


@check
def run_lasts_as_long_as_it_says():
    async def main():
        client, stream = named()
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            stream.feed(publication(b"a", b"x"), 100)
            stream.step = 7
            start = instant()
            await link.rest(200)
            equal(190 < time.ticks_diff(time.ticks_ms(), start[0]), True)

    to_end(main())


@check
def up_and_down_are_told():
    told = []

    async def main():
        client, stream = named(
            on_up=lambda: told.append(("up", client.up)),
            on_down=lambda: told.append(("down", client.up, client.error.args[0])),
        )
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            forget(stream)
            await link.until(lambda: client.connects == 2, _SOON_MS)
            await link.rest(5)

    to_end(main())
    equal(told, [("up", True), ("down", False, "closed")] * 2)


run()
