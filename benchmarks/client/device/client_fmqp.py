"""Ours: FMQP, synchronous, with a handler that copies nothing."""

from counting import Counting
from traffic import TOPIC

import umotemq.alike  # noqa: F401 - what a raw subscription imports is none of the client's bytes
from umotemq.batch import Batch
from umotemq.fmqp import FmqpClient
from umotemq.tcp import Tcp

FRAME = 6  # bytes that a publication is longer than its topic and payload


class CountedTcp(Tcp):
    def open(self):
        self.stream = Counting(Tcp.open(self))
        return self.stream


class Client:
    """One client; ``count`` messages have come."""

    def __init__(self, port, counted=False, **options):
        self.count = 0
        transport = (CountedTcp if counted else Tcp)("127.0.0.1", port)
        self.transport = transport
        self.client = FmqpClient(transport, **options)
        self.client.subscribe(TOPIC, self._handle, raw=True)
        self.buffers = self.client.rx_size + self.client.tx_size

    def connect(self):
        self.client.connect(timeout_ms=3000)
        if hasattr(self.transport, "stream"):
            self.stream = self.transport.stream

    def _handle(self, view, topic_start, topic_end, start, end):
        self.count += 1

    def publish(self, topic, payload, count=1):
        client = self.client
        for _ in range(count):
            client.publish(topic, payload)

    def publish_in_turn(self, topics, payload, count):
        """Publish to one topic after the other, ``count`` in all."""
        client = self.client
        for _ in range(count // len(topics)):
            for topic in topics:
                client.publish(topic, payload)

    def publish_together(self, topic, payload, count):
        """As ``publish``, in few writes."""
        with Batch(self.client) as batch:
            for _ in range(count):
                batch.publish(topic, payload)

    def receive_until(self, count):
        client = self.client
        while self.count < count:
            client.poll(1000)

    def idle(self, ms):
        self.client.poll(ms)

    def watch(self, ms):
        """Be a subscriber for so long."""
        self.client.poll(ms)

    def close(self):
        self.client.close()
