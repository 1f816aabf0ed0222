"""For asyncio: the same clients, driven by tasks.

    client = FmqpClient(Tcp("192.168.1.2", 8765))
    async with Aio(client) as link:
        await link.connect()
        await link.publish(b"home/door", b"open")
        async for topic, payload in link.messages(b"home/*/lamp"):
            print(topic, payload)

The watcher opens the link and does what is due; while there is a stream, the reader waits for
what comes, and the writer, if the stream is full, for room. Only they wait for the stream.
"""

import asyncio
from time import ticks_add, ticks_diff, ticks_ms, ticks_us

from umotemq.link import LinkError, LinkTimeout, NoAnswer

try:
    from asyncio.core import _io_queue  # noqa: F401

    def _readable(stream):
        yield asyncio.core._io_queue.queue_read(stream)

    def _writable(stream):
        yield asyncio.core._io_queue.queue_write(stream)

except ImportError:
    from umotemq._cpython import readable as _readable
    from umotemq._cpython import writable as _writable


class Aio:
    """Drives ``client`` while the block lasts; its methods are for many tasks at once.

    Handlers are called by the driving tasks: they must not wait, and what they publish must fit
    the transmit buffer (or the ``outage``). What a handler raises ends the block, as does a lost
    link if ``retry_ms`` is 0.
    """

    def __init__(self, client):
        self.client = client
        self.failed = None
        self._reader = self._writer = None
        self._news = asyncio.Event()
        self._turn = 0

    async def __aenter__(self):
        client = self.client
        client._push = client._flush  # one try: the waiting is done here
        self._drop = client._drop
        client._drop = self._dropped
        self._owner = asyncio.current_task()
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_):
        self.failed = self.failed or False
        self.client.close()
        self._watcher.cancel()
        await asyncio.sleep_ms(0)
        if self.failed:
            raise self.failed

    # ---- for any task ----

    async def connect(self, timeout_ms=10000):
        """Return once the link is up. Raises the LinkError that kept it down."""
        until = ticks_add(ticks_ms(), timeout_ms)
        while not self.client.up:
            await self._await(until, self.client.error)

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
            await asyncio.sleep_ms(0)  # or nothing else would run while the stream has room

    async def do(self, method, *args, **kwargs):
        """Call a method of the client that sends and does not wait: subscribe, unsubscribe."""
        await self.flush()
        method(*args, **kwargs)
        await self.flush()

    async def flush(self):
        """Return when everything was handed to the stream. Raises LinkError."""
        client = self.client
        stream = client.stream
        until = ticks_add(ticks_ms(), client.timeout_ms)
        while client._last:
            self._write_on()
            if ticks_diff(until, ticks_ms()) <= 0:
                client._fail("send", "the peer stopped reading", LinkTimeout)
            await self._await(until)
            if client.stream is not stream:
                if client.outage is None:
                    raise client.error or LinkError("send", "the link was lost")
                return

    async def ping(self, timeout_ms=5000):
        """Return the round trip in µs, as the client's ``ping``. Raises NoAnswer, LinkError."""
        client = self.client
        until = ticks_add(ticks_ms(), timeout_ms)
        await self.flush()
        client._need_up()
        start = ticks_us()
        client._keepalive()
        number = client._asking
        connects = client.connects
        await self.flush()
        # Others ask too: an answer to a later one will do.
        while client._answered is None or client._answered - number & 0xFFFF > 0x7FFF:
            client._need_up()
            await self._await(until)
            if client.connects != connects:
                raise LinkError("receive", "the link was lost")
        return ticks_diff(ticks_us(), start)

    async def send(self, data, timeout_ms=5000):
        """As LightmqClient.send."""
        client = self.client
        until = ticks_add(ticks_ms(), timeout_ms)
        await self.flush()
        client._need_up()
        waiting = client._waiting
        number = client._post(data, None)
        try:
            while waiting[number] is None:
                if waiting is not client._waiting:
                    raise LinkError("receive", "the link was lost")
                client._need_up()
                await self._await(until)
            return waiting[number]
        finally:
            waiting.pop(number, None)

    async def post(self, data, timeout_ms=5000):
        """As LightmqClient.post."""
        client = self.client
        until = ticks_add(ticks_ms(), timeout_ms)
        while client.up and len(client._waiting) >= client.window:
            await self._await(until)
        await self.do(client._post, data, False)

    def messages(self, topic, queue=8, newest=False, feedback=False):
        """Subscribe; return an asynchronous iterator over (topic, payload).

        At most ``queue`` messages wait in it. Full: the oldest give way, or with ``newest`` the
        new one does; its ``dropped`` counts them.
        """
        return Messages(self, topic, queue, newest, feedback)

    # ---- inside ----

    async def _await(self, until, error=None):
        # Return when there is any news.
        left = ticks_diff(until, ticks_ms())
        if self.failed:
            raise self.failed
        if left <= 0:
            raise error or NoAnswer("no answer in time")
        self._news.clear()
        try:
            await asyncio.wait_for_ms(self._news.wait(), left)
        except asyncio.TimeoutError:
            pass

    def _step(self):
        client = self.client
        count = 0
        try:
            count = client._step()
        except Exception as error:
            if error is not client.error or not client.retry_ms:
                self._fail(error)
        self._write_on()
        self._news.set()
        return count

    def _fail(self, error):
        if self.failed is None:
            self.failed = error
            self._owner.cancel()

    def _write_on(self):
        if self.client._last and not self._writer:
            self._writer = asyncio.create_task(self._write())

    def _dropped(self):
        # The client's _drop. Nobody may wait for a stream that is closed.
        me = asyncio.current_task()
        for task in (self._reader, self._writer, self._watcher):
            if task and task is not me:
                task.cancel()
        self._reader = self._writer = None
        self._drop()
        self._news.set()
        if self._watcher is not me and self.failed is None:
            self._watcher = asyncio.create_task(self._watch())

    async def _watch(self):
        client = self.client
        while self.failed is None:
            self._step()
            if client.stream and not self._reader:
                self._reader = asyncio.create_task(self._read())
            self._wake = client._due
            await asyncio.sleep_ms(max(ticks_diff(client._due, ticks_ms()), 0))

    async def _read(self):
        client = self.client
        stream = client._pollable
        me = asyncio.current_task()
        while self._reader is me and self.failed is None:
            if self._step():
                await asyncio.sleep_ms(0)
            elif self._reader is me and not client._more:
                if ticks_diff(self._wake, client._due) > 0:
                    self._watcher.cancel()
                    self._watcher = asyncio.create_task(self._watch())
                await (_readable(stream) if stream else asyncio.sleep_ms(1))

    async def _write(self):
        client = self.client
        stream = client._pollable
        me = asyncio.current_task()
        while self._writer is me and client._last:
            await (_writable(stream) if stream else asyncio.sleep_ms(1))
            try:
                client._flush()
            except LinkError:
                pass  # the watcher opens it again
        if self._writer is me:
            self._writer = None
        self._news.set()


class Messages:
    """What Aio.messages returns."""

    def __init__(self, link, topic, queue, newest, feedback):
        self.dropped = 0
        self._link = link
        self._topic = topic
        self._most = queue
        self._newest = newest
        self._feedback = feedback
        self._queue = None

    def __aiter__(self):
        return self

    async def __anext__(self):
        link = self._link
        if self._queue is None:
            self._queue = []
            await link.do(link.client.subscribe, self._topic, self._put, self._feedback)
        while not self._queue:
            if link.failed is not None:
                raise link.failed or StopAsyncIteration
            link._news.clear()
            await link._news.wait()
        return self._queue.pop(0)

    def _put(self, topic, payload):
        queue = self._queue
        if len(queue) == self._most:
            self.dropped += 1
            if self._newest:
                return
            queue.pop(0)
        queue.append((topic, payload))
