"""Payloads that are longer than the buffers, in pieces, both ways: files, firmware, pictures."""

from micropython import const

from umotemq.fmqp import FmqpClient
from umotemq.link import LinkError

_PIECES = const(8)
_RETAIN = const(4)


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
        topic = self._normalised(topic)
        self._sinks[topic] = handler

        def whole(view, topic_start, topic_end, start, end):
            handler(end - start, 0, view[start:end])

        self.subscribe(topic, whole, raw=True)

    def publish_from(self, topic, length, source, *, retain=False):
        """Publish ``length`` bytes that ``source.readinto(buffer)`` gives, in pieces.

        Raises LinkError, also if the source fails or ends early: then the link is closed, as the
        message cannot be taken back. No ``outage`` keeps it. Under umotemq.aio ``await
        link.do(client.publish_from, topic, length, source)``: other tasks run meanwhile, and what
        they publish waits; with an ``outage``, ``client.error`` says whether the link was lost.
        """
        topic = self._normalised(topic)
        self._push()
        while self.outage and not self._last:
            self.outage.drain(self)
            self._push()
        if self._last:
            # Under umotemq.aio, which does not wait here.
            raise LinkError("size", "%d bytes wait" % self._last)
        # The head of the message whose body is still to come: its length, and no byte of it.
        self._pack(_RETAIN if retain else 0, topic, b"")
        for i in range(4):
            self._out[2 + i] = length >> 24 - 8 * i & 0xFF
        self._left = length
        self._source = source
        self._push()

    def _push(self):
        # Each piece may take ``timeout_ms``; under umotemq.aio a few are enough here.
        FmqpClient._push(self)
        while self._blocking and (self._left or self._last):
            FmqpClient._push(self)

    def _flush(self):
        # Puts the next piece into the transmit buffer as soon as the last one has gone: so nobody
        # finds it empty before all was sent. A few, as others want a turn too.
        for _ in range(_PIECES):
            if not FmqpClient._flush(self):
                return False
            if not self._left:
                break
            self._last = self._piece()
            self._left -= self._last
        return True

    def _piece(self):
        try:
            size = self._source.readinto(memoryview(self._out)[: min(self._left, self.tx_size)])
        except Exception as error:
            self._fail("source", error)
        if not size:
            self._fail("source", self._left)
        return size

    def _pack(self, *message):
        if self._left and self._last:
            raise LinkError("size", "a long message has %d bytes to go" % self._left)
        FmqpClient._pack(self, *message)

    def _drop(self, error, ms):
        self._left = 0
        FmqpClient._drop(self, error, ms)

    def _skip(self, start, body, end):
        # A message that is longer than the buffer; True if it is for nobody.
        if self._end < body <= start + self.rx_size:
            return False  # more of its head is wanted
        size = end - body
        if size > self.skip_limit:
            self._fail("wire", "message of %d bytes, skip_limit is %d" % (size, self.skip_limit))
        # bytes: a key of the dict
        topic = bytes(self._view[start + 6 : min(body, self._end)])
        if self._buf[start] & 0xA0 or topic not in self._sinks:
            return True
        self._start = end
        self._sink = self._sinks[topic]
        self._total = size
        self._offset = 0
        self._give(body)

    def _fill(self, buffer):
        if not FmqpClient._fill(self, buffer):
            return False
        if self._sink:
            self._give(0)
        return self.stream

    def _give(self, start):
        # A piece of the message that is under way: all in the buffer that belongs to it.
        handler = self._sink
        offset = self._offset
        end = min(self._start, self._end)
        if self._start <= self._end:
            self._sink = None  # its end; or a lost link has cut it short
        if start < end:
            self._offset += end - start
            handler(self._total, offset, self._view[start:end])
