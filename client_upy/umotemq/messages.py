"""Subscriptions under asyncio, a queue of messages each. umotemq.aio imports it for them."""

import asyncio


async def subscribe(link, topic, handler, options):
    """What Aio.subscribe does."""
    if not callable(handler):
        from umotemq.mistakes import throw

        throw("handler", handler)
    await link._flush()
    messages = Messages(link, topic, **options)
    _forget(link, topic, messages._feedback)
    key = link.client._normalised(topic), messages._feedback
    link._served[key] = asyncio.create_task(messages._call(handler, key))
    await link._flush()


async def unsubscribe(link, topic, kind):
    """What Aio.unsubscribe does."""
    try:
        await link.do(link.client.unsubscribe, topic, **kind)
    finally:
        _forget(link, topic, True in kind.values())


def _forget(link, topic, feedback):
    task = link._served.pop((link.client._normalised(topic), feedback), None)
    if task and task is not asyncio.current_task():
        task.cancel()  # a handler's own ends when it has returned


class Messages:
    """What Aio.messages returns."""

    dropped = 0

    def __init__(self, link, topic, queue=8, newest=False, **options):
        self._link = link
        self._topic = topic
        self._size = queue
        self._newest = newest
        self._queue = []
        if "raw" in options:
            raise TypeError("no option raw")  # what waits is a copy
        queued = options.get("queued")
        if queued:
            from umotemq.queued import Held

            self._queue = Held(link, topic)
            self._size = -1  # nothing gives way
        link.client.subscribe(topic, self._put, **options)
        if queued:
            self._queue.begin()
        options.pop("filter", None)
        self._kind = options
        self._feedback = True in options.values()  # or another kind, for protocols that have one

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *_):
        if not self._link._failed:
            await self.close(not kind)

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

    async def close(self, finished=True):
        """Unsubscribe. ``finished``: with the message of a MicroMsg2 queue that came last."""
        if finished:
            bool(self._queue)  # as whoever asks for the next one
        await unsubscribe(self._link, self._topic, self._kind)
        self._queue.clear()

    def _put(self, topic, payload):
        queue = self._queue
        if len(queue) == self._size:
            self.dropped += 1
            if self._newest:
                return
            queue.pop(0)
        queue.append((topic, payload))

    async def _call(self, handler, key):
        # Call it for each message, and await what it returns if that is a coroutine.
        served = self._link._served
        me = served[key]
        try:
            async for topic, payload in self:
                result = handler(topic, payload)
                if hasattr(result, "send"):
                    await result
                if served.get(key) is not me:
                    break  # it has unsubscribed itself
        except Exception as error:
            self._link._fail(error)
        finally:
            self._queue.clear()
