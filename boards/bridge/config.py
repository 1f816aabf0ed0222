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
from typing import Any

from boards.bridge.port_plan import (
    DEFAULT_BAUD,
    DEFAULT_SILENCE_S,
    MIN_BAUD,
    MIN_SILENCE_S,
    MODES,
    BridgePlan,
    ExposePlan,
    PlanError,
    PortSettings,
    broker_address,
    check_exposure,
    console_of,
    listen_address,
    token_of,
)
from boards.toml_file import Table, TomlError, read_table

Plan = BridgePlan | ExposePlan
MAX_PORTS = 256

_BRIDGE_ONLY = ("to", "mode", "silence_s", "console")
_EXPOSE_ONLY = ("listen", "rfc2217", "token_file", "insecure")
_NOT_FOR_ALL = ("name", "serial", "listen", "console")


def _one_word(table: Table, key: str) -> str:
    if len((name := table.text(key)).split()) != 1:
        raise table.error(f"{key} = {name!r} is not one word", key)
    return name


def _silence_s(table: Table, key: str) -> float:
    silence_s: float = table.take(key, float)
    if not MIN_SILENCE_S <= silence_s < float("inf"):
        raise table.error(f"{key} = {silence_s:g} is not {MIN_SILENCE_S:g} or more seconds", key)
    return silence_s


_KEYS: Mapping[str, Callable[[Table, str], Any]] = {
    "name": _one_word,
    "serial": Table.text,
    "baud": lambda table, key: table.number(key, MIN_BAUD, 2**31 - 1),
    "rtscts": lambda table, key: table.take(key, bool),
    "to": Table.text,
    "mode": lambda table, key: table.choice(key, MODES),
    "silence_s": _silence_s,
    "console": Table.text,
    "listen": Table.text,
    "rfc2217": lambda table, key: table.take(key, bool),
    "token_file": Table.text,
    "insecure": lambda table, key: table.take(key, bool),
}


def load_config(path: Path) -> list[Plan]:
    """Return the plans of a file, in its order. Raises ``TomlError``."""
    top = read_table(path)
    shared, ports = top.table("defaults"), top.rows("port")
    top.end()
    if not 1 <= len(ports) <= MAX_PORTS:
        raise top.error(f"{len(ports)} ports; write 1 to {MAX_PORTS} tables [[port]]")
    defaults = _values(shared)
    for key in defaults:
        if key in _NOT_FOR_ALL:
            raise shared.error(f"'{key}' is of one port only", key)
    seen: dict[tuple[str, str], int] = {}
    return [_plan(table, shared, defaults, seen) for table in ports]


def _values(table: Table) -> dict[str, Any]:
    """Return what a table says."""
    values = {key: take(table, key) for key, take in _KEYS.items() if key in table}
    table.end()
    return values


def _plan(
    table: Table, shared: Table, defaults: dict[str, Any], seen: dict[tuple[str, str], int]
) -> Plan:
    own = _values(table)
    if "serial" not in own:
        raise table.error("this port has no 'serial'")
    listens = "listen" in own
    if listens and "to" in own:
        raise table.error(
            "a port has either 'to' (a broker) or 'listen' (whoever connects)", "listen"
        )
    for key in _BRIDGE_ONLY if listens else _EXPOSE_ONLY:
        if key in own:
            with_or_without = "without" if listens else "with"
            raise table.error(f"'{key}' is for ports {with_or_without} 'listen' only", key)
    given = {**defaults, **own}
    if not listens and "to" not in given:
        raise table.error("this port has neither 'to' (a broker) nor 'listen' (whoever connects)")

    def wrong(key: str, error: PlanError) -> TomlError:
        return (table if key in own else shared).error(str(error), key)

    plan = plan_of(given, wrong)
    for what, value in (("name", plan.name), ("serial", plan.port.url)):
        other = seen.setdefault((what, value), table.line())
        if other != table.line():
            raise table.error(f"{what} '{value}' is that of line {other} too", what)
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
            check_exposure(host, token, insecure=given.get("insecure", False))
            return ExposePlan(name, port, host, tcp_port, given.get("rfc2217", False), token)
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
