"""mqtt_as, as its documentation says; messages by its callback. Its loop runs while it is asked.

It wants a board's Wi-Fi, which is up here: module ``network`` beside this one.
"""

import asyncio

from counting import Counting
from mqtt_as import MQTTClient, config
from traffic import TOPIC

FRAME = 4


class Client:
    """One client; ``count`` messages have come."""

    buffers = 0

    def __init__(self, port, counted=False, keepalive=0):
        self.count = 0
        self._counted = counted
        self._wanted = -1
        self._enough = asyncio.Event()
        self._publishing = None
        self._lost = False
        options = config.copy()
        options.update(
            client_id=b"bench",
            server="127.0.0.1",
            port=port,
            keepalive=keepalive or 60,
            response_time=2 if keepalive else 10,  # s
            subs_cb=self._handle,
            wifi_coro=self._told,
        )
        self.client = MQTTClient(options)
        self._run = asyncio.get_event_loop().run_until_complete

    def connect(self):
        self._run(self._connect())
        if self._counted:
            self.stream = self.client._sock = Counting(self.client._sock)

    async def _connect(self):
        await self.client.connect(quick=True)  # it does not watch the Wi-Fi for 5 s first
        await self.client.subscribe(TOPIC)

    async def _told(self, is_up):
        self._lost = not is_up
        if self._lost and self._publishing:
            self._publishing.cancel()  # or it would wait for the next link

    def _handle(self, topic, payload, retained):
        self.count += 1
        if self.count == self._wanted:
            self._enough.set()

    def publish(self, topic, payload, count=1):
        self._run(self._publish(topic, payload, count))

    async def _publish(self, topic, payload, count):
        publish = self.client.publish
        self._publishing = asyncio.current_task()
        try:
            for _ in range(count):
                await publish(topic, payload)
        except asyncio.CancelledError:
            pass
        self._publishing = None
        if self._lost:
            raise OSError("lost")

    def publish_in_turn(self, topics, payload, count):
        """Publish to one topic after the other, ``count`` in all."""
        self._run(self._publish_in_turn(topics, payload, count // len(topics)))

    async def _publish_in_turn(self, topics, payload, count):
        publish = self.client.publish
        for _ in range(count):
            for topic in topics:
                await publish(topic, payload)

    def receive_until(self, count):
        if self.count < count:
            self._wanted = count
            self._enough.clear()
            self._run(self._enough.wait())

    def watch(self, ms):
        """Be a subscriber for so long."""
        self._run(self._watch(ms))

    async def _watch(self, ms):
        for _ in range(ms // 100):
            await asyncio.sleep_ms(100)
            if self._lost:
                raise OSError("lost")

    def close(self):
        self._run(self.client.disconnect())
