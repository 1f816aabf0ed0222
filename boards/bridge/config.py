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

import re
import tomllib
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
    broker_address,
    check_exposure,
    console_of,
    listen_address,
    token_of,
)
from boards.bridge.port_settings import PortSettings

Plan = BridgePlan | ExposePlan
MAX_PORTS = 256
_MAX_FILE_BYTES = 1024 * 1024

_BRIDGE_ONLY = ("to", "mode", "silence_s", "console")
_EXPOSE_ONLY = ("listen", "rfc2217", "token_file", "insecure")


class ConfigError(Exception):
    """The file cannot be used; one line: ``FILE:LINE: what is wrong and what would be right``."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# What each key must be, in words and as a check.
_KEYS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "name": ("a text of one word", lambda v: isinstance(v, str) and bool(v) and not v.split()[1:]),
    "serial": ("a device or a URL, as text", lambda v: isinstance(v, str) and bool(v)),
    "baud": (
        f"a whole number of bits/s, {MIN_BAUD} or more",
        lambda v: isinstance(v, int) and not isinstance(v, bool) and MIN_BAUD <= v < 1 << 31,
    ),
    "rtscts": ("true or false", lambda v: isinstance(v, bool)),
    "to": ("the broker's address, as text", lambda v: isinstance(v, str)),
    "mode": ("one of " + ", ".join(MODES), lambda v: v in MODES),
    "silence_s": (
        f"a number of seconds, {MIN_SILENCE_S:g} or more",
        lambda v: _is_number(v) and MIN_SILENCE_S <= v < float("inf"),
    ),
    "console": ("a file's name, as text", lambda v: isinstance(v, str) and bool(v)),
    "listen": ("HOST:PORT, as text", lambda v: isinstance(v, str)),
    "rfc2217": ("true or false", lambda v: isinstance(v, bool)),
    "token_file": ("a file's name, as text", lambda v: isinstance(v, str) and bool(v)),
    "insecure": ("true or false", lambda v: isinstance(v, bool)),
}
_NOT_FOR_ALL = ("name", "serial", "listen", "console")


def load_config(path: Path) -> list[Plan]:
    """Return the plans of a file, in its order. Raises ``ConfigError``."""
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_FILE_BYTES + 1)
        text = raw.decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError(f"{path}:{line}: is not UTF-8") from None
    if len(raw) > _MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than {_MAX_FILE_BYTES} bytes; is it the right file?")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_not_toml(path, text, error)) from None
    return _Reader(path, text).plans(document)


def _not_toml(path: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    """``Expected '=' (at line 3, column 5)`` -> ``FILE:3: is not TOML: Expected '='``."""
    found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error))
    if found is None:
        return f"{path}: is not TOML: {error}"
    line = int(found[2]) if found[2] else max(1, len(text.splitlines()))
    return f"{path}:{line}: is not TOML: {found[1]}"


class _Reader:
    """Turns the tables into plans; knows the lines for its complaints."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._lines = text.splitlines()

    def plans(self, document: dict[str, Any]) -> list[Plan]:
        for key in document:
            if key not in ("defaults", "port"):
                raise self._error(self._line(key), f"unknown '{key}'; there are: defaults, port")
        defaults, ports = document.get("defaults", {}), document.get("port", [])
        if not isinstance(defaults, dict):
            raise self._error(self._line("defaults"), "'defaults' must be a table: [defaults]")
        if not isinstance(ports, list) or not all(isinstance(port, dict) for port in ports):
            raise self._error(self._line("port"), "write each port as a table: [[port]]")
        if not 1 <= len(ports) <= MAX_PORTS:
            raise self._error(1, f"{len(ports)} ports; write 1 to {MAX_PORTS} tables [[port]]")
        for key, value in defaults.items():
            if key in _NOT_FOR_ALL:
                raise self._error(self._at("defaults", 0, key), f"'{key}' is of one port only")
            self._check("defaults", 0, key, value)
        seen: dict[tuple[str, str], int] = {}
        return [self._port(number, port, defaults, seen) for number, port in enumerate(ports)]

    def _port(
        self,
        number: int,
        port: dict[str, Any],
        defaults: dict[str, Any],
        seen: dict[tuple[str, str], int],
    ) -> Plan:
        for key, value in port.items():
            self._check("port", number, key, value)
        here = self._at("port", number, None)
        if "serial" not in port:
            raise self._error(here, "this port has no 'serial'")
        if "listen" in port and "to" in port:
            raise self._error(
                self._at("port", number, "listen"),
                "a port has either 'to' (a broker) or 'listen' (whoever connects)",
            )
        strangers = _BRIDGE_ONLY if "listen" in port else _EXPOSE_ONLY
        for key in strangers:
            if key in port:
                with_or_without = "without" if "listen" in port else "with"
                raise self._error(
                    self._at("port", number, key),
                    f"'{key}' is for ports {with_or_without} 'listen' only",
                )
        given = {**defaults, **port}
        plan = self._plan(number, given, listens="listen" in port)
        for what, value in (("name", plan.name), ("serial", plan.port.url)):
            other = seen.setdefault((what, value), here)
            if other != here:
                raise self._error(
                    self._at("port", number, what), f"{what} '{value}' is that of line {other} too"
                )
        return plan

    def _plan(self, number: int, given: dict[str, Any], *, listens: bool) -> Plan:
        serial = given["serial"]
        name = given.get("name") or default_name(serial)
        settings = PortSettings(
            serial, given.get("baud", DEFAULT_BAUD), rtscts=given.get("rtscts", False)
        )
        key = "listen" if listens else "to"
        try:
            if listens:
                host, tcp_port = listen_address(given["listen"])
                token = token_of(given.get("token_file"))
                insecure = given.get("insecure", False)
                check_exposure(host, token, insecure=insecure)
                rfc2217 = given.get("rfc2217", False)
                return ExposePlan(name, settings, host, tcp_port, rfc2217, token, insecure)
            if "to" not in given:
                raise self._error(
                    self._at("port", number, None),
                    "this port has neither 'to' (a broker) nor 'listen' (whoever connects)",
                )
            mode = given.get("mode", "raw")
            broker = broker_address(given["to"])
            key = "console"
            return BridgePlan(
                name,
                settings,
                broker,
                mode,
                float(given.get("silence_s", DEFAULT_SILENCE_S)),
                console_of(given.get("console"), mode),
            )
        except PlanError as error:
            raise self._error(self._at("port", number, key), str(error)) from None

    def _check(self, table: str, number: int, key: str, value: object) -> None:
        line = self._at(table, number, key)
        if key not in _KEYS:
            raise self._error(line, f"unknown key '{key}'; there are: {', '.join(_KEYS)}")
        words, allowed = _KEYS[key]
        if not allowed(value):
            raise self._error(line, f"{key} is {value!r}; it must be {words}")

    def _at(self, table: str, number: int, key: str | None) -> int:
        """Return the line of ``key`` in the ``number``-th ``table``, of its head without a key.

        Values here are one line each; the head of a table that is written otherwise is line 1.
        """
        head = re.compile(rf"\s*\[+\s*[\"']?{re.escape(table)}[\"']?\s*\]+")
        begins = [i for i, line in enumerate(self._lines) if head.match(line)]
        if number >= len(begins):
            return self._line(table)
        begin = begins[number]
        if key is None:
            return begin + 1
        for index in range(begin + 1, len(self._lines)):
            if re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", self._lines[index]):
                return index + 1
            if re.match(r"\s*\[", self._lines[index]):
                break
        # Not the port's own: a default.
        return begin + 1 if table == "defaults" else self._at("defaults", 0, key)

    def _line(self, key: str) -> int:
        pattern = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}\b")
        return next((i + 1 for i, line in enumerate(self._lines) if pattern.match(line)), 1)

    def _error(self, line: int, text: str) -> ConfigError:
        return ConfigError(f"{self._path}:{line}: {text}")


def default_name(serial: str) -> str:
    """Return a short name for a port that was given none: the last part of its path or URL."""
    return serial.rstrip("/").rpartition("/")[2].partition("?")[0] or serial
