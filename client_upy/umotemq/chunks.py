"""Payloads that are longer than the buffers, in pieces, both ways: files, firmware, pictures."""

from umotemq.fmqp import FmqpClient
from umotemq.link import Link
from umotemq.topic import normalised


class ChunkClient(FmqpClient):
    """An FmqpClient that sends and takes long payloads in pieces.

    ``skip_limit``: bytes of the longest payload that is taken.
    """

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
        self._need_up()
        Link._push(self)
        outage = self.outage
        self.outage = None
        try:
            # The head of the message whose body is still to come: its length, and no byte of it.
            self._last = self._pack(4 * cache, normalised(topic), b"")
            for i in range(4):
                self._out[2 + i] = length >> 24 - 8 * i & 0xFF
            Link._push(self)
            while length:
                self._last = self._piece(length, source)
                length -= self._last
                Link._push(self)
        finally:
            self.outage = outage

    def _piece(self, length, source):
        try:
            size = source.readinto(memoryview(self._out)[: min(length, self.tx_size)])
        except Exception as error:
            self._fail("send", error)
        if not size:
            self._fail("send", "the source ended %d bytes early" % length)
        return size

    def _is_let_go(self, start, stop, size):
        self._sink = None
        if self._end < stop <= start + self.rx_size:
            return False
        # bytes: a key of the dict
        handler = self._sinks.get(bytes(self._view[start + 6 : min(stop, self._end)]))
        FmqpClient._is_let_go(self, start, stop, size)
        if handler and not self._buf[start] & 0xA0:
            self.discarded -= 1  # it is not
            head = stop - start

            def sink(left, start, end):
                offset = size - left - (end - start) - head
                if offset < 0:
                    start -= offset
                    offset = 0
                if start < end:
                    handler(size - head, offset, self._view[start:end])

            self._sink = sink
        return True
