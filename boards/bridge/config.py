"""What serial ports are joined to, by options or by a TOML file, whose mistakes name the line.

::

    [defaults]                        # optional; for all ports that do not say otherwise
    to = "fmqp://127.0.0.1:8765"

    [[port]]
    name = "greenhouse"
    serial = "/dev/serial/by-id/usb-Raspberry_Pi_Pico_E6614…-if00"
    mode = "reliable"

    [[port]]
    serial = "/dev/ttyUSB1"
    listen = "127.0.0.1:7001"
    rfc2217 = true
"""

import ipaddress
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from msgspec import Meta
from msgspec.structs import asdict

from boards.network_line import read_token
from boards.runtime_folder import write_private
from boards.serial_port import SerialPort
from boards.toml_file import Section, TomlError, TomlFile, read_toml
from host_broker.address import Address, AddressError, parse_address

Mode = Literal["raw", "reliable"]
MODES: tuple[Mode, ...] = ("raw", "reliable")
DEFAULT_BAUD = 921600
MIN_BAUD = 300
DEFAULT_SILENCE_S = 2.0
MIN_SILENCE_S = 0.05

_TOKEN_BYTES = 24
_TLS_FILES = ("ca", "cert", "key")


class PlanError(ValueError):
    """Something in a plan cannot be; the text says what could."""


@dataclass(frozen=True, slots=True)
class PortSettings:
    """A serial port: device or URL, bits/s, and whether RTS/CTS hold the board back."""

    url: str
    baud: int
    rtscts: bool = False

    def open(self) -> SerialPort:
        """Open it. Raises ``PortError``."""
        return SerialPort.open(self.url, baud=self.baud, rtscts=self.rtscts)


@dataclass(frozen=True, slots=True)
class BridgePlan:
    """A port whose board is a client of ``broker``. ``silence_s`` is raw mode's.

    ``console``: where a terminal for the board's console is to be, of a board whose line is that.
    """

    name: str
    port: PortSettings
    broker: Address
    mode: Mode = "raw"
    silence_s: float = DEFAULT_SILENCE_S
    console: Path | None = None


@dataclass(frozen=True, slots=True)
class ExposePlan:
    """A port that one program at a time reaches by TCP.

    ``token`` is what it must say first, b"" with ``insecure``; ``token_file``: where it is, of one
    that the bridge has made itself.
    """

    name: str
    port: PortSettings
    host: str
    tcp_port: int
    rfc2217: bool = False
    token: bytes = field(default=b"", repr=False)
    insecure: bool = False
    token_file: Path | None = None


def broker_address(text: str) -> Address:
    """Read where a bridge leads to: any of the broker's addresses, or ``tcp://HOST:PORT``.

    Raises ``PlanError``.
    """
    try:
        if text.startswith(("tcp://", "tcps://")):
            return _plain_address(text)
        address = parse_address(text)
    except AddressError as error:
        raise PlanError(str(error)) from None
    if address.client_id:
        raise PlanError(f"'{text}' names a client, but the board itself says who it is")
    _check_files(text, address)
    return address


def _plain_address(text: str) -> Address:
    """Any server that takes the bytes: only the transport matters to a bridge."""
    address = parse_address(text.replace("tcp", "fmqp", 1))
    try:
        port = urlsplit(text).port
    except ValueError as error:
        raise PlanError(f"'{text}': {error}") from None
    if port is None:
        raise PlanError(f"'{text}' names no port; write {text.partition(':')[0]}://HOST:PORT")
    _check_files(text, address)
    return replace(address, protocol="tcp")


def _check_files(text: str, address: Address) -> None:
    for name in _TLS_FILES:
        path = address.options.get(name)
        if path and not Path(path).is_file():
            raise PlanError(f"'{text}': {name}={path} is no file")


