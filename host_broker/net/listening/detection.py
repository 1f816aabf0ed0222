"""Which protocol a connection speaks: its first bytes tell.

A plain socket waits as a ``ProtocolDetector``, what is inside of TLS as a ``TlsDetector``, both
among the ``PendingConnections``. They leave when they are recognised or refused, or because they
took too long; when too many wait, the oldest has to go. Of HTTP the whole first head is awaited, of
TLS the whole ClientHello: until then a client costs no more than its socket.
"""

import asyncio
import fcntl
import socket
import ssl
import struct
import termios
from collections.abc import Callable, Collection
from dataclasses import dataclass
from select import EPOLLET, EPOLLIN, POLLRDHUP, poll
from typing import Protocol, cast

from host_broker.address import HTTP
from host_broker.net.connection.poller import Poller
from host_broker.net.connection.stream import Stream
from host_broker.net.connection.tuning import peer_name, tune
from host_broker.net.listening.handshakes import Handshakes
from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.slots import CountedSocket
from host_broker.net.live_settings import LiveSettings
from host_broker.recognition import MORE, NOBODY

_TLS = "tls"
_DROPPED_BYTES = 64 * 1024  # of a request that is refused; a close with more unread is a reset
_RECORD_HEADER_BYTES = 5  # of TLS; its last two bytes are the length of what follows
_UNREAD = struct.Struct("i")
_LONGEST_HEAD_BYTES = 16 * 1024  # of a request or ClientHello; whoever reads it decides about more


class Recogniser(Protocol):
    """Tells protocols apart; ``Recognition`` says what each of these is."""

    longest: int

    def recognise(self, first: bytes) -> str: ...
    def refusal(self, protocol: str, first: bytes) -> bytes: ...


class OneProtocol:
    """The recogniser of a listener on which only one protocol is spoken: ``tls``."""

    longest = _RECORD_HEADER_BYTES

    def __init__(self, protocol: str) -> None:
        self._protocol = protocol

    def recognise(self, first: bytes) -> str:
        """Return the protocol: whoever is wrong here is told so by its own end."""
        return self._protocol

    def refusal(self, protocol: str, first: bytes) -> bytes:
        """Return no words."""
        return b""


@dataclass(slots=True)
class ListenerContext:
    """What all pending connections of a listener need.

    ``name``: the listener's, for the log. ``connection`` makes the asyncio protocol of a recognised
    client, given its protocol's name. ``inside`` makes that of what comes by TLS; None: its
    protocol is recognised. ``speaks``: the names there are. ``tls``: None if the listener has no
    certificate; it is replaced when the certificates are loaded again.
    """

    name: str
    live: LiveSettings
    connection: Callable[[str], asyncio.Protocol]
    poller: Poller
    pending: PendingConnections
    handshakes: Handshakes
    speaks: Collection[str]
    recogniser: Recogniser
    within_tls: Recogniser
    tls: ssl.SSLContext | None = None
    inside: Callable[[], asyncio.Protocol] | None = None
    only_tls: bool = False


