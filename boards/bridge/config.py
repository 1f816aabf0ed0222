"""The TOML file of many bridges; every complaint names the file and the line.

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

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from boards.bridge.port_plan import (
    DEFAULT_BAUD,
    DEFAULT_SILENCE_S,
    MIN_BAUD,
    MIN_SILENCE_S,
    BridgePlan,
    ExposePlan,
    Mode,
    PlanError,
    PortSettings,
    broker_address,
    check_exposure,
    console_of,
    listen_address,
    token_of,
)
from boards.toml_file import Section, TomlError, TomlFile, read_toml

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
