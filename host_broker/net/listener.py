"""One listener: its bound socket, its TLS, what it does with slow receivers, who is told apart."""

import asyncio
import errno
import functools
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Collection

from host_broker.address import AUTO, NAMED, Address, host_and_port
from host_broker.net.acceptor import Acceptor
from host_broker.net.listen_error import ListenError
from host_broker.net.lobby import House, Lobby
from host_broker.net.newcomer import Newcomer
from host_broker.net.poller import Poller
from host_broker.net.port_owner import port_owner
from host_broker.net.slow import POLICIES, Policy
from host_broker.net.stream import Stream
from host_broker.net.tls import has_certificate, server_context
from host_broker.net.unix_socket import bind_unix, remove_unix
from host_broker.net.unveiled import Unveiled
from host_broker.protocols.registry import PROTOCOLS
from host_broker.settings import NetSettings

# Connections that wait to be accepted. When they are too many the kernel ignores new ones, which
# try again after 1, 3, 7, 15, 31 s: to their user that is a hang. Linux allows 4096 by default.
_BACKLOG = 4096
_TLS_GOODBYE_S = 5.0  # for a peer to answer our close_notify


class Listener:
    """Bound when made, accepting after ``start``, gone after ``close``."""

    def __init__(self, address: Address, settings: NetSettings, insecure: bool) -> None:
        """Bind. Raises ``ListenError``."""
        if address.client_id:
            raise ListenError(f"--listen {address}: a listener has no client id")
        self.slow = _policy(address, settings)
        # LightMQ has a word for whoever comes while the broker stops; FMQP has none (R33).
        self.answers_until_the_end = address.protocol in (AUTO, *NAMED)
        self.protocol = address.protocol
        self._scheme = address.scheme
        self._tls = address.transport == "tls"  # from the first byte on
        self._settings = settings
        self._context: ssl.SSLContext | None = None
        self._inode = 0
        self._accepting: asyncio.Server | Acceptor | None = None
        self._lobby: Lobby | None = None
        if address.transport == "unix":
            self._socket = bind_unix(address, _BACKLOG)
            self._inode = os.stat(address.path).st_ino
            return
        if self._tls or (address.protocol == AUTO and has_certificate(address, settings)):
            self._context = server_context(address, settings)
        self._socket = _bind_tcp(address, insecure)

    def __str__(self) -> str:
        """``fmqp 127.0.0.1:8765``, ``fmqps …``, ``fmqp+unix /path``: the ready line."""
        name = self._socket.getsockname()
        where = name if self._socket.family == socket.AF_UNIX else host_and_port(*name[:2])
        return f"{self._scheme} {where}"

    async def start(
        self,
        connection: Callable[[str], asyncio.Protocol],
        poller: Poller,
        speaks: Collection[str] = PROTOCOLS,
    ) -> None:
        """Accept; ``connection`` makes the asyncio protocol of each client, given its protocol.

        ``speaks`` are those that can be given. Plain sockets are the poller's, TLS is asyncio's.
        """
        loop = asyncio.get_running_loop()
        if self.protocol == AUTO:
            lobby = self._lobby = Lobby(
                House(str(self), self._settings, connection, poller, self._context, speaks)
            )
        if self._tls:
            self._accepting = await loop.create_server(
                functools.partial(Unveiled, lobby)
                if self.protocol == AUTO
                else functools.partial(connection, self.protocol),
                sock=self._socket,
                backlog=_BACKLOG,
                ssl=self._context,
                ssl_handshake_timeout=self._settings.tls_handshake_s,
                ssl_shutdown_timeout=_TLS_GOODBYE_S,
            )
        elif self.protocol == AUTO:
            self._accepting = Acceptor(self._socket, lambda sock: Newcomer(sock, lobby).enter())
        else:
            protocol = self.protocol
            self._accepting = Acceptor(
                self._socket,
                lambda sock: Stream(sock, connection(protocol), poller, loop).start(),
            )

    def close(self) -> None:
        """Accept no more; harmless when closed already."""
        if self._inode:
            remove_unix(self._socket, self._inode)
            self._inode = 0
        if self._accepting is not None:
            self._accepting.close()
        if self._lobby is not None:
            self._lobby.close()
        self._socket.close()


def _policy(address: Address, settings: NetSettings) -> Policy:
    wanted = address.options.get("slow", settings.slow_consumer)
    for policy in POLICIES:
        if policy == wanted:
            return policy
    raise ListenError(f"{address}: slow is '{wanted}', it must be one of {', '.join(POLICIES)}")


def _bind_tcp(address: Address, insecure: bool) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Without TLS only loopback, unless ``insecure``: nothing then hides what is said.
    """
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {address}: {error}") from error
    host = str(where[0])
    open_to_all = not insecure and address.transport != "tls"
    if open_to_all and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise ListenError(
            f"{address} can be reached from other machines, without encryption or passwords; "
            f"listen on 127.0.0.1 or with {address.protocol}s://, or add --insecure-bind if that "
            "is what you want"
        )
    try:
        return socket.create_server((host, address.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ListenError(f"cannot listen on {address}: {_reason(error, address.port)}") from error


def _reason(error: OSError, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port) or "another process"
        return f"port {port} is in use by {owner}; stop it or choose another port (0 = any)"
    if error.errno == errno.EACCES:
        return f"port {port} is reserved for root; choose one above 1023"
    return error.strerror or str(error)
