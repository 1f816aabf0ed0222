"""mqtt_async, which was made of mqtt_as and has its interface. Its loop runs while it is asked.

It wants a board's Wi-Fi, which is up here, and a logger, which says nothing: modules ``network``,
``machine`` and ``logging`` beside this one. An address it resolves itself is no pair on this port.
"""

import asyncio

from mqtt_async import MQTTClient, MQTTConfig
from traffic import TOPIC

FRAME = 4


class _Client(MQTTClient):
    def _dns_lookup(self):
        self._addr = (self._c.server, self._c.port)


class _Counted:
    """An asyncio stream that counts how often it is asked, as ``counting`` does of sockets."""

    def __init__(self, stream):
        self.reads = self.writes = 0
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def read(self, size):
        self.reads += 1
        return self._stream.read(size)

    def write(self, data):
        self.writes += bool(data)  # with nothing it only drains
        return self._stream.write(data)


class Client:
    """One client; ``count`` messages have come."""

    buffers = 0

    def __init__(self, port, counted=False, keepalive=0):
        self.count = 0
        self._counted = counted
        self._wanted = -1
        self._enough = asyncio.Event()
        self._lost = False
        config = MQTTConfig()
        config.client_id = b"bench"
        config.server = "127.0.0.1"
        config.port = port
        config.response_time = 2  # s; it pings as often
        config.subs_cb = self._handle
        config.wifi_coro = self._told
        self.client = _Client(config)
        self._run = asyncio.get_event_loop().run_until_complete

    def connect(self):
        self._run(self.client.connect())
        self._run(self.client.subscribe(TOPIC))
        if self._counted:
            proto = self.client._proto
            self.stream = proto._sock = _Counted(proto._sock)

    async def _told(self, is_up):
        self._lost = not is_up

    def _handle(self, topic, payload, retained, qos):
        self.count += 1
        if self.count == self._wanted:
            self._enough.set()

    def publish(self, topic, payload, count=1):
        self._run(self._publish(topic, payload, count))

    async def _publish(self, topic, payload, count):
        client = self.client
        for _ in range(count):
            await client.publish(topic, payload)
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
