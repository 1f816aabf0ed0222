"""Addresses people type: ``fmqp://host:port`` and ``lightmq://host:port/client-id``."""

import urllib.parse
from dataclasses import dataclass

PROTOCOLS = ("fmqp", "lightmq")
DEFAULT_PORTS = {"fmqp": 1884, "lightmq": 1997}


class AddressError(ValueError):
    """An address cannot be read; the text says what is wrong and how to write it."""


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a connection: protocol, host, TCP port and, for LightMQ clients, the ClientID."""

    protocol: str
    host: str
    port: int
    client_id: str = ""

    def __str__(self) -> str:
        return f"{self.protocol}://{host_and_port(self.host, self.port)}"


def host_and_port(host: str, port: int) -> str:
    """Write a host and port as one text, IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """Read an address; a missing port is 1884 (FMQP) or 1997 (LightMQ).

    Raises ``AddressError``.
    """
    if "://" not in text:
        raise AddressError(f"'{text}' is no address; write it as fmqp://127.0.0.1:1884")
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise AddressError(f"'{text}' is no address: {error}") from error
    if parts.scheme not in PROTOCOLS:
        raise AddressError(
            f"'{text}': unknown protocol '{parts.scheme}'; there are: {', '.join(PROTOCOLS)}"
        )
    if not host:
        raise AddressError(f"'{text}' names no host; write e.g. {parts.scheme}://127.0.0.1:1884")
    if parts.query or parts.fragment or parts.username is not None:
        raise AddressError(f"'{text}' has more than protocol, host, port and client id")
    client_id = urllib.parse.unquote(parts.path.removeprefix("/"))
    if client_id and parts.scheme != "lightmq":
        raise AddressError(f"'{text}' ends in '{parts.path}', but only LightMQ has client ids")
    return Address(
        parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port, client_id
    )
