"""umqtt.simple, as its documentation says."""

from counting import Counting
from traffic import TOPIC
from umqtt.simple import MQTTClient

FRAME = 4


class Client:
    """One client; ``count`` messages have come."""

    buffers = 0
    kind = MQTTClient

    def __init__(self, port, counted=False, keepalive=0):
        self.count = 0
        self._counted = counted
        self._timeout_s = 2 if keepalive else None
        self.client = self.kind(b"bench", "127.0.0.1", port, keepalive=keepalive)
        self.client.set_callback(self._handle)

    def connect(self):
        self.client.connect()
        if self._timeout_s:
            self.client.sock.settimeout(self._timeout_s)  # before that there is no socket to set
        self.client.subscribe(TOPIC)
        if self._counted:
            self.stream = self.client.sock = Counting(self.client.sock)

    def _handle(self, topic, payload):
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

    def receive_until(self, count):
        client = self.client
        while self.count < count:
            client.wait_msg()

    def watch(self, ms):
        """Be a subscriber for so long: it has no keepalive of its own, so it is given one."""
        from time import sleep_ms

        self.client.ping()
        for _ in range(ms // 100):
            self.client.check_msg()
            sleep_ms(100)

    def close(self):
        self.client.sock.close()
