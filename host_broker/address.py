"""Addresses people type: where to listen, where to connect, for every protocol and transport.

``fmqp://host:port`` is plain TCP, ``fmqps://host:port?ca=FILE`` is TLS, ``fmqp+unix:///path`` is a
unix socket; the same for ``lightmq``, where ``/client-id`` (TCP, TLS) or ``?client_id=`` (unix)
names the client, and for ``lightmq+fmqp``, FMQP inside LightMQ. To listen there is also ``http``,
and ``auto``: FMQP, LightMQ and HTTP, told apart by their first bytes.
"""

import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

CARRIED = "lightmq+fmqp"  # FMQP inside LightMQ
NAMED = ("lightmq", CARRIED)  # their clients have a name
PROTOCOLS = ("fmqp", *NAMED)
AUTO = "auto"  # listens for all of them that begin differently
HTTP = "http"  # the journal, for programs
_LISTENERS_ONLY = (AUTO, HTTP)
DEFAULT_PORT = 8765  # for those, as one listener can serve all
CARRIED_PORT = 8766

Transport = Literal["tcp", "tls", "unix"]
_SUFFIXES: dict[Transport, str] = {"tcp": "", "tls": "s", "unix": "+unix"}
_SCHEMES: dict[str, tuple[str, Transport]] = {
    protocol + suffix: (protocol, transport)
    for protocol in (*PROTOCOLS, *_LISTENERS_ONLY)
    for transport, suffix in _SUFFIXES.items()
}

# By transport; a scheme that differs has a line of its own.
LISTEN_OPTIONS: dict[str, Collection[str]] = {
    AUTO: ("slow", "cert", "key", "client_ca"),  # it recognises TLS, too
    "tcp": ("slow",),
    "tls": ("slow", "cert", "key", "client_ca"),
    "unix": ("slow", "mode"),
}
CONNECT_OPTIONS: dict[str, Collection[str]] = {
    "tcp": (),
    "tls": ("ca", "cert", "key", "insecure"),
    "unix": ("client_id",),
}
# Who has a name can have a token, too (the broker's lightmq.clients).
CONNECT_OPTIONS |= {
    name + suffix: (*CONNECT_OPTIONS[transport], "token_file")
    for name in NAMED
    for transport, suffix in _SUFFIXES.items()
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


def parse_address(text: str, options: Mapping[str, Collection[str]] = CONNECT_OPTIONS) -> Address:
    """Read an address; a missing port is 8765, that of ``lightmq+fmqp`` 8766.

    ``options`` names what may follow the ``?``: those of a listener or of a client. Raises
    ``AddressError``.
    """
    if "://" not in text:
        raise AddressError(f"'{text}' is no address; write it as fmqp://127.0.0.1:{DEFAULT_PORT}")
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
        given = _given(parts.query)
    except ValueError as error:
        raise AddressError(f"'{text}' is no address: {error}") from error
    schemes = [
        name
        for name, (known, _) in _SCHEMES.items()
        if known not in _LISTENERS_ONLY or AUTO in options
    ]
    protocol, transport = _SCHEMES.get(parts.scheme, ("", "tcp"))
    if protocol == AUTO and parts.scheme not in schemes:
        said = text.replace(AUTO, "fmqp", 1)
        raise AddressError(
            f"'{text}': a broker listens like this, a client says which protocol it speaks: {said}"
        )
    if parts.scheme not in schemes:
        raise AddressError(
            f"'{text}': unknown protocol '{parts.scheme}'; there are: {', '.join(schemes)}"
        )
    if parts.fragment or parts.username is not None:
        raise AddressError(f"'{text}' has more than protocol, host, port and client id")
    for name in given:
        allowed = options.get(parts.scheme, options[transport])
        if name not in allowed:
            known = ", ".join(allowed) or "none"
            raise AddressError(f"'{text}': unknown option '{name}'; {parts.scheme} has: {known}")
    if transport == "unix":
        return _unix_address(text, protocol, parts, given)
    if not host:
        raise AddressError(
            f"'{text}' names no host; write e.g. {parts.scheme}://127.0.0.1:{DEFAULT_PORT}"
        )
    client_id = urllib.parse.unquote(parts.path.removeprefix("/"))
    if client_id and protocol not in NAMED:
        raise AddressError(f"'{text}' ends in '{parts.path}', but only LightMQ has client ids")
    if port is None:
        port = CARRIED_PORT if protocol == CARRIED else DEFAULT_PORT
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
    if client_id and protocol not in NAMED:
        raise AddressError(f"'{text}' has a client_id, but only LightMQ has client ids")
    return Address(protocol, client_id=client_id, transport="unix", path=path, options=given)
