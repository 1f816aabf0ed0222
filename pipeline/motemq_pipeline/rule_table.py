"""One [[rule]] of a registry file to a rule; whatever is wrong is noted, and reading goes on."""

import difflib
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from motemq_pipeline.patterns import Pattern, pattern
from motemq_pipeline.rule_validation import violations
from motemq_pipeline.rules import (
    COLUMN_TYPES,
    ENCODINGS,
    IGNORED,
    MAX_LATE_S,
    NUMBER,
    STRUCT,
    TELEMETRY,
    TEXTS,
    TIME_UNITS,
    Field,
    Rule,
    Sensor,
)
from motemq_pipeline.toml_lines import Place, nearest

_RULE_KEYS: Final = (
    "path", "is", "encoding", "fields", "constants", "expect", "time_unit", "layout", "names",
    "sensors", "silent_after_s", "max_late_s", "end",
)  # fmt: skip
_SENSOR_KEYS: Final = ("field", "unit", "scale", "offset", "min", "max", "hysteresis")
_LAYOUT: Final = re.compile(r"[<>](\d{0,5}[xbBhHiIqQefds]\s*)+")
_MAX_LAYOUT_BYTES: Final = 65_536


@dataclass
class Faults:
    """What is wrong with a file, with the lines."""

    lines: dict[Place, int]
    found: list[tuple[int, str]] = field(default_factory=list)

    def add(self, place: Place, text: str) -> None:
        """Note a fault; of what is not in the file, at what it should be in."""
        self.found.append((nearest(self.lines, place), text))

    def unknown(self, place: Place, table: Mapping[str, Any], keys: tuple[str, ...]) -> None:
        """Note every key of ``table`` that is none of ``keys``."""
        for key in table:
            if key not in keys:
                close = difflib.get_close_matches(key, keys, 1)
                wanted = f"do you mean '{close[0]}'?" if close else f"there are {', '.join(keys)}"
                self.add((*place, key), f"'{key}' is unknown here; {wanted}")


