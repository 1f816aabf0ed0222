"""A registry file (docs/registry.md) to rules, or to everything that is wrong with it, by line.

Its tables are pydantic models, which give the rules that they say.
"""

import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, ConfigDict, PlainValidator, StringConstraints
from pydantic import Field as Key

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.rules import (
    COLUMN_TYPES,
    ENCODINGS,
    IGNORED,
    JSON,
    MAX_LATE_S,
    MAX_TEXT,
    NUMBER,
    STRUCT,
    TELEMETRY,
    TEXTS,
    TIME_UNITS,
    Field,
    Pattern,
    Registry,
    Rule,
    Sensor,
    pattern,
    wanted_fields,
)
from motemq_pipeline.toml_tables import Mistake, TomlFile, TomlTable, but, fault, must_be, wrong

_LAYOUT: Final = re.compile(r"[<>](\d{0,5}[xbBhHiIqQefds]\s*)+")
_MAX_LAYOUT_BYTES: Final = 65_536
_MOST_S: Final = 1e12  # 30,000 years; as microseconds it is a long
_A_LAYOUT: Final = (
    "begin with < (little endian) or > and have the characters xbBhHiIqQefds of Python's struct, "
    "such as '<IhH'"
)
_ONE_OF_ENCODINGS: Final = f"one of {', '.join(ENCODINGS)}"
_REMEDIES: Final = {
    "board": "write {board} in 'path', or fields = { board = \"…\" }",
    "sensor": "write {sensor} in 'path', or fields = { sensor = \"…\" }, or [rule.sensors.NAME] "
    "with its field",
    "value": 'write fields = { value = "…" }, or [rule.sensors.NAME] with its field',
}


_OF_MQTT: Final = {"+": "*", "#": "**"}  # its wildcards, and ours


def _pattern(text: Any) -> Pattern:
    if not isinstance(text, str) or not text:
        raise wrong("a text such as 'telemetry/{board}/*'")
    try:
        found = pattern(text)
    except ValueError as error:
        raise fault(f"'path': {error}") from None
    levels = text.split("/")
    odd = next((level for level in levels if level in _OF_MQTT), None)
    if odd is not None:
        ours = "/".join(_OF_MQTT.get(level, level) for level in levels)
        raise fault(f"'path': '{odd}' is no wildcard here but a name; write '{ours}'")
    for name in found.names:
        if name not in ("board", "sensor"):
            raise fault(f"'path': a path gives {{board}} and {{sensor}}, not {{{name}}}")
    return found


def _kind(value: Any) -> str:
    if value not in (TELEMETRY, IGNORED):
        raise wrong(f"'{TELEMETRY}' or '{IGNORED}'")
    return str(value)


def _encoding(value: Any) -> str:
    if value not in ENCODINGS:
        raise wrong(_ONE_OF_ENCODINGS)
    return str(value)


def _time_unit(value: Any) -> str:
    if not isinstance(value, str) or value not in TIME_UNITS:
        raise wrong(f"one of {', '.join(TIME_UNITS)}")
    return str(value)


def _column(name: str) -> str:
    if name not in COLUMN_TYPES:
        raise fault(f"'{name}' is no column of a reading: {', '.join(COLUMN_TYPES)}")
    return name


def _no_longer(seconds: float) -> float:
    if seconds > _MOST_S:
        raise wrong(f"at most {_MOST_S:g}")
    return seconds


