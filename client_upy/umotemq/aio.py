"""For asyncio: the same clients, driven by tasks.

    client = FmqpClient(Tcp("192.168.1.2", 8765))
    async with Aio(client) as link:
        await link.connect()
        await link.publish(b"home/door", b"open")
        async for topic, payload in link.messages(b"home/*/lamp"):
            print(topic, payload)

The watcher opens the link and does what is due; while there is a stream, the reader waits for
what comes. If the stream is full, it is offered the rest every few milliseconds.
"""

import asyncio
import sys
from asyncio import sleep_ms

from umotemq.link import LinkError, ticks_diff, ticks_ms, ticks_us

if sys.implementation.name != "micropython":
    from umotemq._cpython import readable as _readable
else:

    def _readable(stream):
        yield asyncio.core._io_queue.queue_read(stream)


class Aio:
    """Drives ``client`` while the block lasts; its methods are for many tasks at once.

    Handlers are called by the driving tasks: they must not wait, and what they publish must fit
    the transmit buffer (or the ``outage``). What a handler raises ends the block, as does a lost
    link if ``retry_ms`` is 0.
    """

    def __init__(self, client):
        self.client = client
        self._failed = None
        self._reader = None
        self._news = asyncio.Event()
        self._turn = 0

    async def __aenter__(self):
        client = self.client
        client._wait = type  # always true: who sends does not wait
        self._end = client._drop
        client._drop = self._drop
        self._owner = asyncio.current_task()
        self._watcher = asyncio.create_task(self._wait())
        return self

    async def __aexit__(self, *_):
        failed = self._failed
        self._failed = failed or StopAsyncIteration
        client = self.client
        client.close()
        # It is the program's again.
        del client._wait
        client._drop = self._end
        self._watcher.cancel()
        await sleep_ms(0)
        if failed:
            raise failed

    # ---- for any task ----

    async def connect(self, timeout_ms=10000):
        """Return once the link is up. Raises the LinkError that kept it down."""
        while not self.client.up:
            timeout_ms = await self._await(timeout_ms, False)

    async def publish(self, topic, payload, cache=False, will=False, again=False):
        """As FmqpClient.publish; returns when the stream, or the ``outage``, has taken it."""
        client = self.client
        if client._last:
            await self.flush()
        client.publish(topic, payload, cache, will, again)
        if client._last:
            await self.flush()
        self._turn = self._turn + 1 & 15
        if not self._turn:
            await sleep_ms(0)  # or nothing else would run while the stream has room

    async def do(self, method, *args, **kwargs):
        """Call a method of the client that sends and does not wait: subscribe, unsubscribe."""
        await self.flush()
        method(*args, **kwargs)
        await self.flush()

    async def flush(self):
        """Return when everything was handed to the stream. Raises LinkError."""
        client = self.client
        stream = client.stream
        while client._last:
            self._step()
            await sleep_ms(4 if client._last else 0)
        if client.stream is not stream and client.outage is None:
            raise client.error or LinkError("lost")

    async def ping(self, timeout_ms=5000):
        """Return the round trip in µs, as the client's ``ping``. Raises LinkError."""
        client = self.client
        await self.flush()
        client._push()
        start = ticks_us()
        client._ask(True)
        number = client._ping
        await self.flush()
        # Others ask too: an answer to a later one will do. LightMQ's SENDs take numbers, too.
        while client._pong is None or client._pong - number & 0xFF > client._ping - number & 0xFF:
            timeout_ms = await self._await(timeout_ms, True)
        return ticks_diff(ticks_us(), start)

    async def send(self, data, timeout_ms=5000):
        """As LightmqClient.send."""
        client = self.client
        await self.flush()
        number = client._post(data, False)
        waiting = client._waiting
        try:
            while waiting[number] is False:
                timeout_ms = await self._await(timeout_ms, True)
            return waiting[number]
        finally:
            waiting.pop(number, None)

    async def post(self, data, timeout_ms=5000):
        """As LightmqClient.post."""
        client = self.client
        while client.up and len(client._waiting) >= client.window:
            timeout_ms = await self._await(timeout_ms, True)
        await self.do(client._post, data, True)

    def messages(self, topic, queue=8, newest=False, feedback=False):
        """Subscribe; return an asynchronous iterator over (topic, payload).

        At most ``queue`` messages wait in it. Full: the oldest give way, or with ``newest`` the
        new one does; its ``dropped`` counts them.
        """
        messages = Messages(self, queue, newest)
        self.client.subscribe(topic, messages._put, feedback)
        return messages

    # ---- inside ----

    async def _await(self, ms, up):
        # Return when there is any news: what is left of ``ms``.
        client = self.client
        if ms <= 0 or client.up != up or self._failed:
            raise client.error or self._failed or LinkError("timeout")
        start = ticks_ms()
        self._news.clear()
        try:
            await asyncio.wait_for_ms(self._news.wait(), ms)
        except asyncio.TimeoutError:
            pass
        return ms - ticks_diff(ticks_ms(), start)

    def _step(self):
        client = self.client
        count = 0
        try:
            count = client._step()
        except Exception as error:
            if error is not client.error or client._due is None:
                if not self._failed:
                    self._failed = error
                    self._owner.cancel()
        self._news.set()
        return count

    def _drop(self):
        # Before the client's own: nobody may wait for a stream that is closed.
        reader = self._reader
        self._reader = None
        if reader and reader is not asyncio.current_task():
            reader.cancel()
        self._end()
        self._news.set()
        self._rewatch()

    def _rewatch(self):
        # What is due has changed.
        if self._watcher is not asyncio.current_task() and not self._failed:
            self._watcher.cancel()
            self._watcher = asyncio.create_task(self._wait())

    async def _wait(self):
        client = self.client
        while not self._failed:
            self._step()
            if client.stream and not self._reader:
                self._reader = asyncio.create_task(self._take())
            self._due = client._due or ticks_ms()
            await sleep_ms(ticks_diff(self._due, ticks_ms()))

    async def _take(self):
        client = self.client
        stream = client._fd
        me = asyncio.current_task()
        while self._reader is me and not self._failed:
            if self._step():
                await sleep_ms(0)
            elif self._reader is me:
                if ticks_diff(self._due, client._due) > 0:
                    self._rewatch()
                if client._last or not stream:
                    await sleep_ms(1)
                else:
                    await _readable(stream)


class Messages:
    """What Aio.messages returns."""

    dropped = 0

    def __init__(self, client, queue, newest):
        self._link = client
        self._size = queue
        self._newest = newest
        self._queue = []

    def __aiter__(self):
        return self

    async def __anext__(self):
        link = self._link
        while not self._queue:
            if link._failed:
                raise link._failed
            link._news.clear()
            await link._news.wait()
        return self._queue.pop(0)

    def _put(self, topic, payload):
        queue = self._queue
        if len(queue) == self._size:
            self.dropped += 1
            if self._newest:
                return
            queue.pop(0)
        queue.append((topic, payload))