def listen_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` or ``PORT``; without a host it is 127.0.0.1. Raises ``PlanError``."""
    host, _, port_text = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        port = int(port_text)
    except ValueError:
        port = -1
    if not 0 <= port <= 65535:
        raise PlanError(f"'{text}' is not HOST:PORT, e.g. 127.0.0.1:7001")
    return host, port


def check_exposure(host: str, token: bytes, *, insecure: bool) -> None:
    """Refuse to give a board to a whole network by accident. Raises ``PlanError``."""
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not (loopback or token or insecure):
        raise PlanError(
            f"whoever reaches {host} could use this board: give a token file, or say 'insecure' "
            "if everybody may, or listen on 127.0.0.1"
        )


def with_token(plan: ExposePlan, folder: Path) -> ExposePlan:
    """Return a plan that asks for a token: if it has none, and is not ``insecure``, a new one.

    It is in a file in ``folder``, the private runtime folder, so programs of this user can read it,
    and no others, nor a page in a browser. Raises ``OSError``.
    """
    if plan.token or plan.insecure:
        return plan
    token = secrets.token_hex(_TOKEN_BYTES).encode()
    name = re.sub(r"[^A-Za-z0-9._-]", "_", plan.name)
    path = folder / f"bridge-{name}-{plan.tcp_port}.token"
    write_private(path, token + b"\n")
    return replace(plan, token=token, token_file=path)


def console_of(path: str | None, mode: Mode) -> Path | None:
    """Return where the console's terminal is to be. Raises ``PlanError``."""
    if path and mode != "reliable":
        raise PlanError("a console beside messages takes the mode 'reliable'")
    return Path(path).absolute() if path else None


def token_of(path: str | None) -> bytes:
    """Return the token in a file, ``b""`` without a file. Raises ``PlanError``."""
    if path is None:
        return b""
    try:
        return read_token(path)
    except OSError as error:
        raise PlanError(f"token file {path}: {error.strerror}") from None
    except ValueError as error:
        raise PlanError(f"token file {error}") from None


Plan = BridgePlan | ExposePlan
MAX_PORTS = 256

_BRIDGE_ONLY = ("to", "mode", "silence_s", "console")
_EXPOSE_ONLY = ("listen", "rfc2217", "token_file", "insecure")
_NOT_FOR_ALL = ("name", "serial", "listen", "console")


class _Port(Section, frozen=True):
    name: str | None = None
    serial: Annotated[str, Meta(min_length=1)] | None = None
    baud: Annotated[int, Meta(ge=MIN_BAUD, le=2**31 - 1)] | None = None
    rtscts: bool | None = None
    to: Annotated[str, Meta(min_length=1)] | None = None
    mode: Mode | None = None
    silence_s: Annotated[float, Meta(ge=MIN_SILENCE_S)] | None = None
    console: Annotated[str, Meta(min_length=1)] | None = None
    listen: Annotated[str, Meta(min_length=1)] | None = None
    rfc2217: bool | None = None
    token_file: Annotated[str, Meta(min_length=1)] | None = None
    insecure: bool | None = None

    def said(self) -> dict[str, Any]:
        """Return the keys that are there."""
        return {key: value for key, value in asdict(self).items() if value is not None}


class _Bridges(Section, frozen=True):
    defaults: _Port = _Port()
    port: Any = ()


def load_config(path: Path) -> list[Plan]:
    """Return the plans of a file, in its order. Raises ``TomlError``."""
    toml = read_toml(path)
    defaults = toml.section(_Bridges).defaults.said()
    for key in defaults:
        if key in _NOT_FOR_ALL:
            raise toml.error(f"'{key}' is of one port only", f"defaults.{key}")
    ports = toml.rows(_Port, "port")
    if not 1 <= len(ports) <= MAX_PORTS:
        raise toml.error(f"{len(ports)} ports; write 1 to {MAX_PORTS} tables [[port]]")
    seen: dict[tuple[str, str], int] = {}
    return [_plan(toml, place, port.said(), defaults, seen) for place, port in ports]


def _plan(
    toml: TomlFile,
    place: str,
    own: dict[str, Any],
    defaults: dict[str, Any],
    seen: dict[tuple[str, str], int],
) -> Plan:
    if "serial" not in own:
        raise toml.error("this port has no 'serial'", place)
    if len(own.get("name", "-").split()) != 1:
        raise toml.error(f"port.name = {own['name']!r} is not one word", f"{place}.name")
    listens = "listen" in own
    if listens and "to" in own:
        raise toml.error(
            "a port has either 'to' (a broker) or 'listen' (whoever connects)", f"{place}.listen"
        )
    for key in _BRIDGE_ONLY if listens else _EXPOSE_ONLY:
        if key in own:
            with_or_without = "without" if listens else "with"
            raise toml.error(
                f"'{key}' is for ports {with_or_without} 'listen' only", f"{place}.{key}"
            )
    given = {**defaults, **own}
    if not listens and "to" not in given:
        raise toml.error(
            "this port has neither 'to' (a broker) nor 'listen' (whoever connects)", place
        )

    def wrong(key: str, error: PlanError) -> TomlError:
        return toml.error(str(error), f"{place if key in own else 'defaults'}.{key}")

    plan = plan_of(given, wrong)
    for what, value in (("name", plan.name), ("serial", plan.port.url)):
        other = seen.setdefault((what, value), toml.line(place))
        if other != toml.line(place):
            raise toml.error(f"{what} '{value}' is that of line {other} too", f"{place}.{what}")
    return plan


def plan_of(given: Mapping[str, Any], wrong: Callable[[str, PlanError], Exception]) -> Plan:
    """Return the plan of one port; ``given`` has the keys of a file, each of its type.

    ``wrong`` makes the exception that is raised: of the key that cannot be, and why.
    """
    name = given.get("name") or default_name(given["serial"])
    baud, rtscts = given.get("baud", DEFAULT_BAUD), given.get("rtscts", False)
    port = PortSettings(given["serial"], baud, rtscts)
    key = "listen" if "listen" in given else "to"
    try:
        if key == "listen":
            host, tcp_port = listen_address(given["listen"])
            token = token_of(given.get("token_file"))
            insecure, rfc2217 = given.get("insecure", False), given.get("rfc2217", False)
            check_exposure(host, token, insecure=insecure)
            return ExposePlan(name, port, host, tcp_port, rfc2217, token, insecure)
        broker = broker_address(given["to"])
        key = "console"
        mode = given.get("mode", "raw")
        silence_s = given.get("silence_s", DEFAULT_SILENCE_S)
        return BridgePlan(name, port, broker, mode, silence_s, console_of(given.get(key), mode))
    except PlanError as error:
        raise wrong(key, error) from None


def default_name(serial: str) -> str:
    """Return a short name for a port that was given none: the last part of its path or URL."""
    return serial.rstrip("/").rpartition("/")[2].partition("?")[0] or serial
