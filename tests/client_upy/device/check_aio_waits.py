"""Tasks that wait for the link or for an answer: what that costs, and how it ends; in memory."""

import asyncio
import io
import time

from checks import Blocked, check, equal, publication, run
from clients_in_memory import broker, named, ping
from drivers import raised, tasks_left

from umotemq.aio import Aio
from umotemq.lightmq import LightmqClient

_SOON_MS = 3000
_OPEN = []


class Never(getattr(io, "IOBase", object)):
    """What ``select`` never finds readable, on MicroPython."""

    def ioctl(self, request, argument):
        return 0 if request == 3 else -1  # asked whether it is; anything else it cannot do


def never_readable():
    """Return something to wait for in vain, as for bytes that were read already."""
    try:
        import socket

        pair = socket.socketpair()
    except (ImportError, AttributeError):
        return Never()
    _OPEN.append(pair)  # closed, the other end would make it readable
    return pair[0]


def ran(coroutine):
    asyncio.run(asyncio.wait_for(coroutine, 60))
    asyncio.new_event_loop()  # MicroPython: forget the tasks of a check that failed


async def soon(done):
    start = time.ticks_ms()
    while not done():
        if time.ticks_diff(time.ticks_ms(), start) > _SOON_MS:
            raise AssertionError("not in time")
        await asyncio.sleep_ms(2)


