"""Bind a listening socket, or say clearly why not."""

import errno
import ipaddress
import socket

from host_broker.address import Address
from host_broker.net.port_owner import port_owner

_BACKLOG = 1024


class ListenError(Exception):
    """An address cannot be listened on; the text is one line for its user."""


def bind(address: Address, insecure: bool) -> socket.socket:
    """Return a listening socket; port 0 is any free one.

    Only loopback unless ``insecure``: nothing on these ports asks who is there or hides what is
    said. Raises ``ListenError``.
    """
    if address.client_id:
        raise ListenError(f"--listen {address}/{address.client_id}: a listener has no client id")
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ListenError(f"cannot listen on {address}: {error}") from error
    host = str(where[0])
    if not insecure and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        raise ListenError(
            f"{address} can be reached from other machines, without encryption or passwords; "
            "listen on 127.0.0.1, or add --insecure-bind if that is what you want"
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
