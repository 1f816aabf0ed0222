"""Addresses people type: where to listen, where to connect, for every protocol and transport.

``PROTOCOL://host:port`` is plain TCP, ``PROTOCOLs://host:port?ca=FILE`` is TLS,
``PROTOCOL+unix:///path`` is a unix socket. Which protocols there are, and what else their addresses
may say (a user, the client's name), the registry knows. To listen there is also ``http``, and
``auto``: every protocol, told apart by the first bytes.
"""

import contextlib
import urllib.parse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from host_broker.protocol import DEFAULT_PORT as DEFAULT_PORT
from host_broker.protocol import AddressForm
from host_broker.registry import protocols

AUTO = "auto"  # listens for all of them that begin differently
HTTP = "http"  # the journal, for programs
_LISTENERS_ONLY = {
    AUTO: AddressForm(name=AUTO, title="every protocol"),
    HTTP: AddressForm(name=HTTP, title="HTTP"),
}

_MOST_PORT = 65_535

Transport = Literal["tcp", "tls", "unix"]
_SUFFIXES: dict[Transport, str] = {"tcp": "", "tls": "s", "unix": "+unix"}

# By transport; a scheme that differs has a line of its own.
LISTEN_OPTIONS: dict[str, Collection[str]] = {
    AUTO: ("slow", "principal", "cert", "key", "client_ca"),  # it recognises TLS, too
    "tcp": ("slow", "principal"),
    "tls": ("slow", "principal", "cert", "key", "client_ca"),
    "unix": ("slow", "principal", "mode"),
}
_CONNECT_OPTIONS: dict[Transport, Collection[str]] = {
    "tcp": (),
    "tls": ("ca", "cert", "key", "insecure"),
    "unix": (),
}
# A unix socket's path is a file, so what others say in the path is an option there.
_PATH_OPTION = {"none": "", "client": "client_id", "free": "path"}


class AddressError(ValueError):
    """An address cannot be read; the text says what is wrong and how to write it."""


@dataclass(frozen=True, slots=True)
class Address:
    """One end of a connection.

    ``host`` and ``port`` are empty for a unix socket, ``path`` (its file) for all others. ``user``,
    ``client_id`` and ``words`` (a path of the protocol's own) are "" unless the protocol has them.
    ``options`` are what followed the ``?``; never part of the printed form.
    """

    protocol: str
    host: str = ""
    port: int = 0
    client_id: str = ""
    transport: Transport = "tcp"
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    user: str = ""
    words: str = ""

    @property
    def scheme(self) -> str:
        """Protocol and transport in one word, e.g. ``fmqps``."""
        return self.protocol + _SUFFIXES[self.transport]

    @property
    def local(self) -> bool:
        """Whether it can only be on this machine."""
        if self.transport == "unix":
            return True
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def __str__(self) -> str:
        where = self.path if self.transport == "unix" else host_and_port(self.host, self.port)
        return f"{self.scheme}://{where}"