@dataclass
class RuleTable:
    """A table of a registry file, at its place."""

    faults: Faults
    place: Place
    table: Mapping[str, Any]

    def _fault(self, key: str, text: str, *inside: str) -> None:
        self.faults.add((*self.place, key, *inside), text)

    def rule(self) -> Rule:
        """Return the rule; with faults, what could be read of it."""
        self.faults.unknown(self.place, self.table, _RULE_KEYS)
        kind = self._kind()
        rule = Rule(self._pattern(), kind, nearest(self.faults.lines, self.place))
        if kind == IGNORED:
            for key in set(self.table) & set(_RULE_KEYS) - {"path", "is"}:
                self._fault(key, f"what is '{IGNORED}' has no '{key}'")
            return rule
        encoding = self._encoding()
        rule = Rule(
            rule.pattern,
            kind,
            rule.line,
            encoding=encoding,
            fields=self._fields(encoding),
            constants=self._constants(),
            expect=self._expect(),
            time_unit=self._time_unit(),
            layout=self._layout(encoding),
            names=self._names(encoding),
            sensors=self._sensors(),
            silent_after_s=self._number("silent_after_s", None, _above_zero),
            max_late_s=self._number("max_late_s", MAX_LATE_S, _above_zero) or MAX_LATE_S,
            end=self._end(),
        )
        if encoding:
            for place, what in violations(rule):
                self.faults.add((*self.place, *place), what)
        return rule

    def _kind(self) -> str:
        kind = self.table.get("is")
        if kind not in (TELEMETRY, IGNORED):
            self._fault("is", f"'is' must be '{TELEMETRY}' or '{IGNORED}'{_not(kind)}")
            return IGNORED if kind is None else TELEMETRY
        return str(kind)

    def _pattern(self) -> Pattern:
        text = self.table.get("path")
        if not isinstance(text, str) or not text:
            self._fault(
                "path", f"'path' must be a text such as 'telemetry/{{board}}/*'{_not(text)}"
            )
            return Pattern("", (), "")
        try:
            found = pattern(text)
        except ValueError as error:
            self._fault("path", f"'path': {error}")
            return Pattern(text, (), "")
        for name in found.names:
            if name not in ("board", "sensor"):
                self._fault(
                    "path", f"'path': a path gives {{board}} and {{sensor}}, not {{{name}}}"
                )
        return found

    def _encoding(self) -> str:
        encoding = self.table.get("encoding")
        if encoding in ENCODINGS:
            return str(encoding)
        self._fault("encoding", f"'encoding' must be one of {', '.join(ENCODINGS)}{_not(encoding)}")
        return ""

    def _fields(self, encoding: str) -> dict[str, Field]:
        found = {}
        for column, name in self._texts("fields").items():
            if column not in COLUMN_TYPES:
                known = ", ".join(COLUMN_TYPES)
                self._fault("fields", f"'{column}' is no column of a reading: {known}", column)
            else:
                found[column] = _field(name)
        if encoding == NUMBER:
            found["value"] = Field("")
        return found

    def _constants(self) -> dict[str, str]:
        found = self._texts("constants")
        for column in found:
            if column not in TEXTS:
                self._fault("constants", f"a constant is one of {', '.join(TEXTS)}", column)
        return found

    def _texts(self, key: str) -> dict[str, str]:
        table = self._inner(key)
        found = {name: text for name, text in table.items() if isinstance(text, str) and text}
        for name in table.keys() - found.keys():
            self._fault(key, f"'{name}' must be a text{_not(table[name])}", name)
        return found

    def _inner(self, key: str) -> dict[str, Any]:
        found = self.table.get(key, {})
        if isinstance(found, dict):
            return found
        self._fault(key, f"'{key}' must be a table{_not(found)}")
        return {}

    def _expect(self) -> dict[str, int | str]:
        table = self._inner("expect")
        found = {}
        for name, value in table.items():
            if isinstance(value, int | str) and not isinstance(value, bool):
                found[name] = value
            else:
                self._fault("expect", f"'{name}' must be an integer or a text{_not(value)}", name)
        return found

    def _time_unit(self) -> str:
        unit = self.table.get("time_unit", "s")
        if unit not in TIME_UNITS:
            self._fault("time_unit", f"'time_unit' must be one of {', '.join(TIME_UNITS)}")
            return "s"
        if "time_unit" in self.table and "time" not in self._inner("fields"):
            self._fault("time_unit", "'time_unit' is of the field that 'fields' calls 'time'")
        return str(unit)

    def _layout(self, encoding: str) -> str:
        layout = self.table.get("layout", "")
        if encoding != STRUCT:
            for key in ("layout", "names"):
                if key in self.table:
                    self._fault(key, f"'{key}' is of encoding '{STRUCT}'")
            return ""
        if not isinstance(layout, str) or not _LAYOUT.fullmatch(layout):
            self._fault(
                "layout",
                "'layout' must begin with < (little endian) or > and have the characters "
                f"xbBhHiIqQefds of Python's struct, such as '<IhH'{_not(layout)}",
            )
            return ""
        if struct.calcsize(layout) > _MAX_LAYOUT_BYTES:
            self._fault("layout", f"'layout' is longer than {_MAX_LAYOUT_BYTES} bytes")
            return ""
        return layout

    def _names(self, encoding: str) -> tuple[str, ...]:
        names = self.table.get("names", [])
        if encoding != STRUCT:
            return ()
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._fault("names", "'names' must be a list of texts, one a value of 'layout'")
            return ()
        if len(set(names)) < len(names):
            self._fault("names", "'names' has a name twice")
        if layout := self._layout_or_none():
            count = len(struct.unpack(layout, bytes(struct.calcsize(layout))))
            if count != len(names):
                self._fault("names", f"'layout' has {count} values, 'names' has {len(names)}")
        return tuple(names)

    def _layout_or_none(self) -> str | None:
        layout = self.table.get("layout")
        if not isinstance(layout, str) or not _LAYOUT.fullmatch(layout):
            return None
        return layout if struct.calcsize(layout) <= _MAX_LAYOUT_BYTES else None

    def _sensors(self) -> dict[str, Sensor]:
        found = {}
        for name, table in self._inner("sensors").items():
            if isinstance(table, dict):
                found[name] = self._sensor(name, table)
            else:
                self._fault("sensors", f"'{name}' must be a table{_not(table)}", name)
        return found

    def _sensor(self, name: str, table: dict[str, Any]) -> Sensor:
        place = (*self.place, "sensors", name)
        self.faults.unknown(place, table, _SENSOR_KEYS)
        for key in ("field", "unit"):
            if key in table and not (isinstance(table[key], str) and table[key]):
                self._fault("sensors", f"'{key}' must be a text{_not(table[key])}", name, key)
        inside = RuleTable(self.faults, place, table)
        source, unit = table.get("field"), table.get("unit")
        sensor = Sensor(
            name,
            _field(source) if isinstance(source, str) and source else None,
            unit if isinstance(unit, str) else None,
            inside._number("scale", 1.0, _not_zero) or 1.0,
            inside._number("offset", 0.0) or 0.0,
            inside._number("min", None),
            inside._number("max", None),
            inside._number("hysteresis", 0.0, _not_negative) or 0.0,
        )
        low, high = sensor.minimum, sensor.maximum
        if low is not None and high is not None and low >= high:
            inside._fault("max", f"'max' {high:g} must be above 'min' {low:g}")
        if sensor.hysteresis and low is None and high is None:
            inside._fault("hysteresis", "'hysteresis' is of a 'min' or a 'max'")
        return sensor

    def _end(self) -> str | None:
        end = self.table.get("end")
        if end is None or (isinstance(end, str) and end):
            return end
        self._fault("end", f"'end' must be the name of a sensor{_not(end)}")
        return None

    def _number(
        self,
        key: str,
        default: float | None,
        check: Callable[[float], str | None] = lambda value: None,
    ) -> float | None:
        value = self.table.get(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._fault(key, f"'{key}' must be a number{_not(value)}")
        elif not math.isfinite(value):
            self._fault(key, f"'{key}' must be finite")
        elif broken := check(value):
            self._fault(key, f"'{key}' must {broken}{_not(value)}")
        else:
            return float(value)
        return default


def _field(name: str) -> Field:
    return Field(name.removesuffix("?"), not name.endswith("?"))


def _not(value: Any) -> str:
    return "" if value is None else f", not {value!r:.60}"


def _above_zero(value: float) -> str | None:
    return None if value > 0 else "be above 0"


def _not_zero(value: float) -> str | None:
    return None if value else "not be 0"


def _not_negative(value: float) -> str | None:
    return None if value >= 0 else "not be negative"
