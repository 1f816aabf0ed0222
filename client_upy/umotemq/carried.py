"""FMQP over LightMQ: a LightMQ session as the transport of an FmqpClient.

    session = LightmqClient(Tcp("192.168.1.2", 8766), b"kitchen", tx_size=262)
    client = FmqpClient(Carried(session), tx_size=256)

Each write is one SEND, whose data is whole FMQP packets (but for those of a ChunkClient); what
the broker SENDs is read as one stream of them. LightMQ names the client to the broker and lets it
notice a silent one; the FmqpClient's own pings notice a silent broker, end to end.
"""

from umotemq.link import LinkError

_NEVER = 1 << 28  # ms


class Carried:
    """``session``: a LightmqClient for this alone; its ``tx_size`` is 6 more than the client's."""

    def __init__(self, session):
        self._session = session
        session.keepalive_ms = _NEVER
        session.handler = self._came
        session._blocking = False
        self._read = session._fill
        session._fill = self._fill
        self.where = session.transport.where
        # What one receive buffer of the session brought, at most. It is kept: later the heap may
        # have no piece of that size.
        self._data = memoryview(bytearray(session.rx_size))

    def open(self):
        """Return the stream of a new session. Raises OSError."""
        session = self._session
        session._drop(None, 0)  # what is lost is for the FmqpClient to open again
        self._at = self._end = self._taking = 0
        session._step()
        self.pollable = session.stream and session._fd
        return self

    def readinto(self, buffer):
        """Read what the broker sent; None: nothing now. Raises OSError."""
        session = self._session
        if self._at == self._end:
            self._at = self._end = 0
            if not session.stream:
                raise session.error or LinkError("closed")
            session._step()
        at = self._at
        size = min(len(buffer), self._end - at)
        buffer[:size] = self._data[at : at + size]
        self._at = at + size
        return size or None

    def write(self, data):
        """Send it as one SEND; None: not now. Raises OSError."""
        session = self._session
        if not session.up:
            session._step()
            if not session.up:
                return None
        if not self._taking:
            if not session._flush():
                return None
            self._taking = min(len(data), session.tx_size - 6)
            part = bytes(memoryview(data)[: self._taking])  # CPython packs no memoryview
            session._pack(session._opcode, session._next_id(), part)
        if not session._flush():
            return None  # the same bytes will be offered again, perhaps with more
        size = self._taking
        self._taking = 0
        return size

    def close(self):
        """End the session."""
        self._session.close()

    def _came(self, data):
        end = self._end
        self._end = end + len(data)
        self._data[end : self._end] = data

    def _fill(self, buffer):
        # The session reads only then: at most one receive buffer of data at a time.
        return not self._end and self._read(buffer)