def processor_ms():
    """Return how long this program has had a processor; on a board nobody counts that."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[0]) // 1000000
    except OSError:
        return 0


def counted(client):
    """Return a list of one number, which counts the steps of the client."""
    step = client._step
    steps = [0]

    def one():
        steps[0] += 1
        return step()

    client._step = one
    return steps


@check
def who_waits_lets_the_processor_rest():
    """The most is a step a millisecond, if nothing tells when the stream can be read."""

    async def main(pollable, steps_a_ms):
        client, stream = named(timeout_ms=_SOON_MS)
        stream.pollable = pollable
        steps = counted(client)

        async def rests(wait):
            steps[0] = 0
            start = time.ticks_ms()
            before = processor_ms()
            await raised("timeout", wait)
            used = processor_ms() - before
            took = time.ticks_diff(time.ticks_ms(), start)
            most = 20 + steps_a_ms * took
            equal(steps[0] <= most, True, "%d steps in %d ms" % (steps[0], took))
            equal(used <= 200, True, "%d of %d ms of processor" % (used, took))

        async with Aio(client) as link:
            stream.answer = None
            await rests(link.connect(timeout_ms=400))
            stream.feed(ping(1))
            await link.connect(timeout_ms=_SOON_MS)
            await rests(link.ping(400))

    ran(main(None, 2))
    ran(main(never_readable(), 0))


@check
def each_wait_ends_when_it_said():
    """The shortest first or last, and also if others are answered meanwhile."""

    async def main():
        client, stream = named(timeout_ms=_SOON_MS)
        took = {}

        async def waiting(link, ms):
            start = time.ticks_ms()
            await raised("timeout", link.ping(ms))
            took[ms] = time.ticks_diff(time.ticks_ms(), start)

        async with Aio(client) as link:
            await link.connect()
            for order in ((40, 160, 80), (160, 80, 40)):
                stream.answer = None
                took.clear()
                tasks = [asyncio.create_task(waiting(link, ms)) for ms in order]
                for _ in range(3):
                    await asyncio.sleep_ms(20)
                    stream.feed(publication(b"nobody", b"x"))
                for task in tasks:
                    await task
                for ms in order:
                    equal(ms - 1 <= took[ms] <= ms + 1000, True, "%r" % took)
                stream.answer = broker
                await link.ping(_SOON_MS)

    ran(main())


@check
def who_is_cancelled_while_it_waits_can_clean_up():
    """On MicroPython a ``wait_for_ms`` that is cancelled may cancel its task once more."""

    async def main():
        client, stream = named(timeout_ms=_SOON_MS)
        cleaned = []

        async def waiting(link):
            try:
                await link.ping(10000)
            finally:
                for _ in range(5):
                    await asyncio.sleep_ms(1)
                cleaned.append(0)

        async with Aio(client) as link:
            await link.connect()
            stream.answer = None
            for count in range(1, 6):
                task = asyncio.create_task(waiting(link))
                await asyncio.sleep_ms(count)
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    pass
                equal(len(cleaned), count)

    ran(main())


@check
def nobody_waits_for_ever_outside_the_block():
    async def main():
        client, _ = named(timeout_ms=_SOON_MS)
        link = Aio(client)
        await asyncio.wait_for_ms(raised("timeout", link.connect(timeout_ms=100)), _SOON_MS)
        async with link:
            await link.connect()
            await link.ping(_SOON_MS)
        for wait in (link.connect, link.ping):
            await asyncio.wait_for_ms(raised("closed", wait(timeout_ms=100)), _SOON_MS)

    ran(main())


class Odd(Exception):
    """What a handler raises here."""


def odd(*_):
    raise Odd()


@check
def what_ends_the_block_is_raised_whatever_its_task_waits_for():
    async def ended(wait, ms):
        client, stream = named(timeout_ms=_SOON_MS)
        client.subscribe(b"a", odd)
        async with Aio(client) as link:
            await link.connect()
            stream.answer = None
            stream.feed(publication(b"a", b"x"))
            if ms:
                link._replan.set()  # the watcher finds it, else the reader
            await wait(link)

    async def own_wait(link):
        await asyncio.wait_for_ms(link.ping(10000), 10000)

    async def own_waits(link):
        await asyncio.wait_for_ms(asyncio.wait_for_ms(link.ping(10000), 10000), 10000)

    async def in_messages(link):
        async with link.messages("b") as messages:
            await messages.__anext__()

    async def main():
        # On CPython a ``wait_for`` that is cancelled does not take what is raised in it.
        asyncio.get_event_loop().set_exception_handler(lambda *_: None)
        before = tasks_left()
        for turn in range(20):
            for wait in (
                lambda link: link.ping(10000),
                lambda link: asyncio.sleep_ms(10000),
                own_wait,
                own_waits,
                in_messages,
            ):
                try:
                    await ended(wait, turn & 1)
                    raise AssertionError("nothing was raised")
                except Odd:
                    pass
        await asyncio.sleep_ms(20)
        equal(tasks_left(), before)

    ran(main())


@check
def the_block_ends_though_a_wait_for_does_at_that_moment():
    """The cancellation is lost then, on MicroPython and CPython 3.11: another one comes."""

    async def fail(link, go, turns):
        go.set()
        for _ in range(turns):  # the wait_for hears of it by several tasks
            await asyncio.sleep_ms(0)
        link._fail(Odd())

    async def main():
        for turns in range(3):
            go = asyncio.Event()
            client, _ = named(timeout_ms=200)
            start = time.ticks_ms()
            try:
                async with Aio(client) as link:
                    await link.connect()
                    failing = asyncio.create_task(fail(link, go, turns))
                    try:
                        await asyncio.wait_for_ms(go.wait(), 10000)
                    except asyncio.CancelledError:
                        pass  # lost in any case
                    await asyncio.sleep_ms(10000)
                raise AssertionError("nothing was raised")
            except Odd:
                pass
            took = time.ticks_diff(time.ticks_ms(), start)
            equal(took < _SOON_MS, True, "%d turns, %d ms" % (turns, took))
            await failing
            async with link:  # once more
                await link.connect()

    ran(main())


@check
def what_came_with_connack_is_not_left_for_later():
    """Nor what was to be said, and was not taken: until ``timeout_ms``, or more comes."""

    async def main():
        stream = Blocked()
        stream.pollable = never_readable()
        got = []
        client = LightmqClient(stream, b"me", handler=got.append, timeout_ms=10 * _SOON_MS)
        async with Aio(client) as link:
            await soon(lambda: stream.sent)
            stream.feed(b"\x02\0\x01\0\x05\0\x04\0\x07\0x")
            await link.connect()
            await soon(lambda: got == [b"x"])
            await soon(lambda: stream.sent.endswith(b"\x06\0\x02\x00\x07"))
            stream.take()
            stream.room = 0
            stream.feed(b"\x03\0\x02\0\x09")
            link._replan.set()
            await soon(lambda: client._last)
            stream.room = 100
            await soon(lambda: stream.take() == b"\x04\0\x02\0\x09")

    ran(main())


@check
def what_is_no_handler_leaves_the_one_before():
    async def main():
        client, stream = named(timeout_ms=_SOON_MS)
        got = []
        async with Aio(client) as link:
            await link.connect()
            await link.subscribe("a", lambda topic, payload: got.append(payload))
            for wrong in (None, "print", 5):
                await asyncio.sleep_ms(1)
                try:
                    await link.subscribe("a", wrong)
                except TypeError:
                    stream.feed(publication(b"a", b"x"))
                    await soon(lambda: got)
                    got.clear()
                    continue
                raise AssertionError("%r was taken" % wrong)
            equal(len(client._standing), 1)

    ran(main())


run()
