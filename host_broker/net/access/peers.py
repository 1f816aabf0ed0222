"""What a socket tells of its other end."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from host_broker.access.access import Peer
from host_broker.net.connection.tuning import is_local, peer_name, peer_port, peer_uid


def peer_of(transport: asyncio.BaseTransport, listener: str = "") -> Peer:
    """Return who is there; ``listener``: the name that its listener gives everybody."""
    sock: socket.socket = transport.get_extra_info("socket")
    return Peer(
        peer_name(sock),
        is_local(sock),
        _common_name(transport.get_extra_info("peercert")),
        peer_uid(sock),
        listener,
        transport.get_extra_info("sslcontext") is not None,
        peer_port(sock),
    )


def _common_name(certificate: Mapping[str, Any] | None) -> str:
    """Return the name in a certificate that was verified; "" if there is none."""
    subject: Sequence[Sequence[tuple[str, str]]] = (certificate or {}).get("subject", ())
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else ""
