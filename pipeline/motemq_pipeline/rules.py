"""What a registry says: rules from paths to readings, and their path patterns. No Spark in here."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PIECES = re.compile(r"(\*\*|\*|\{[^{}]*\})")
# Not re.escape: what it escapes and what Java's regular expressions accept differ.
_SPECIAL = re.compile(r"([\\.\[\]{}()+?^$|*])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern: ``*`` any text within a level, ``**`` any text, ``{name}`` at least a character
    within a level, which is the column ``name``."""

    text: str
    names: tuple[str, ...]
    body: str  # a regular expression for the whole path that Java and Python read alike

    @property
    def java(self) -> str:
        """The regular expression for Spark; group 1 is the first name."""
        return rf"(?s)\A{self.body}\z"

    def match(self, path: str) -> dict[str, str] | None:
        """Return the columns that ``path`` gives, None if it does not match."""
        found = re.fullmatch(self.body, path, re.DOTALL)
        return None if found is None else dict(zip(self.names, found.groups(), strict=True))


def pattern(text: str) -> Pattern:
    """Return the pattern; raises ``ValueError`` with what is wrong with its braces."""
    names: list[str] = []
    body = ""
    for piece in _PIECES.split(text):
        if piece == "**":
            body += ".*"
        elif piece == "*":
            body += "[^/]*"
        elif piece.startswith("{") and piece.endswith("}"):
            names.append(piece[1:-1])
            body += "([^/]+)"
        elif "{" in piece or "}" in piece:
            raise ValueError("a brace is open; a column is written like {board}")
        else:
            body += _SPECIAL.sub(r"\\\1", piece)
    if len(set(names)) < len(names):
        raise ValueError("a column is there twice")
    return Pattern(text, tuple(names), body)


TELEMETRY, IGNORED = "telemetry", "ignored"
JSON, CBOR, MSGPACK, STRUCT, NUMBER = "json", "cbor", "msgpack", "struct", "number"
ENCODINGS: Final = (JSON, CBOR, MSGPACK, STRUCT, NUMBER)

# What a reading has, and the type of each; `time` is the board's wall clock.
COLUMN_TYPES: Final[dict[str, str]] = {
    "board": "string",
    "sensor": "string",
    "seq": "long",
    "t_ms": "long",
    "unit": "string",
    "value": "double",
    "time": "double",
}
TEXTS: Final = ("board", "sensor", "unit")
# How many of each are a second; "iso8601" is text.
TIME_UNITS: Final[dict[str, int]] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9, "iso8601": 0}

# A reading is a few numbers; what is longer is something else, or an attack.
MAX_PAYLOAD_BYTES: Final = 65_536
MAX_DEPTH: Final = 32  # of maps and arrays within each other, of CBOR and MessagePack
MAX_TEXT: Final = 200  # characters of a board's, sensor's or unit's name: each is a key of tables
# Of a board's number: what JSON has exactly; far above, sums of what is missing fit no table.
MAX_SEQ: Final = 2**53 - 1
CLOCK_AHEAD_S: Final = 300.0  # a board's clock may be ahead of the broker's by so much
MAX_LATE_S: Final = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a payload; ``data.t`` is ``t`` within ``data``."""

    name: str
    required: bool = True

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.name.split("."))


@dataclass(frozen=True, slots=True)
class Sensor:
    """A sensor: the field that has it (or none: a field says which sensor it is), and its range.

    A value is the payload's, times ``scale``, plus ``offset``, in ``unit``; ``minimum``,
    ``maximum`` and ``hysteresis`` are in ``unit``, too.
    """

    name: str
    field: Field | None = None
    unit: str | None = None
    scale: float = 1.0
    offset: float = 0.0
    minimum: float | None = None
    maximum: float | None = None
    hysteresis: float = 0.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Messages whose path matches ``pattern`` are ``kind``, encoded as ``encoding``.

    Columns of a reading come from the path (``pattern.names``), from ``constants`` or from
    ``fields``. Sensors that have a field of their own make one reading each. ``end`` is the sensor
    of a stream's last message, None if streams end without one.
    """

    pattern: Pattern
    kind: str
    line: int = 0
    encoding: str = ""
    fields: Mapping[str, Field] = field(default_factory=dict)
    constants: Mapping[str, str] = field(default_factory=dict)
    expect: Mapping[str, int | str] = field(default_factory=dict)
    time_unit: str = "s"
    layout: str = ""
    names: tuple[str, ...] = ()
    sensors: Mapping[str, Sensor] = field(default_factory=dict)
    silent_after_s: float | None = None
    max_late_s: float = MAX_LATE_S
    end: str | None = None

    @property
    def wide(self) -> bool:
        """Whether each declared sensor is a field of its own."""
        return any(sensor.field is not None for sensor in self.sensors.values())


@dataclass(frozen=True, eq=False)  # two are the same if they are one: what is built is kept by it
class Registry:
    """Rules in order; the first that matches a path decides."""

    file: Path
    rules: tuple[Rule, ...]

    def rule_for(self, path: str) -> Rule | None:
        """Return the first rule that matches ``path``."""
        for rule in self.rules:
            if rule.pattern.match(path) is not None:
                return rule
        return None


def column_type(rule: Rule, column: str) -> str:
    """Return what a payload's field for ``column`` must be: string, long or double."""
    is_text = column == "time" and not TIME_UNITS[rule.time_unit]
    return "string" if is_text else COLUMN_TYPES[column]


def wanted_fields(rule: Rule) -> Iterator[tuple[Field, str]]:
    """Yield the fields that the rule reads, each with its type."""
    for name, value in rule.expect.items():
        yield Field(name), "string" if isinstance(value, str) else "long"
    for column in COLUMN_TYPES:
        if column in rule.fields:
            yield rule.fields[column], column_type(rule, column)
    for sensor in rule.sensors.values():
        if sensor.field is not None:
            yield sensor.field, "double"