def host_and_port(host: str, port: int) -> str:
    """Write a host and port as one text, IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str, options: Mapping[str, Collection[str]] | None = None) -> Address:
    """Read an address; a missing port is the protocol's own.

    ``options``: ``LISTEN_OPTIONS`` for where to listen; None: for where to connect. Raises
    ``AddressError``, and ``RegistryError`` if the protocol is of a broken package.
    """
    if "://" not in text:
        raise AddressError(f"'{text}' is no address; write it as {_completed(text)}")
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
        given = _given(parts.query)
    except ValueError as error:
        raise AddressError(f"'{text}' is no address: {error}") from error
    spec, transport = _scheme(text, parts.scheme, listens=options is not None)
    if parts.password is not None:
        raise AddressError(
            f"'{parts.scheme}://{parts.username}:…@{host}' has a password; everybody who lists "
            "processes would see it"
        )
    if parts.fragment:
        raise AddressError(f"'{text}' has more than protocol, host, port and path")
    if parts.username is not None and not spec.user:
        raise AddressError(f"'{text}' names a user, but {spec.title} has none")
    name = _PATH_OPTION[spec.path]
    if options is not None:
        allowed = options.get(parts.scheme, options[transport])
    else:
        allowed = (*_CONNECT_OPTIONS[transport], *spec.connect_options)
        if transport == "unix":
            allowed += tuple(filter(None, (name, "user" if spec.user else "")))
    for option in given:
        if option not in allowed:
            known = ", ".join(allowed) or "none"
            if option == "client_id" and transport == "unix":
                raise AddressError(f"'{text}' has a client_id, but only {_named()} client ids")
            raise AddressError(f"'{text}': unknown option '{option}'; {parts.scheme} has: {known}")
    if transport == "unix":
        file = urllib.parse.unquote(parts.path)
        if parts.netloc or not file or file.endswith("/"):
            how = "?user=NAME" if parts.username is not None else ""
            raise AddressError(
                f"'{text}' names no file; write e.g. {parts.scheme}:///run/motemq.sock{how}"
            )
        said, user = given.pop(name, ""), given.pop("user", "")
        where = {"path": file}
    else:
        if not host:
            raise AddressError(
                f"'{text}' names no host; write e.g. {parts.scheme}://127.0.0.1:{spec.port}"
            )
        said = urllib.parse.unquote(parts.path.removeprefix("/"))
        if said and spec.path == "none":
            raise AddressError(f"'{text}' ends in '{parts.path}', but only {_named()} client ids")
        user = urllib.parse.unquote(parts.username or "")
        where = {"host": host}
    return Address(
        spec.name,
        port=0 if transport == "unix" else spec.port if port is None else port,
        client_id=said if spec.path == "client" else "",
        words=said if spec.path == "free" else "",
        transport=transport,
        options=given,
        user=user,
        **where,
    )


def _completed(text: str) -> str:
    """Return the address that somebody may mean who left the protocol out."""
    spec = next(iter(protocols().values()))
    name, colon, rest = text.partition(":")
    if colon and name in protocols() and not rest.isdecimal():  # a slash or two are missing
        spec, text = protocols()[name], rest.lstrip("/")
    host, port = "127.0.0.1", spec.port
    if text.isdecimal():
        port = int(text) if int(text) <= _MOST_PORT else port
    elif text.count(":") > 1 and "[" not in text:
        host = text  # IPv6
    else:
        with contextlib.suppress(ValueError):
            parts = urllib.parse.urlsplit(f"//{text}")
            host, port = parts.hostname or host, parts.port or port
    return f"{spec.name}://{host_and_port(host, port)}"


def _scheme(text: str, scheme: str, *, listens: bool) -> tuple[AddressForm, Transport]:
    for transport, suffix in _SUFFIXES.items():
        name = scheme.removesuffix(suffix)
        if not scheme.endswith(suffix):
            continue
        if name in _LISTENERS_ONLY and listens:
            return _LISTENERS_ONLY[name], transport
        if name in protocols():
            return protocols()[name], transport
        if name == AUTO:
            said = text.replace(AUTO, next(iter(protocols())), 1)
            raise AddressError(
                f"'{text}': a broker listens like this, a client says which protocol it speaks: "
                f"{said}"
            )
    names = [*protocols(), *(_LISTENERS_ONLY if listens else ())]
    schemes = [name + suffix for name in names for suffix in _SUFFIXES.values()]
    raise AddressError(f"'{text}': unknown protocol '{scheme}'; there are: {', '.join(schemes)}")


def _named() -> str:
    """Return whose clients have a name, and the verb that goes with it."""
    titles = [spec.title for spec in protocols().values() if spec.path == "client"]
    if len(titles) < 2:
        return f"{''.join(titles) or 'no other'} has"
    return f"{', '.join(titles[:-1])} and {titles[-1]} have"


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
