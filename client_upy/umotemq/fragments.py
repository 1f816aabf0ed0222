"""MicroMsg2 payloads that are longer than the buffers: in fragments, both ways."""

from micropython import const

from umotemq.link import LinkError, encoded
from umotemq.micromsg2 import MicroMsg2Client

_PIECES = const(8)
_CONTINUED = const(16)
_HEADER = const(10)  # bytes around a fragment that has more than 255


class FragmentClient(MicroMsg2Client):
    """A MicroMsg2Client that sends long payloads in fragments, and joins those that come.

    ``message_size``: bytes of the buffer in which fragments are joined, with their destination; a
    longer message is skipped, and counted in ``discarded``.
    """

    message_size = 4096
    _source = None  # of the long message that is under way

    def __init__(self, transport, **options):
        MicroMsg2Client.__init__(self, transport, **options)
        self._joined = bytearray(self.message_size)
        self._whole = memoryview(self._joined)

    def publish_from(self, topic, length, source, *, queued=False, properties=b""):
        """Publish ``length`` bytes that ``source.readinto(buffer)`` gives, in fragments.

        Returns when the peer has acknowledged all of them. Raises LinkError, also if the source
        fails or ends early: then the link is closed, as the message cannot be taken back. No
        ``outage`` keeps it. Under umotemq.aio ``await link.do(client.publish_from, topic, length,
        source)`` returns when all was handed to the stream.
        """
        name = self._normalised(topic)
        kind = b"" if queued else b"topic/"
        if properties:
            kind += encoded(properties)
        room = self.tx_size - _HEADER - len(kind) - len(name)
        if room < 1:
            raise ValueError("tx_size of %d has no room for a fragment" % self.tx_size)
        self._push()
        while self._blocking and self._full:
            self._await(self.timeout_ms, True)
        if self._last or self._full:
            # Under umotemq.aio, which does not wait here.
            raise LinkError("size", "what was sent before has not gone yet")
        self._message_of = kind, name
        self._data = bytearray(min(room, length))
        self._left = length
        self._source = source
        self._piece()
        self._flush()
        while self._blocking and not self._is_answered(self._ping):
            self._await(self.timeout_ms, True)

    def _piece(self):
        # Put the next fragment into the transmit buffer. It stays there until it may be sent, so
        # that nobody finds the buffer empty before all was sent.
        left = self._left
        data = self._data
        if left < len(data):
            data = bytearray(left)
        view = memoryview(data)
        size = 0
        while size < len(data):
            try:
                count = self._source.readinto(view[size:])
            except Exception as error:
                self._fail("source", error)
            if not count:
                self._fail("source", left - size)
            size += count
        self._left = left = left - size
        source = self._source
        self._source = None  # for _pack
        self._pack(*self._message_of, data, _CONTINUED if left else 0)
        self._source = source if left else None

    def _flush(self):
        # A few fragments, as others want a turn too.
        for _ in range(_PIECES):
            if not MicroMsg2Client._flush(self):
                return False
            if not self._source:
                return True
            self._piece()
        return False

    def _push(self):
        # No message may come between fragments: what a handler publishes waits for the last one.
        # Under umotemq.aio a message that is beyond the window waits in the transmit buffer.
        while self._source or (self._blocking and self._last and self._full):
            if not self._blocking:
                raise LinkError("size", "a long message has %d bytes to go" % self._left)
            self._await(self.timeout_ms, True)
        MicroMsg2Client._push(self)

    def _drop(self, error, ms):
        self._source = None
        self._left = 0
        MicroMsg2Client._drop(self, error, ms)

    def _message(self, more, fits, first, stop, body, end):
        view = self._view
        is_first = not self._more
        if is_first and not more:
            return MicroMsg2Client._message(self, more, fits, first, stop, body, end)
        self._more = more
        joined = self._joined
        size = end - body
        name_size = stop - first
        if is_first:
            # Destination and properties are those of the first fragment (A17).
            self._filled = -1  # it cannot be joined
            self._name_size = name_size
            if fits and name_size <= len(joined):
                joined[:name_size] = view[first:stop]
                self._filled = name_size
                self._of_first = self.properties
        filled = self._filled
        if fits and filled >= 0 and view[first:stop] != joined[: self._name_size]:
            self._refuse("wire", "fragments of two messages")
        if not fits or filled + size > len(joined):
            filled = -1
        if filled >= 0:
            joined[filled : filled + size] = view[body:end]
            filled += size
        self._filled = filled
        if more:
            return 0
        if filled < 0:
            self.discarded += 1
            return 0
        self._where = self._of_first
        self._at = 0
        self._until = len(self._of_first)
        name_size = self._name_size
        return self._dispatch(joined, self._whole, 0, name_size, name_size, filled)
