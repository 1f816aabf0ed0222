"""The memory of what is yet to be sent, and of TLS handshakes: one budget for all connections."""

import time
from collections.abc import Callable

from host_broker.net.connection.poller import Poller
from host_broker.net.live_settings import LiveSettings

# What a TLS connection takes until it is established: OpenSSL's state with a server's certificate,
# and asyncio's objects. Two thirds of it were measured.
HANDSHAKE_BYTES = 96 * 1024
_LOOK_AGAIN_S = 0.1


class BufferMemory:
    """Counts against ``net.max_buffered_bytes``.

    That of plain sockets is the poller's. ``held``: bytes of answers that wait for the journal, and
    of messages behind a slow receiver that may be dropped. ``handshakes``: how many there are. TLS
    connections are asyncio's, which tells no one when bytes are sent: they are asked.

    What a buffer has that waits for several receivers is counted for each of them, so the memory
    that is really used is less.
    """

    def __init__(self, live: LiveSettings, poller: Poller) -> None:
        self.held = 0
        self.handshakes = 0
        self._live = live
        self._poller = poller
        self._encrypted: dict[object, tuple[Callable[[], int], int]] = {}
        self._encrypted_bytes = 0
        self._asked = 0.0

    @property
    def used(self) -> int:
        """Bytes in use; what TLS connections have sent lately may still be counted."""
        handshakes = self.handshakes * HANDSHAKE_BYTES
        return self._poller.backlog + self.held + handshakes + self._encrypted_bytes

    @property
    def short(self) -> bool:
        """Whether more is in use than may be."""
        limit = self._live.net.max_buffered_bytes
        if self.used <= limit:
            return False
        if self._encrypted and time.monotonic() - self._asked >= _LOOK_AGAIN_S:
            self._asked = time.monotonic()
            for owner, (waiting, _) in list(self._encrypted.items()):
                self.note(owner, waiting)
        return self.used > limit

    def note(self, owner: object, waiting: Callable[[], int]) -> None:
        """Count what an encrypted connection has to send now; ``waiting`` returns that."""
        _, before = self._encrypted.pop(owner, (waiting, 0))
        now = waiting()
        if now:
            self._encrypted[owner] = waiting, now
        self._encrypted_bytes += now - before

    def forget(self, owner: object) -> None:
        """An encrypted connection has ended."""
        _, before = self._encrypted.pop(owner, (None, 0))
        self._encrypted_bytes -= before
