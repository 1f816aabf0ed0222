"""One listener: its bound socket, its TLS, what it does with slow receivers, who is told apart."""

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass

from host_broker.address import AUTO, HTTP, Address, host_and_port
from host_broker.net.connection.overflow import POLICIES, Policy
from host_broker.net.connection.poller import Poller
from host_broker.net.connection.stream import Stream
from host_broker.net.listening.acceptor import Acceptor
from host_broker.net.listening.detection import (
    ListenerContext,
    OneProtocol,
    ProtocolDetector,
    Recogniser,
)
from host_broker.net.listening.handshakes import Handshakes
from host_broker.net.listening.listen_error import ListenError
from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.port_owner import port_owner
from host_broker.net.listening.slots import CountedSocket, Slots
from host_broker.net.listening.tls import has_certificate, server_context
from host_broker.net.listening.unix_socket import bind_unix, remove_unix
from host_broker.net.live_settings import LiveSettings
from host_broker.recognition import BesideHttp, Recognition
from host_broker.registry import protocols
from host_broker.settings import NetSettings

# Connections that wait to be accepted. When they are too many the kernel ignores new ones, which
# try again after 1, 3, 7, 15, 31 s: to their user that is a hang. Linux allows 4096 by default.
_BACKLOG = 4096


@dataclass(frozen=True, slots=True)
class Edge:
    """What the listeners of a broker share."""

    live: LiveSettings
    poller: Poller
    slots: Slots
    pending: PendingConnections
    handshakes: Handshakes


class Listener:
    """Bound when made, accepting after ``start``, gone after ``close``."""

    def __init__(
        self,
        address: Address,
        settings: NetSettings,
        insecure: bool,
        authenticated: bool = False,
    ) -> None:
        """Bind. ``authenticated``: whoever connects must say who it is and is known, beside those
        with certificates. Other machines are let in by TLS and so only, unless ``insecure``.
        Raises ``ListenError``."""
        if address.client_id or address.user or address.words:
            raise ListenError(f"--listen {address}: a listener has no client id, user or path")
        self.slow = _policy(address, settings)
        self.protocol = address.protocol
        self.principal = address.options.get("principal", "")
        if self.principal and address.protocol == HTTP:
            raise ListenError(f"--listen {address}: with HTTP each request says who asks")
        self.insecure = False  # open to other machines, though it should not be
        self._insecure_allowed = insecure
        # Some protocols have a word for whoever comes while the broker stops; FMQP has none (R33).
        spec = protocols().get(address.protocol)
        self.answers_until_stopped = (
            spec.answers_until_stopped if spec is not None else address.protocol == AUTO
        )
        self._has_pages = spec is not None and bool(spec.pages)  # so it speaks HTTP, too
        self.address = address
        self._tls = address.transport == "tls"  # from the first byte on
        self._certificate: ssl.SSLContext | None = None  # that of the start
        self._context: ListenerContext | None = None
        self._inode = 0
        self._accepting: Acceptor | None = None
        if address.transport == "unix":
            self._socket = bind_unix(address, _BACKLOG)
            self._inode = os.stat(address.path).st_ino
            return
        self._certificate = self.certificate(settings)
        secure = self._is_secure(self._certificate, authenticated)
        self._socket, self.insecure = _bind_tcp(address, secure=secure, insecure=insecure)

    def __str__(self) -> str:
        """``fmqp 127.0.0.1:8765``, ``fmqps …``, ``fmqp+unix /path``: the ready line."""
        name = self._socket.getsockname()
        where = name if self._socket.family == socket.AF_UNIX else host_and_port(*name[:2])
        return f"{self.address.scheme} {where}"

    def start(
        self,
        connection: Callable[[str], asyncio.Protocol],
        edge: Edge,
        speaks: Collection[str],
    ) -> None:
        """Accept; ``connection`` makes the asyncio protocol of each client, given its protocol.

        ``speaks`` are those that can be given. Plain sockets are the poller's, TLS is asyncio's.
        """
        loop = asyncio.get_running_loop()
        protocol = self.protocol
        recognition: Recogniser = Recognition(protocols().values())
        if self._has_pages:
            recognition = BesideHttp(protocols().values(), protocol)
        context = self._context = ListenerContext(
            str(self),
            edge.live,
            connection,
            edge.poller,
            edge.pending,
            edge.handshakes,
            speaks,
            recognition,
            recognition,
            self._certificate,
        )
        if self._tls:
            context.recogniser = OneProtocol("tls")
            context.only_tls = True
            if protocol == HTTP:
                context.within_tls = BesideHttp(protocols().values())
            elif protocol != AUTO and not self._has_pages:
                context.inside = lambda: connection(protocol)
        elif protocol == HTTP:
            context.recogniser = BesideHttp(protocols().values())

        def detect(sock: CountedSocket) -> None:
            ProtocolDetector(sock, context).start()

        def connect(sock: CountedSocket) -> None:
            Stream(sock, connection(protocol), edge.poller, loop).start()

        known = not self._tls and protocol not in (AUTO, HTTP) and not self._has_pages
        if known:
            self._accepting = Acceptor(self._socket, edge.slots, connect)
        else:
            self._accepting = Acceptor(self._socket, edge.slots, detect, edge.pending)

    def certificate(self, settings: NetSettings) -> ssl.SSLContext | None:
        """Load the certificate, None if this listener has none. Raises ``ListenError``."""
        if not self._may_have_certificate(settings):
            return None
        return server_context(self.address, settings)

    def check(self, certificate: ssl.SSLContext | None, authenticated: bool) -> None:
        """Raise ``ListenError`` if other settings would open it to other machines.

        It was not, so whoever has started it does not expect that. ``authenticated`` as at first.
        """
        if self.address.transport == "unix" or self._insecure_allowed:
            return
        host = str(self._socket.getsockname()[0])
        if _is_exposed(host) and not self._is_secure(certificate, authenticated):
            raise ListenError(_exposed(self.address))

    def use_certificate(self, certificate: ssl.SSLContext | None) -> None:
        """Have those who come from now on be shown this one."""
        if self._context is not None:
            self._context.tls = certificate

    def close(self) -> None:
        """Accept no more; harmless when closed already."""
        if self._inode:
            remove_unix(self._socket, self._inode)
            self._inode = 0
        if self._accepting is not None:
            self._accepting.close()
        self._socket.close()

    def _is_secure(self, certificate: ssl.SSLContext | None, authenticated: bool) -> bool:
        """Whether everybody who connects is hidden from others and known."""
        if not self._tls or certificate is None:
            return False
        return authenticated or certificate.verify_mode == ssl.CERT_REQUIRED

    def _may_have_certificate(self, settings: NetSettings) -> bool:
        address = self.address
        if address.transport == "unix":
            return False
        return self._tls or (address.protocol == AUTO and has_certificate(address, settings))


