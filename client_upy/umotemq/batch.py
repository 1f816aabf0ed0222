"""FMQP publications that leave together: as few writes, and segments, as the buffer allows.

    with Batch(client) as batch:
        for topic, payload in readings:
            batch.publish(topic, payload)

What a client publishes by itself leaves at once, each time in a segment of its own.
"""

from micropython import const

from umotemq.link import encoded

_RETAIN = const(4)
_HEADER = const(6)  # bytes of a publication, besides its topic and payload


class Batch:
    """Publications of an FmqpClient that wait for each other in its transmit buffer.

    They leave when it is full, by ``flush``, at the end of the block, and by whatever the client
    itself sends or polls. A link that is lost takes those with it that have not left. If the client
    has an ``outage``, each leaves at once and that keeps what does not. Not for umotemq.aio.
    """

    def __init__(self, client):
        self._client = client
        self._topic = self._name = None  # the last one as it was given, and as it is sent

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if not kind or self._client.up:  # else it would hide why the block has ended
            self.flush()

    def publish(self, topic, payload, *, retain=False):
        """As FmqpClient.publish, but that it may wait for others."""
        client = self._client
        if client.outage is not None:
            return client.publish(topic, payload, retain=retain)
        if topic is not self._topic:
            self._name = client._normalised(topic)
            # Others may change.
            self._topic = topic if isinstance(topic, bytes) or isinstance(topic, str) else None
        name = self._name
        payload = encoded(payload)
        if not client.up or client._last + _HEADER + len(name) + len(payload) > client.tx_size:
            client._push()
        client._pack(_RETAIN if retain else 0, name, payload)

    def flush(self):
        """Return when the stream has taken all of them. Raises LinkError."""
        self._client._push()