class ProtocolDetector:
    """One plain socket; ``start`` begins.

    Nothing is read from it: its first bytes are looked at and left in the kernel, so that whoever
    takes over, a ``Stream`` or asyncio's TLS, begins at the beginning and knows nothing of us. What
    is left there would make the selector report it for ever; so it is asked for changes only
    (EPOLLET).
    """

    __slots__ = ("_context", "_dropped", "_refused", "_sock", "_wanted", "fd", "watched")

    def __init__(self, sock: CountedSocket, context: ListenerContext) -> None:
        """``sock`` does not block and is ours from now on."""
        self.fd = sock.fileno()
        self.watched = 0  # what the poller looks for
        self._sock = sock
        self._context = context
        self._refused = False
        self._dropped = 0
        self._wanted = context.recogniser.longest

    def start(self) -> None:
        """Wait for the first bytes."""
        self._context.pending.add(self, tls=self._context.only_tls)
        self._watch(EPOLLIN | EPOLLET)

    @property
    def listener(self) -> str:
        """The name of its listener."""
        return self._context.name

    def peer(self) -> str:
        """Return its host."""
        return peer_name(self._sock)

    def evict(self) -> None:
        """End at once."""
        self._watch(0)
        self._sock.close()

    # ---- called by the poller ----

    def ready_to_read(self) -> int:
        """Look at what there is; returns how many bytes somebody has read for it."""
        if self._refused:
            return self._drop()
        verdict, first = self._look()
        if verdict == MORE:
            return 0
        if not verdict:
            self._leave()
            self._sock.close()
            return 0
        return self._recognised(verdict, first)

    def ready_to_write(self) -> None:
        """Nothing waits to be written."""

    # ---- called by those that wait ----

    def has_spoken(self) -> bool:
        """Whether its first words are there, and are looked at next."""
        return not self._refused and self._look()[0] not in (MORE, "")

    # ---- called by the handshakes ----

    def established(self) -> asyncio.Protocol:
        """Return the asyncio protocol of what is inside of TLS."""
        context = self._context
        return TlsDetector(context) if context.inside is None else context.inside()

    def handshake_ended(self) -> None:
        """asyncio has the socket, or has closed it."""

    def disagreed(self, peer: str, why: str) -> None:
        """Have it logged."""
        self._context.pending.log_disagreement(self._context.name, peer, why)

    # ---- inside ----

    def _look(self) -> tuple[str, bytes]:
        """Return what it speaks, ``MORE``, or "" when it has ended, and the bytes that tell."""
        recognise = self._context.recogniser.recognise
        try:
            first = self._sock.recv(self._wanted, socket.MSG_PEEK)
            verdict = recognise(first) if first else ""
            if verdict in (HTTP, _TLS) and self._is_spoken(verdict):
                if self._wanted < _LONGEST_HEAD_BYTES:
                    self._wanted = _LONGEST_HEAD_BYTES
                    first = self._sock.recv(self._wanted, socket.MSG_PEEK)
                if not is_whole_head(verdict, first):
                    verdict = MORE
            if verdict == MORE and self._has_ended():
                verdict = ""
        except (BlockingIOError, InterruptedError):
            return MORE, b""
        except OSError:
            return "", b""  # it was reset
        return verdict, first

    def _has_ended(self) -> bool:
        """Whether the peer sends no more; what it has sent is left unread, and hides the end."""
        looked = poll()
        looked.register(self.fd, POLLRDHUP)
        return bool(looked.poll(0))

    def _is_spoken(self, protocol: str) -> bool:
        context = self._context
        return context.tls is not None if protocol == _TLS else protocol in context.speaks

    def _recognised(self, protocol: str, first: bytes) -> int:
        context = self._context
        if not self._is_spoken(protocol):
            self._refuse(protocol, first)
            return 0
        self._leave()
        if protocol == _TLS and context.tls is not None:
            context.handshakes.begin(self._sock, context.tls, self)
            return 0
        loop = asyncio.get_running_loop()
        if protocol == HTTP:
            tune(self._sock, context.live.net, patient=False)
        stream = Stream(self._sock, context.connection(protocol), context.poller, loop)
        try:
            stream.start()
        except Exception as error:
            # asyncio's accept would do the same; in a turn it would be the turn that failed.
            context.pending.failed(error)
            stream.abort()
            return 0
        return stream.ready_to_read()

    def _refuse(self, protocol: str, first: bytes) -> None:
        context = self._context
        first = first[: context.recogniser.longest]
        context.pending.log_refusal(self, protocol, first)
        words = context.recogniser.refusal(protocol, first)
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
        context.pending.give_time_to_read(self)
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
        self._context.pending.remove(self)

    def _watch(self, events: int) -> None:
        self._context.poller.watch(self, events)


class TlsDetector(asyncio.Protocol):
    """The asyncio protocol of a TLS connection that hands over to a ``Connection``."""

    def __init__(self, context: ListenerContext) -> None:
        self._context = context
        self._first = b""
        self._was_late = False  # it was us who were, once
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._context.pending.add(self, agreed=True)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        context = self._context
        self._first += data
        verdict = context.within_tls.recognise(self._first)
        if verdict == MORE:
            return
        if verdict == HTTP and HTTP in context.speaks and not is_whole_head(HTTP, self._first):
            return
        context.pending.remove(self)
        if verdict not in context.speaks:
            # TLS within TLS is nobody's mistake that a certificate would mend.
            self._refuse(NOBODY if verdict == _TLS else verdict)
            return
        if verdict == HTTP:
            tune(self._transport.get_extra_info("socket"), context.live.net, patient=False)
        connection = context.connection(verdict)
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport)
        first, self._first = self._first, b""
        connection.data_received(first)

    def connection_lost(self, exc: Exception | None) -> None:
        self._context.pending.remove(self)

    @property
    def listener(self) -> str:
        """The name of its listener."""
        return self._context.name

    def peer(self) -> str:
        """Return its host."""
        return peer_name(self._transport.get_extra_info("socket"))

    def has_spoken(self) -> bool:
        """Whether the first that comes is there and was not read yet. Once: of what is encrypted
        nobody knows whether it is a word, and a byte again and again is none."""
        if self._was_late or self._first:
            return False
        unread = bytearray(_UNREAD.size)
        try:
            fcntl.ioctl(self._transport.get_extra_info("socket"), termios.FIONREAD, unread)
        except (OSError, ValueError):
            return False  # it is closed
        self._was_late = _UNREAD.unpack(unread)[0] > 0
        return self._was_late

    def evict(self) -> None:
        """End at once."""
        self._transport.abort()

    def _refuse(self, protocol: str) -> None:
        context = self._context
        context.pending.log_refusal(self, protocol, self._first[:16])
        self._transport.write(context.within_tls.refusal(protocol, self._first))
        self._transport.close()


def is_whole_head(protocol: str, first: bytes) -> bool:
    """Whether these bytes have all of a request's head (HTTP) or of a ClientHello.

    True also if they are as many as are looked at.
    """
    if len(first) >= _LONGEST_HEAD_BYTES:
        return True
    if protocol == HTTP:
        return b"\r\n\r\n" in first or b"\n\n" in first
    if first[:1] != b"\x16":
        return True  # TLS has to say that this is none
    if len(first) < _RECORD_HEADER_BYTES:
        return False
    return len(first) >= _RECORD_HEADER_BYTES + int.from_bytes(first[3:5], "big")