def _short(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise fault(f"a name has at most {MAX_TEXT} characters, not {len(text)}")
    return text


def _sensor(name: str) -> str:
    if not name:
        raise fault("a sensor's name is empty")
    return _short(name)


def _constant(name: str) -> str:
    if name not in TEXTS:
        raise fault(f"a constant is one of {', '.join(TEXTS)}")
    return name


def _integer_or_text(value: Any) -> int | str:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise wrong("an integer or a text")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise wrong("an integer of 64 bits")
    return value


def _layout(value: Any) -> str:
    if not isinstance(value, str) or not _LAYOUT.fullmatch(value):
        raise fault(f"'layout' must {_A_LAYOUT}{but(value)}")
    if struct.calcsize(value) > _MAX_LAYOUT_BYTES:
        raise fault(f"'layout' is longer than {_MAX_LAYOUT_BYTES} bytes")
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise fault("'names' must be a list of texts, one a value of 'layout'")
    if len(set(value)) < len(value):
        raise fault("'names' has a name twice")
    return tuple(value)


def _number(
    check: Callable[[float], bool] = math.isfinite, what: str = "finite"
) -> BeforeValidator:
    def number(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong("a number")
        try:
            found = float(value)
        except OverflowError:  # an integer of hundreds of digits
            found = math.inf
        if not math.isfinite(found):
            raise wrong("finite")
        if not check(found):
            raise wrong(what)
        return found

    return BeforeValidator(number)


def _field_name(value: str) -> str:
    if not _field(value).name:
        raise wrong("the name of a field")
    return value


_Text = Annotated[str, StringConstraints(min_length=1)]
_Name = Annotated[_Text, AfterValidator(_short)]
_FieldName = Annotated[_Text, AfterValidator(_field_name)]
_Above0 = Annotated[float, _number(lambda value: value > 0, "above 0")]
_Seconds = Annotated[_Above0, AfterValidator(_no_longer)]
_Not0 = Annotated[float, _number(lambda value: value != 0, "a number other than 0")]
_From0 = Annotated[float, _number(lambda value: value >= 0, "at least 0")]
_Number = Annotated[float, _number()]


class _Sensor(TomlTable):
    field: _FieldName | None = None
    unit: _Name | None = None
    scale: _Not0 = 1.0
    offset: _Number = 0.0
    min: _Number | None = None
    max: _Number | None = None
    hysteresis: _From0 = 0.0

    def contradictions(self) -> Iterator[Mistake]:
        """The range is one, and what needs it has it."""
        if self.min is not None and self.max is not None and self.min >= self.max:
            yield ("max",), f"'max' {self.max:g} must be above 'min' {self.min:g}"
        if self.hysteresis and self.min is None and self.max is None:
            yield ("hysteresis",), "'hysteresis' is of a 'min' or a 'max'"

    def sensor(self, name: str) -> Sensor:
        """Return it as the sensor called ``name``."""
        source = _field(self.field) if self.field else None
        return Sensor(
            name, source, self.unit, self.scale, self.offset, self.min, self.max, self.hysteresis
        )


class RuleTable(TomlTable):
    """A ``[[rule]]`` of a registry file (docs/registry.md)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    path: Annotated[Pattern, PlainValidator(_pattern)]
    kind: Annotated[str, BeforeValidator(_kind)] = Key(alias="is")
    encoding: Annotated[str, BeforeValidator(_encoding)] = ""
    fields_: dict[Annotated[str, AfterValidator(_column)], _FieldName] = Key({}, alias="fields")
    constants: dict[Annotated[str, AfterValidator(_constant)], _Name] = Key({})
    expect: dict[str, Annotated[Any, BeforeValidator(_integer_or_text)]] = Key({})
    time_unit: Annotated[str, BeforeValidator(_time_unit)] = "s"
    layout: Annotated[str, BeforeValidator(_layout)] = ""
    names: Annotated[tuple[str, ...], PlainValidator(_names)] = ()
    sensors: dict[Annotated[str, AfterValidator(_sensor)], _Sensor] = Key({})
    silent_after_s: _Seconds | None = None
    max_late_s: _Seconds = MAX_LATE_S
    end: Annotated[_Text | None, BeforeValidator(lambda value: _sensor_name(value))] = None

    @classmethod
    def missing(cls, key: str) -> str:
        """Of ``path`` and ``is``."""
        if key == "path":
            return must_be(key, "a text such as 'telemetry/{board}/*'", None)
        return must_be(key, f"'{TELEMETRY}' or '{IGNORED}'", None)

    @classmethod
    def between(cls, table: Mapping[str, Any], context: Any) -> Iterator[Mistake]:
        """What each kind and encoding needs, and what it cannot have."""
        if table.get("is") == IGNORED:
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for key in table.keys() & known - {"path", "is"}:
                yield (key,), f"what is '{IGNORED}' has no '{key}'"
            return
        encoding = table.get("encoding")
        if encoding is None:
            yield (), must_be("encoding", _ONE_OF_ENCODINGS, None)
        elif encoding in ENCODINGS:
            for key in ("layout", "names"):
                if encoding != STRUCT and key in table:
                    yield (key,), f"'{key}' is of encoding '{STRUCT}'"
                if encoding == STRUCT and key not in table:
                    yield (), f"encoding '{STRUCT}' needs '{key}'"
        fields = table.get("fields")
        if "time_unit" in table and not (isinstance(fields, dict) and "time" in fields):
            yield ("time_unit",), "'time_unit' is of the field that 'fields' calls 'time'"

    def contradictions(self) -> Iterator[Mistake]:
        """What must hold between the parts, so that messages can become readings."""
        if self.kind == TELEMETRY:
            rule = self.rule(0)
            if rule.encoding == STRUCT:
                count = len(_zeros(rule.layout))
                if count != len(rule.names):
                    what = f"'layout' has {count} values, 'names' has {len(rule.names)}"
                    yield ("names",), what
            yield from _sources(rule)
            yield from _payload(rule)

    def rule(self, line: int) -> Rule:
        """Return the rule; ``line``: where it stands in its file."""
        fields = {column: _field(name) for column, name in self.fields_.items()}
        if self.encoding == NUMBER:
            fields["value"] = Field("")
        return Rule(
            self.path,
            self.kind,
            line,
            encoding=self.encoding,
            fields=fields,
            constants=self.constants,
            expect=self.expect,
            time_unit=self.time_unit,
            layout=self.layout,
            names=self.names,
            sensors={name: table.sensor(name) for name, table in self.sensors.items()},
            silent_after_s=self.silent_after_s,
            max_late_s=self.max_late_s,
            end=self.end,
        )


def _rules(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(rule, dict) for rule in value):
        raise fault(RegistryTable.missing("rule"))
    return value


class RegistryTable(TomlTable):
    """A whole registry file. The context is what gives the line of a place."""

    rule: Annotated[list[RuleTable], BeforeValidator(_rules)]

    @classmethod
    def missing(cls, key: str) -> str:
        """Of ``rule``."""
        return "a registry is a list of [[rule]] tables"

    @classmethod
    def between(cls, table: Mapping[str, Any], context: Any) -> Iterator[Mistake]:
        """A path has one rule."""
        rules = table.get("rule")
        first: dict[str, int] = {}
        for at, rule in enumerate(rules if isinstance(rules, list) else ()):
            path = rule.get("path") if isinstance(rule, dict) else None
            if isinstance(path, str) and (earlier := first.setdefault(path, at)) != at:
                line = context(("rule", earlier))
                yield ("rule", at, "path"), f"line {line} has a rule for this path already"


def _field(name: str) -> Field:
    return Field(name.removesuffix("?"), not name.endswith("?"))


def _sensor_name(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise wrong("the name of a sensor")
    return value


def _sources(rule: Rule) -> Iterator[Mistake]:
    """Every column has at most one source, and what a reading must have has one."""
    sources = {name: ["the path"] for name in rule.pattern.names}
    for column in rule.constants:
        sources.setdefault(column, []).append("'constants'")
    for column in rule.fields:
        sources.setdefault(column, []).append("'fields'")
    for column, given in sources.items():
        if len(given) > 1:
            yield ("fields", column), f"'{column}' is given by {' and by '.join(given)}"
    needed = ["board"] if rule.wide else ["board", "sensor", "value"]
    if rule.wide:
        for name, sensor in rule.sensors.items():
            if sensor.field is None:
                yield ("sensors", name), f"'{name}' needs a 'field', as its neighbours"
        for column in sorted({"sensor", "value"} & sources.keys()):
            yield ("fields", column), f"sensors have fields: there can be no '{column}'"
    for column in needed:
        if column not in sources:
            yield (), f"nothing gives '{column}': {_REMEDIES[column]}"


_IS_NO: Final = {"string": float, "long": float | bytes, "double": bytes}  # for `_payload`


def _zeros(layout: str) -> tuple[Any, ...]:
    """Return values of a layout, of the types that it gives."""
    return struct.unpack(layout, bytes(struct.calcsize(layout)))


def _payload(rule: Rule) -> Iterator[Mistake]:
    """What is asked of a payload is possible."""
    wanted = [("fields", column, of) for column, of in rule.fields.items() if of.name]
    wanted += [("expect", name, Field(name)) for name in rule.expect]
    wanted += [
        ("sensors", name, sensor.field) for name, sensor in rule.sensors.items() if sensor.field
    ]
    known = set()
    for key, inside, found in wanted:
        if rule.encoding == NUMBER:
            yield (key, inside), f"an encoding '{NUMBER}' has no fields"
        elif rule.encoding == STRUCT:
            if found.name not in rule.names:
                yield (key, inside), f"'{found.name}' is none of 'names'"
        elif not all(found.keys):
            yield (key, inside), f"'{found.name}' is no field; one within another is a.b"
        known.add(found.name)
    for name in sorted(known):
        if any(other.startswith(f"{name}.") for other in known):
            yield ("fields",), f"'{name}' cannot be a value and have fields within it"
    values = dict(zip(rule.names, _zeros(rule.layout), strict=False))
    types: dict[str, str] = {}
    for field, kind in wanted_fields(rule):
        if isinstance(values.get(field.name), _IS_NO[kind]):
            yield ("layout",), f"'{field.name}' of 'layout' is not a {kind}"
        if rule.encoding == JSON and types.setdefault(field.name, kind) != kind:
            yield (), f"'{field.name}' cannot be both a {types[field.name]} and a {kind}"


BUILT_IN = Path(__file__).with_name("registry.toml")
_MAX_FILE_BYTES: Final = 1024 * 1024


def load_registry(file: Path) -> Registry:
    """Return the rules of a TOML file, in order.

    Raises ``PipelineError`` with every fault of the file, each with its line.
    """
    try:
        if file.stat().st_size > _MAX_FILE_BYTES:
            raise PipelineError(f"the registry {file} is longer than {_MAX_FILE_BYTES} bytes")
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"the registry {file} cannot be read: {error}") from error
    toml = TomlFile.parsed(file, text, "the registry")
    tables = toml.read(RegistryTable, _refusal, toml.line)
    return Registry(
        file, tuple(rule.rule(toml.line(("rule", at))) for at, rule in enumerate(tables.rule))
    )


def _refusal(faults: list[str]) -> PipelineError:
    count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
    return PipelineError(f"the registry has {count}:\n" + "\n".join(faults))
