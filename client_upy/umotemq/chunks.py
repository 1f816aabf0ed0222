"""Payloads that are longer than the buffers, in pieces, both ways: files, firmware, pictures."""

from umotemq.fmqp import FmqpClient, normalised
from umotemq.link import Link


class ChunkClient(FmqpClient):
    """An FmqpClient that sends and takes long payloads in pieces.

    ``skip_limit``: bytes of the longest payload that is taken; a longer one is an error.
    """

    skip_limit = 0x100000
    _sink = None

    def __init__(self, transport, **options):
        self._sinks = {}
        FmqpClient.__init__(self, transport, **options)

    def receive(self, topic, handler):
        """Subscribe to a literal topic; ``handler(total, offset, piece)`` gets each piece.

        ``piece`` is a memoryview that is valid until the handler returns; ``offset`` counts the
        bytes before it. A payload that a lost link cut short is followed by one from offset 0.
        """
        topic = normalised(topic)
        self._sinks[topic] = handler

        def whole(view, topic_start, topic_end, start, end):
            handler(end - start, 0, view[start:end])

        self.subscribe(topic, whole, raw=True)

    def publish_from(self, topic, length, source, cache=False):
        """Publish ``length`` bytes that ``source.readinto(buffer)`` gives, in pieces.

        Raises LinkError, also if the source fails or ends early: then the link is closed, as the
        message cannot be taken back. No ``outage`` keeps it. Under umotemq.aio nothing else runs
        until all was sent.
        """
        topic = normalised(topic)
        self._push()
        while self._last or self.outage:
            Link._push(self)
            if self.outage:
                self.outage.drain(self)
        # The head of the message whose body is still to come: its length, and no byte of it.
        self._pack(4 * cache, topic, b"")
        for i in range(4):
            self._out[2 + i] = length >> 24 - 8 * i & 0xFF
        Link._push(self)
        while length:
            self._last = self._piece(length, source)
            length -= self._last
            Link._push(self)

    def _piece(self, length, source):
        try:
            size = source.readinto(memoryview(self._out)[: min(length, self.tx_size)])
        except Exception as error:
            self._fail("source", error)
        if not size:
            self._fail("source", length)
        return size

    def _skip(self, start, body, end):
        if self._end < body <= start + self.rx_size:
            return  # more of its head is wanted
        size = end - body
        if size > self.skip_limit:
            self._fail("wire")
        # bytes: a key of the dict
        topic = bytes(self._view[start + 6 : min(body, self._end)])
        handler = None if self._buf[start] & 0xA0 else self._sinks.get(topic)
        FmqpClient._skip(self, start, body, end)
        if handler:
            self.discarded -= 1  # it is not
            self._sink = handler
            self._size = size
            self._offset = 0
            self._give(body)

    def _fill(self):
        if not FmqpClient._fill(self):
            return False
        if self._sink:
            self._give(0)
        return True

    def _give(self, start):
        # A piece of the message that is under way: all in the buffer that belongs to it.
        handler = self._sink
        offset = self._offset
        end = min(self._start, self._end)
        if self._start <= self._end:
            self._sink = None  # its end; or a lost link has cut it short
        if start < end:
            self._offset += end - start
            handler(self._size, offset, self._view[start:end])
