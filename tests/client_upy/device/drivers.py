"""The two drivers behind one set of coroutines; the last argument, sync or aio, chooses."""

import asyncio
import sys
import time

from checks import is_kind

_AIO = sys.argv[-1] == "aio"
_LONG = 60000  # ms, for what must come in the end


class Changeable:
    """A transport that another one can take the place of."""

    def __init__(self, first):
        self.target = first
        self.where = "changeable"

    def open(self):
        return self.target.open()


class Sync:
    """The client's own driver, with the coroutines of the other one: none of them ever waits."""

    def __init__(self, client):
        self.client = client

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.client.close()

    async def until(self, condition, ms=_LONG):
        start = time.ticks_ms()
        while not condition():
            if time.ticks_diff(time.ticks_ms(), start) > ms:
                raise AssertionError("not within %d ms; %s" % (ms, self.client.error))
            self.client.poll(10)

    async def connect(self, ms):
        self.client.connect(timeout_ms=ms)

    async def publish(self, topic, payload, **flags):
        self.client.publish(topic, payload, **flags)

    async def post(self, data, timeout_ms, **flags):
        self.client.post(data, timeout_ms, **flags)

    async def flush(self, timeout_ms):
        self.client.flush(timeout_ms)

    async def rest(self, ms):
        self.client.run(ms)

    async def send(self, data, timeout_ms):
        return self.client.send(data, timeout_ms)

    async def ping(self, timeout_ms):
        return self.client.ping(timeout_ms)


class Tasks:
    """umotemq.aio."""

    def __init__(self, client):
        from umotemq.aio import Aio

        self.client = client
        self._link = Aio(client)
        self.publish = self._link.publish
        self.send = self._link.send
        self.post = self._link.post
        self.flush = self._link.flush
        self.ping = self._link.ping

    async def __aenter__(self):
        await self._link.__aenter__()
        return self

    async def __aexit__(self, *_):
        await self._link.__aexit__(None, None, None)

    async def connect(self, ms):
        await self._link.connect(timeout_ms=ms)

    async def rest(self, ms):
        await asyncio.sleep_ms(ms)

    async def until(self, condition, ms=_LONG):
        start = time.ticks_ms()
        while not condition():
            if time.ticks_diff(time.ticks_ms(), start) > ms:
                raise AssertionError("not within %d ms; %s" % (ms, self.client.error))
            await asyncio.sleep_ms(5)


def to_end(coroutine):
    if _AIO:
        asyncio.run(coroutine)
        asyncio.new_event_loop()  # MicroPython: forget the tasks of a check that failed
        return
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("the synchronous driver waited")


def tasks_left():
    """Return how many tasks there are besides the one that asks; by the synchronous driver none."""
    if not _AIO:
        return 0
    if hasattr(asyncio, "all_tasks"):
        return len(asyncio.all_tasks()) - 1
    waiting = asyncio.core._task_queue
    streams = getattr(asyncio.core, "_io_queue", None)  # Node has none
    count = len(streams.map) if streams else 0
    held = []
    while waiting.peek():
        held.append(waiting.pop())
    for task in held:
        when = task.ph_key
        data = task.data
        waiting.push(task, when)
        task.data = data
    return count + len(held)


async def raised(kind, awaitable):
    """Await; return the exception that this must raise, as ``checks.raises``."""
    try:
        await awaitable
    except Exception as error:
        return is_kind(error, kind)
    raise AssertionError("%s was not raised" % (kind,))


Driver = Tasks if _AIO else Sync
