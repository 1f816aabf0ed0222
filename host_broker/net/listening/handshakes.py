"""TLS handshakes: as many at once as there is memory for.

Who has to wait has said its ClientHello, which the kernel keeps meanwhile; so a crowd that comes at
once is served one after the other. The newest comes first, since whoever waits for long gives up.
Whoever then says nothing more must make room when others wait.
"""

import asyncio
import ssl
from collections import Counter, deque
from dataclasses import dataclass
from typing import Protocol

from host_broker.net.connection.memory import BufferMemory
from host_broker.net.listening.slots import CountedSocket, Evicted
from host_broker.net.live_settings import LiveSettings

_GOODBYE_S = 5.0  # for a peer to answer our close_notify
_SILENT_S = 1.0  # a handshake that has taken longer waits for its peer, not for us
_LOOK_AGAIN_S = 0.2
# OpenSSL's words for what does not begin as TLS does.
_NO_TLS = ("wrong version number", "http request", "https proxy request", "record layer failure")


class Handshaker(Protocol):
    """A connection that has begun to speak TLS."""

    def established(self) -> asyncio.Protocol:
        """Return the asyncio protocol of the encrypted connection."""

    def handshake_ended(self) -> None:
        """It is established, or was closed."""

    def peer(self) -> str:
        """Return its host, for the log."""

    def disagreed(self, peer: str, why: str) -> None:
        """Log why it could not be established: asyncio does not tell the peer."""


@dataclass(slots=True, eq=False)
class _Handshake:
    sock: CountedSocket
    context: ssl.SSLContext
    owner: Handshaker
    since: float
    task: "asyncio.Task[None] | None" = None


class Handshakes:
    """All of a broker's; their memory is ``net.max_buffered_bytes``, with that of outboxes.

    ``failed`` counts those that came to nothing, by reason.
    """

    def __init__(self, live: LiveSettings, memory: BufferMemory) -> None:
        self.failed: Counter[str] = Counter()
        self._live = live
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Handshake] = deque()
        self._running: dict[_Handshake, None] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, sock: CountedSocket, context: ssl.SSLContext, owner: Handshaker) -> None:
        """Do a handshake as soon as there is memory; ``sock`` is taken over."""
        self._waiting.append(_Handshake(sock, context, owner, self._loop.time()))
        self._start_some()

    def evict_oldest(self) -> Evicted:
        """End one that keeps silent."""
        for handshake in self._running:
            if self._loop.time() - handshake.since < _SILENT_S:
                return "not yet"
            self.failed["silent"] += 1
            self._end(handshake)
            return "done"
        return "nobody"

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        return len(self._waiting)

    def close(self) -> None:
        """End all."""
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._drop(self._waiting.popleft())
        for handshake in list(self._running):
            self._end(handshake)

    def _start_some(self) -> None:
        while self._waiting and not (self._running and self._memory.short):
            handshake = self._waiting.pop()
            now = self._loop.time()
            if now - handshake.since > self._live.net.tls_handshake_s:
                self.failed["net.tls_handshake_s"] += 1
                self._drop(handshake)  # nobody waits so long
                continue
            handshake.since = now
            self._memory.handshakes += 1
            self._running[handshake] = None
            handshake.task = self._loop.create_task(self._run(handshake))
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_later(_LOOK_AGAIN_S, self._look)

    def _look(self) -> None:
        self._timer = None
        while self._waiting and self._memory.short and self.evict_oldest() == "done":
            pass
        self._start_some()

    async def _run(self, handshake: _Handshake) -> None:
        peer = handshake.owner.peer()  # a closed socket has none
        try:
            await self._loop.connect_accepted_socket(
                handshake.owner.established,
                handshake.sock,
                ssl=handshake.context,
                ssl_handshake_timeout=self._live.net.tls_handshake_s,
                ssl_shutdown_timeout=_GOODBYE_S,
            )
        except OSError as error:  # ConnectionError and SSLError are one
            self.failed["no agreement"] += 1
            if isinstance(error, ssl.SSLError):
                handshake.owner.disagreed(peer, _why(error))
        finally:
            self._ended(handshake)

    def _end(self, handshake: _Handshake) -> None:
        if handshake.task is not None:
            handshake.task.cancel()
        self._ended(handshake)

    def _ended(self, handshake: _Handshake) -> None:
        if handshake in self._running:
            del self._running[handshake]
            self._memory.handshakes -= 1
            handshake.owner.handshake_ended()
            self._start_some()

    def _drop(self, handshake: _Handshake) -> None:
        handshake.sock.close()
        handshake.owner.handshake_ended()


def _why(error: ssl.SSLError) -> str:
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not of our client_ca ({error.verify_message})"
    if reason == "peer did not return a certificate":
        return "it showed no certificate, and this listener has a client_ca"
    if reason in _NO_TLS:
        return "it speaks something else"
    if "alert" in reason and ("unknown ca" in reason or "certificate" in reason):
        return f"it does not trust our certificate ({reason})"
    return reason