def _policy(address: Address, settings: NetSettings) -> Policy:
    wanted = address.options.get("slow", settings.slow_consumer)
    for policy in POLICIES:
        if policy == wanted:
            return policy
    raise ListenError(f"{address}: slow is '{wanted}', it must be one of {', '.join(POLICIES)}")


def _bind_tcp(address: Address, *, secure: bool, insecure: bool) -> tuple[socket.socket, bool]:
    """Return a listening socket, and whether it is open to other machines without being ``secure``.

    Port 0 is any free one. What is not secure listens on loopback only, unless ``insecure``.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {address}: {error}") from error
    host = str(where[0])
    exposed = not secure and _is_exposed(host)
    if exposed and not insecure:
        raise ListenError(_exposed(address))
    try:
        made = socket.create_server((host, address.port), family=family, backlog=_BACKLOG)
        return made, exposed
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {_reason(error, address.port)}") from error


def _is_exposed(host: str) -> bool:
    return not ipaddress.ip_address(host.partition("%")[0]).is_loopback


def _exposed(address: Address) -> str:
    """Say why an address is refused."""
    lacks = "authentication" if address.transport == "tls" else "encryption and authentication"
    named = "principal=NAME is nobody's proof; " if "principal" in address.options else ""
    return (
        f"{address} can be reached from other machines, without {lacks}; {named}listen on "
        f"127.0.0.1 or with {address.protocol}s://, and with users (access.users) or "
        "client_ca=FILE, or add --insecure-bind if that is what you want"
    )


def _reason(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port) or "another process"
        return f"port {port} is in use by {owner}; stop it or choose another port (0 = any)"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for root; choose one above 1023"
    return error.strerror or str(error)
