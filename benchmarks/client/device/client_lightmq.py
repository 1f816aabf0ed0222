"""Ours: LightMQ, synchronous. A publication is a post, an echo its response."""

from client_fmqp import CountedTcp

from umotemq.lightmq import LightmqClient
from umotemq.tcp import Tcp


class Client:
    """One client; ``count`` responses have come."""

    def __init__(self, port, counted=False, **options):
        self.count = 0
        self.transport = (CountedTcp if counted else Tcp)("127.0.0.1", port)
        self.client = LightmqClient(self.transport, b"bench", **options)
        self.buffers = self.client.rx_size + self.client.tx_size

    def connect(self):
        self.client.connect(timeout_ms=3000)

    def publish(self, topic, payload, count=1):
        client = self.client
        for _ in range(count):
            client.post(payload, client.timeout_ms)

    def watch(self, ms):
        """Be a responder for so long."""
        self.client.poll(ms)

    def close(self):
        self.client.close()
