"""Addresses people type: where to listen, where to connect, for every protocol and transport.

``fmqp://host:port`` is plain TCP, ``fmqps://host:port?ca=FILE`` is TLS, ``fmqp+unix:///path`` is a
unix socket; the same for ``lightmq``, where ``/client-id`` (TCP, TLS) or ``?client_id=`` (unix)
names the client.
"""

import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

PROTOCOLS = ("fmqp", "lightmq")
DEFAULT_PORTS = {"fmqp": 1884, "lightmq": 1997}
DEFAULT_TLS_PORTS = {"fmqp": 8884, "lightmq": 8997}

Transport = Literal["tcp", "tls", "unix"]
_SUFFIXES: dict[Transport, str] = {"tcp": "", "tls": "s", "unix": "+unix"}
_SCHEMES: dict[str, tuple[str, Transport]] = {
    protocol + suffix: (protocol, transport)
    for protocol in PROTOCOLS
    for transport, suffix in _SUFFIXES.items()
}

LISTEN_OPTIONS: dict[Transport, Collection[str]] = {
    "tcp": ("slow",),
    "tls": ("slow", "cert", "key", "client_ca"),
    "unix": ("slow", "mode"),
}
CONNECT_OPTIONS: dict[Transport, Collection[str]] = {
    "tcp": (),
    "tls": ("ca", "cert", "key", "insecure"),
    "unix": ("client_id",),
}


class AddressError(ValueError):
    """An address cannot be read; the text says what is wrong and how to write it."""


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a connection.

    ``host`` and ``port`` are empty for a unix socket, ``path`` for all others. ``client_id`` is
    LightMQ's. ``options`` are what followed the ``?``; never part of the printed form.
    """

    protocol: str
    host: str = ""
    port: int = 0
    client_id: str = ""
    transport: Transport = "tcp"
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def scheme(self) -> str:
        """Protocol and transport in one word, e.g. ``fmqps``."""
        return self.protocol + _SUFFIXES[self.transport]

    def __str__(self) -> str:
        where = self.path if self.transport == "unix" else host_and_port(self.host, self.port)
        return f"{self.scheme}://{where}"


def host_and_port(host: str, port: int) -> str:
    """Write a host and port as one text, IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(
    text: str, options: Mapping[Transport, Collection[str]] = CONNECT_OPTIONS
) -> Address:
    """Read an address; a missing port is 1884 (FMQP; TLS 8884) or 1997 (LightMQ; TLS 8997).

    ``options`` names what may follow the ``?``, per transport. Raises ``AddressError``.
    """
    if "://" not in text:
        raise AddressError(f"'{text}' is no address; write it as fmqp://127.0.0.1:1884")
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
        given = _given(parts.query)
    except ValueError as error:
        raise AddressError(f"'{text}' is no address: {error}") from error
    if parts.scheme not in _SCHEMES:
        raise AddressError(
            f"'{text}': unknown protocol '{parts.scheme}'; there are: {', '.join(_SCHEMES)}"
        )
    protocol, transport = _SCHEMES[parts.scheme]
    if parts.fragment or parts.username is not None:
        raise AddressError(f"'{text}' has more than protocol, host, port and client id")
    for name in given:
        if name not in options[transport]:
            known = ", ".join(options[transport]) or "none"
            raise AddressError(f"'{text}': unknown option '{name}'; {parts.scheme} has: {known}")
    if transport == "unix":
        return _unix_address(text, protocol, parts, given)
    if not host:
        raise AddressError(f"'{text}' names no host; write e.g. {parts.scheme}://127.0.0.1:1884")
    client_id = urllib.parse.unquote(parts.path.removeprefix("/"))
    if client_id and protocol != "lightmq":
        raise AddressError(f"'{text}' ends in '{parts.path}', but only LightMQ has client ids")
    if port is None:
        port = (DEFAULT_TLS_PORTS if transport == "tls" else DEFAULT_PORTS)[protocol]
    return Address(protocol, host, port, client_id, transport, options=given)


def _given(query: str) -> dict[str, str]:
    given: dict[str, str] = {}
    if query:
        for name, value in urllib.parse.parse_qsl(
            query, keep_blank_values=True, strict_parsing=True
        ):
            if name in given:
                raise ValueError(f"option '{name}' is given twice")
            given[name] = value
    return given


def _unix_address(
    text: str, protocol: str, parts: urllib.parse.SplitResult, given: dict[str, str]
) -> Address:
    path = urllib.parse.unquote(parts.path)
    if parts.netloc or not path or path.endswith("/"):
        raise AddressError(f"'{text}' names no file; write e.g. {parts.scheme}:///run/motemq.sock")
    client_id = given.pop("client_id", "")
    if client_id and protocol != "lightmq":
        raise AddressError(f"'{text}' has a client_id, but only LightMQ has client ids")
    return Address(protocol, client_id=client_id, transport="unix", path=path, options=given)
