"""asyncio's TLS, with reads that are as long as those of plain sockets, and all that is to be sent.

asyncio asks for 256 KiB at a time and keeps a buffer of that size, filled with zeros, for every TLS
connection, also for one that says nothing: 5000 silent handshakes were 1.2 GB. With less, a busy
connection pays for more turns of the event loop than for its encryption. So all of a thread share
one buffer: what was read is copied out of it before anybody else can read.
"""

import asyncio
import asyncio.sslproto
import threading
from asyncio.sslproto import SSLProtocolState
from time import perf_counter
from typing import Any, cast

from host_broker.net.connection.stream import LONG_READ_BYTES, READ_BYTES, READ_S

_SOCKET_BYTES = 64 * 1024  # that may wait for it, encrypted, before it says so
_LONGEST_RECORD = 16 * 1024  # of TLS: what is decrypted comes in pieces of at most that


class _Shared(threading.local):
    """Where all connections of one thread read to; another one may be receiving meanwhile."""

    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(LONG_READ_BYTES))


class EncryptedProtocol(asyncio.sslproto.SSLProtocol):
    """What asyncio puts between a socket and the protocol of its TLS connection."""

    max_size = _LONGEST_RECORD

    _shared = _Shared()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ssl_buffer = bytearray()  # its own
        self._wanted = READ_BYTES

    def get_buffer(self, n: int) -> memoryview:
        """Return where the next read goes, however long it may become (``n``)."""
        self._ssl_buffer_view = self._shared.buffer[: self._wanted]
        return self._ssl_buffer_view

    def buffer_updated(self, nbytes: int) -> None:
        """Take a read. The next one learns from its size, and from the time that it takes."""
        if nbytes < self._wanted:
            if nbytes < READ_BYTES:
                self._wanted = READ_BYTES
            super().buffer_updated(nbytes)
            return
        began = perf_counter()
        super().buffer_updated(nbytes)
        affordable = int(nbytes * READ_S / max(perf_counter() - began, 1e-6))
        # No more than twice as much: one that did not end a record has cost nothing yet.
        self._wanted = min(max(affordable, READ_BYTES), 2 * nbytes, LONG_READ_BYTES)

    # What follows asyncio calls; that it has these methods is in its source only.

    def _start_shutdown(self) -> None:
        """Close also a connection whose peer has hung up while nothing was read of it: asyncio
        takes that for a shutdown that has begun, and goes on with it only when it is read again."""
        super()._start_shutdown()
        self._loop.call_soon(self._end_unread)

    def _end_unread(self) -> None:
        if self._state == SSLProtocolState.FLUSHING:  # type: ignore[attr-defined]
            self._do_flush()  # type: ignore[attr-defined]

    def _get_write_buffer_size(self) -> int:
        """Count what is encrypted and not sent, too: asyncio has forgotten that."""
        waiting: int = super()._get_write_buffer_size()  # type: ignore[misc]
        socket = cast(asyncio.WriteTransport | None, self._transport)
        return waiting if socket is None else waiting + socket.get_write_buffer_size()

    def _set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Have the socket, too, tell when so little is left: else nobody would hear of it."""
        super()._set_write_buffer_limits(high, low)  # type: ignore[misc]
        socket = cast(asyncio.WriteTransport | None, self._transport)
        if socket is not None:
            least = min(self._outgoing_low_water, _SOCKET_BYTES)  # type: ignore[attr-defined]
            socket.set_write_buffer_limits(least, least // 4)


def use_long_reads() -> None:
    """Have TLS connections of this process be read so from now on."""
    asyncio.sslproto.SSLProtocol = EncryptedProtocol  # type: ignore[misc]
