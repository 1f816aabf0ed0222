"""A plain socket of an ``auto://`` listener, until its protocol is known.

Nothing is read from it: its first bytes are looked at and left in the kernel, so that whoever takes
over, a ``Stream`` or asyncio's TLS, begins at the beginning and knows nothing of us. What is left
there would make the selector report it for ever; so it is asked for changes only (EPOLLET).
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from select import EPOLLET, EPOLLIN

from host_broker.net.lobby import Lobby, peer_of
from host_broker.net.poller import Turn, Watched
from host_broker.net.stream import Stream
from host_broker.net.unveiled import Unveiled
from host_broker.protocols.recognition import LONGEST, MORE, recognise
from host_broker.protocols.refusals import refusal

_TLS_GOODBYE_S = 5.0  # for a peer to answer our close_notify
_DROPPED_BYTES = 64 * 1024  # of a request that is refused; a close with more unread is a reset


class Newcomer:
    """One socket; ``enter`` begins."""

    __slots__ = (
        "_dropped",
        "_handed_over",
        "_handshake",
        "_lobby",
        "_refused",
        "_sock",
        "fd",
        "watched",
    )

    def __init__(self, sock: socket.socket, lobby: Lobby) -> None:
        """``sock`` does not block and is ours from now on."""
        self.fd = sock.fileno()
        self.watched = 0  # what the poller looks for
        self._sock = sock
        self._lobby = lobby
        self._refused = False
        self._dropped = 0
        self._handshake: asyncio.Task[None] | None = None
        self._handed_over = False  # the socket is asyncio's, which closes it

    def enter(self) -> None:
        """Wait for the first bytes."""
        self._lobby.enter(self)
        self._watch(EPOLLIN | EPOLLET)

    def peer(self) -> str:
        """Return its host."""
        return peer_of(self._sock)

    def turn_out(self) -> None:
        """End at once."""
        self._watch(0)
        if self._handshake is not None:
            self._handshake.cancel()
        if not self._handed_over:
            self._sock.close()

    # ---- called by the poller ----

    def ready_to_read(self) -> int:
        """Look at what there is; returns how many bytes somebody has read for it."""
        try:
            if self._refused:
                return self._drop()
            first = self._sock.recv(LONGEST, socket.MSG_PEEK)
            verdict = recognise(first) if first else ""
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            verdict = ""  # it was reset
        if verdict == MORE:
            return 0
        if not verdict:
            self._leave()
            self._sock.close()
            return 0
        return self._recognised(verdict, first)

    def read_alone(self, turn: Turn, data: bytes | None) -> bool:
        """Look at what there is, in a turn."""
        turn(Newcomer.ready_to_read, self)
        return False

    def passed(self, count: int, size: int) -> None:
        """Nothing is passed on for one of whom nothing is known."""

    def finish(self, data: bytes, sent: int, receivers: Sequence[Watched]) -> None:
        """Nor is it here."""

    def ready_to_write(self) -> None:
        """Nothing waits to be written."""

    # ---- inside ----

    def _recognised(self, protocol: str, first: bytes) -> int:
        house = self._lobby.house
        if protocol in house.speaks:
            self._leave()
            stream = Stream(
                self._sock, house.connection(protocol), house.poller, asyncio.get_running_loop()
            )
            try:
                stream.start()
            except Exception as error:
                # asyncio's accept would do the same; in a turn it would be the turn that failed.
                self._lobby.failed(error)
                stream.abort()
                return 0
            return stream.ready_to_read()
        if protocol == "tls" and house.tls is not None:
            self._watch(0)
            self._lobby.unbounded(self)  # net.tls_handshake_s bounds it
            self._handshake = asyncio.get_running_loop().create_task(self._begin_tls(house.tls))
            return 0
        self._refuse(protocol, first)
        return 0

    async def _begin_tls(self, context: ssl.SSLContext) -> None:
        lobby = self._lobby
        self._handed_over = True
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: Unveiled(lobby),
                self._sock,
                ssl=context,
                ssl_handshake_timeout=lobby.house.settings.tls_handshake_s,
                ssl_shutdown_timeout=_TLS_GOODBYE_S,
            )
        except OSError:
            pass  # no agreement, as with any TLS listener; ConnectionError and SSLError are one
        finally:
            lobby.leave(self)

    def _refuse(self, protocol: str, first: bytes) -> None:
        self._lobby.refused(self, protocol, first)
        words = refusal(protocol, first)
        try:
            if words:
                self._sock.send(words)  # a new connection has room for it
                self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            words = b""
        if not words:
            self._leave()
            self._sock.close()
            return
        # Closed with something unread, the kernel would reset it, and our words might be lost.
        self._refused = True
        self._lobby.linger(self)
        self._watch(EPOLLIN)

    def _drop(self) -> int:
        try:
            size = len(self._sock.recv(_DROPPED_BYTES))
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            size = 0
        self._dropped += size
        if not size or self._dropped >= _DROPPED_BYTES:
            self._leave()
            self._sock.close()
        return size

    def _leave(self) -> None:
        self._watch(0)
        self._lobby.leave(self)

    def _watch(self, events: int) -> None:
        self._lobby.house.poller.watch(self, events)
