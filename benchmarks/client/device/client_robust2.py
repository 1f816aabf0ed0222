"""umqtt.robust2 (on umqtt.simple2), as its documentation says."""

from counting import Counting
from traffic import TOPIC
from umqtt.robust2 import MQTTClient

FRAME = 4


class Client:
    """One client; ``count`` messages have come."""

    buffers = 0

    def __init__(self, port, counted=False, keepalive=0):
        self.count = 0
        self._counted = counted
        self.client = MQTTClient(
            b"bench", "127.0.0.1", port, keepalive=keepalive, socket_timeout=2, message_timeout=2
        )
        self.client.set_callback(self._handle)

    def connect(self):
        self.client.connect()
        self._raise()
        self.client.subscribe(TOPIC)
        if self._counted:
            self.stream = self.client.sock = Counting(self.client.sock)

    def _handle(self, topic, payload, retained, duplicate):
        self.count += 1

    def _raise(self):
        # It tells of a fault in an attribute.
        issue = self.client.conn_issue
        if issue:
            raise issue[0] if isinstance(issue, tuple) else issue

    def publish(self, topic, payload, count=1):
        client = self.client
        for _ in range(count):
            client.publish(topic, payload)
        self._raise()

    def publish_in_turn(self, topics, payload, count):
        """Publish to one topic after the other, ``count`` in all."""
        client = self.client
        for _ in range(count // len(topics)):
            for topic in topics:
                client.publish(topic, payload)
        self._raise()

    def receive_until(self, count):
        client = self.client
        while self.count < count:
            client.wait_msg()

    def watch(self, ms):
        """Be a subscriber for so long."""
        from time import sleep_ms

        self.client.ping()
        for _ in range(ms // 100):
            self.client.check_msg()
            self.client.is_conn_issue()
            self._raise()
            sleep_ms(100)

    def close(self):
        self.client.sock.close()
