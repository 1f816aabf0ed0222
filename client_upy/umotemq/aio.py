"""For asyncio: the same clients, driven by tasks.

    client = FmqpClient(Tcp("192.168.1.2", 8765))
    async with Aio(client) as link:
        await link.connect()
        await link.publish("home/door", "open")
        async with link.messages("home/*/lamp") as lamps:
            async for topic, payload in lamps:
                print(topic, payload)

Two tasks drive the client. The watcher opens the link, does what is due, and keeps the time for
whoever waits; while there is a stream, the reader waits for what comes. Whoever sends writes by
itself; if the stream is full, it offers the rest every few milliseconds.

Why so long: the driver is one class, for every protocol.
"""

import asyncio
from asyncio import sleep_ms

from umotemq.link import LinkError, ticks_add, ticks_diff, ticks_ms


def _readable(stream):
    yield asyncio.core._io_queue.queue_read(stream)


class Aio:
    """Drives ``client`` while the block lasts; its methods are for many tasks at once.

    Handlers given to the client itself are called by the driving tasks: they must not wait, and
    what they publish must fit the transmit buffer (or the ``outage``). Those given to
    ``subscribe`` here may be coroutine functions. What a handler raises ends the block, as does a
    lost link if ``retry_ms`` is 0. The block may be entered again when it has ended.
    """

    def __init__(self, client):
        self.client = client
        self._failed = None  # what ends the block
        self._reader = None
        self._news = asyncio.Event()  # messages, an answer; the link is up, or lost; time is up
        self._until = None  # when whoever waits for news has to be woken at the latest
        self._replan = asyncio.Event()  # what is due may have changed
        self._turn = 0
        self._served = {}  # (topic, feedback): the task that calls the handler

    async def __aenter__(self):
        client = self.client
        self._failed = None
        self._owner = asyncio.current_task()
        self._cancels = 0  # how often it was cancelled from here
        client._blocking = False
        client._on_drop.append(self._dropped)
        if client._due is None:
            client._drop(None, 0)
        self._watcher = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_):
        failed = self._failed
        self._failed = failed or StopAsyncIteration()
        client = self.client
        try:
            client.close()
        finally:
            # It is the program's again, and nothing of ours is left to run.
            client._on_drop.remove(self._dropped)
            client._blocking = True
            for task in self._served.values():
                task.cancel()
            self._served.clear()
            try:
                await self._watcher  # ends by itself: cancelled, it would leave what it waits in
            except asyncio.CancelledError:
                # On MicroPython by what the program waited in, if that was ``wait_for``.
                if not failed:
                    raise
        if failed:
            raise failed

    @property
    def up(self):
        """Whether there is a link."""
        return self.client.up

    # ---- for any task ----

    async def connect(self, *, timeout_ms=10000):
        """Return once the link is up. Raises the LinkError that kept it down."""
        while not self.client.up:
            timeout_ms = await self._await(timeout_ms, False)

    async def publish(self, topic, payload, **flags):
        """As FmqpClient.publish; returns when the stream, or the ``outage``, has taken it."""
        # The least that a coroutine can hold: each local, and each argument of what it calls, takes
        # heap for every message.
        if flags or self.client._last:
            await self._publish(topic, payload, flags)
        else:
            self.client.publish(topic, payload)
            if self.client._last:
                await self._flush()
        self._turn = self._turn + 1 & 15
        if not self._turn:
            await sleep_ms(0)  # or nothing else would run while the stream has room

    async def subscribe(self, topic, handler, **options):
        """Subscribe; ``handler(topic, payload)`` is called, and awaited if it is a coroutine's.

        For one message after the other, by a task of its own. The options: those of ``messages``.
        What the handler raises ends the block.
        """
        import umotemq.messages

        await umotemq.messages.subscribe(self, topic, handler, options)

    async def unsubscribe(self, topic, **kind):
        """Take back ``subscribe``, or ``messages``, of the same topic."""
        import umotemq.messages

        await umotemq.messages.unsubscribe(self, topic, kind)

    async def do(self, method, *args, **kwargs):
        """Call a method of the client that sends and does not wait, as ``publish_from``."""
        outage = self.client.outage
        if outage is not None and kwargs.get("confirm"):
            await outage.wait_for_room(self)
        await self._flush()
        method(*args, **kwargs)
        await self._flush()

    async def flush(self, timeout_ms=5000):
        """Return when everything was handed to the stream; of LightMQ as LightmqClient.flush.

        Raises LinkError.
        """
        client = self.client
        await self._flush()
        if hasattr(client, "_posts"):
            while client._posts and timeout_ms > 0:
                timeout_ms = await self._await(timeout_ms, True)
            client._tell_unanswered()

    async def ping(self, timeout_ms=5000):
        """Return the round trip in µs, as the client's ``ping``. Raises LinkError."""
        import umotemq.ping

        return await umotemq.ping.ping_by_tasks(self, timeout_ms)

    async def send(self, data, timeout_ms=5000):
        """As LightmqClient.send."""
        client = self.client
        await self._flush()
        number = client._post(data)
        sends = client._sends
        try:
            while sends[number] is None:
                timeout_ms = await self._await(timeout_ms, True)
            return sends[number]
        finally:
            sends.pop(number, None)

    async def post(self, data, timeout_ms=5000, *, confirm=False):
        """As LightmqClient.post."""
        client = self.client
        while client._has_to_wait(timeout_ms):
            timeout_ms = await self._await(timeout_ms, True)
        await self.do(client._post, data, confirm=confirm)

    def messages(self, topic, **options):
        """Subscribe; return an asynchronous iterator over (topic, payload).

        ``queue``: at most so many messages wait in it, 8. Full: the oldest give way, or with
        ``newest`` the new one does; its ``dropped`` counts them. ``feedback``, ``queued``,
        ``filter``: as of the client's ``subscribe``. As a context manager, ``async with``, it
        unsubscribes at the end of the block; ``await messages.close()`` does, too.
        """
        import umotemq.messages

        return umotemq.messages.Messages(self, topic, **options)

    # ---- inside ----

    async def _flush(self):
        # Return when everything was handed to the stream. Raises LinkError.
        client = self.client
        stream = client.stream
        while client._last and client.stream is stream:
            if not client._flush():
                self._replan.set()
                await sleep_ms(4)
            elif client._last:  # the next piece of a long message
                await sleep_ms(0)
        if client.stream is not stream and client.outage is None:
            raise client.error or LinkError("lost", client.transport.where)

    async def _publish(self, topic, payload, flags):
        await self.do(self.client.publish, topic, payload, **flags)

    async def _await(self, ms, up):
        # Return when there is any news: what is left of ``ms``. The watcher keeps the time: on
        # MicroPython a task that is cancelled in ``wait_for_ms`` may be cancelled once more, in
        # what it does next.
        client = self.client
        # Outside the block there is no watcher.
        if ms <= 0 or client.up != up or self._failed or client._blocking:
            raise client.error or self._failed or LinkError("timeout")
        until = ticks_add(ticks_ms(), ms)
        if self._until is None or ticks_diff(until, self._until) < 0:
            self._until = until
        self._news.clear()
        self._replan.set()
        await self._news.wait()
        return ticks_diff(until, ticks_ms())

    def _wake(self):
        # Wake whoever waits; it waits again, and says until when, if this is not what it waits for.
        self._until = None
        self._news.set()

    def _fail(self, error):
        # End the block. Only tasks of ours come here, never the one that is cancelled.
        if not self._failed:
            self._failed = error
            self._cancels = 1
            self._owner.cancel()
        self._wake()

    def _step(self):
        client = self.client
        count = 0
        up = client.up
        try:
            count = client._step()
        except Exception as error:
            if error is not client.error or client._due is None:
                self._fail(error)
        if count or client.up != up:
            self._wake()  # not each time: who waits has a step done, and so would ask for the next
        return count

    def _dropped(self):
        # Nobody may wait for a stream that is closed.
        reader = self._reader
        self._reader = None
        if reader and reader is not asyncio.current_task():
            reader.cancel()
        self._wake()
        self._replan.set()

    async def _watch(self):
        client = self.client
        while not self._failed:
            self._replan.clear()
            count = self._step()
            if client.stream and not self._reader:
                self._reader = asyncio.create_task(self._read())
            now = ticks_ms()
            self._planned = client._due or now
            left = ticks_diff(self._planned, now)
            if self._until is not None:
                left = min(left, ticks_diff(self._until, now))
                if left <= 0:
                    self._wake()
            if count or client._last:
                left = min(left, 1)  # more may be in the buffer; what waits nobody else may offer
            if left > 0:
                try:
                    await asyncio.wait_for_ms(self._replan.wait(), left)
                except asyncio.TimeoutError:
                    pass
            else:
                await sleep_ms(0)
        # Is the block left? MicroPython loses a cancellation that comes while a wait_for ends.
        start = ticks_ms()
        while not client._blocking:
            await sleep_ms(10)
            if ticks_diff(ticks_ms(), start) >= client.timeout_ms:
                start = ticks_ms()
                self._cancels += 1
                self._owner.cancel()

    async def _read(self):
        client = self.client
        stream = client._fd
        me = asyncio.current_task()
        while self._reader is me and not self._failed:
            if self._step():
                await sleep_ms(0)
            elif self._reader is me:
                if client._due is None or ticks_diff(self._planned, client._due) > 0:
                    self._replan.set()
                if client._last or not stream:
                    await sleep_ms(1)
                else:
                    await _readable(stream)
