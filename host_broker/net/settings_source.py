"""Where ``Settings`` come from: a TOML file, then ``--set`` flags, both typed by the dataclasses.

The dataclasses of ``host_broker.settings`` and of the protocols are the one list of keys, types,
defaults and ranges; nothing is repeated here.
"""

import dataclasses
import math
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from host_broker.registry import protocols
from host_broker.settings import OWN_SECTIONS, Settings

_SECRET = re.compile("tok|pas|secret|client")  # in a name that may have been mistyped
_BOOLEANS = {"true": True, "false": False}


class SettingsError(Exception):
    """A setting is unknown or has a value it cannot have; the text is one line for its user."""


def load_settings(config: Path | None = None, assignments: Sequence[str] = ()) -> Settings:
    """Return the settings of a TOML file overridden by ``section.field=VALUE`` assignments.

    Later assignments win. Raises ``SettingsError`` for a file that cannot be read or parsed, an
    unknown key, a value of the wrong type or outside its range.
    """
    values: dict[str, dict[str, object]] = {}
    if config is not None:
        _read_file(config, values)
    for assignment in assignments:
        _read_assignment(assignment, values)
    kinds = sections()
    try:
        settings = Settings.of(**{name: kinds[name](**fields) for name, fields in values.items()})
    except ValueError as error:  # a section says so of values that none of its fields' types tells
        raise SettingsError(str(error)) from error
    if settings.net.outbox_low_bytes > settings.net.outbox_high_bytes:
        raise SettingsError(
            f"net.outbox_low_bytes is {settings.net.outbox_low_bytes}, which is above "
            f"net.outbox_high_bytes ({settings.net.outbox_high_bytes}); it must not be"
        )
    return settings


def sections() -> Mapping[str, type[Any]]:
    """Return the dataclass of every section: the protocols' first, by name."""
    found = {
        spec.section or spec.name: spec.settings
        for spec in protocols().values()
        if spec.settings is not None
    }
    hints = typing.get_type_hints(Settings)
    return found | {name: hints[name] for name in OWN_SECTIONS}


def _read_file(path: Path, values: dict[str, dict[str, object]]) -> None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"cannot read --config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for section, table in document.items():
        known = _section(section, str(path))
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: '{section}' must be a table: [{section}]")
        for name, value in table.items():
            field, kind = _field(known, section, name, str(path))
            _check(f"{section}.{name}", value, field, kind, str(path))
            values.setdefault(section, {})[name] = _typed(value, kind)


def _read_assignment(assignment: str, values: dict[str, dict[str, object]]) -> None:
    key, equals, text = assignment.partition("=")
    section, dot, name = key.strip().partition(".")
    origin = f"--set {key}=…" if _SECRET.search(name) else f"--set {assignment}"
    if not (equals and dot):
        raise SettingsError(f"{origin}: write it as section.field=VALUE, e.g. journal.ack=synced")
    field, kind = _field(_section(section, origin), section, name, origin)
    value = _from_text(text.strip(), kind)
    _check(f"{section}.{name}", value, field, kind, origin)
    values.setdefault(section, {})[name] = value


def _section(name: str, origin: str) -> type[Any]:
    known = sections()
    if name not in known:
        raise SettingsError(
            f"{origin}: unknown section '{name}'; there are: {', '.join(sorted(known))}"
        )
    return known[name]


def _field(
    section: type[Any], section_name: str, name: str, origin: str
) -> tuple[dataclasses.Field[Any], object]:
    """Return a field and its type."""
    fields = {field.name: field for field in dataclasses.fields(section)}
    if name in fields:
        return fields[name], typing.get_type_hints(section)[name]
    key = f"{section_name}.{name}"
    renamed: Mapping[str, str] = getattr(section, "RENAMED", {})
    if name in renamed:
        raise SettingsError(f"{origin}: '{key}' is called {renamed[name]} now")
    raise SettingsError(
        f"{origin}: unknown key '{key}'; [{section_name}] has: {', '.join(sorted(fields))}"
    )


def _typed(value: object, kind: object) -> object:
    return float(value) if kind is float and isinstance(value, int) else value


def _from_text(text: str, kind: object) -> object:
    """Read a flag's text; what cannot be read stays text, for the type check to name."""
    try:
        if kind is bool:
            return _BOOLEANS.get(text.lower(), text)
        if kind is int:
            return int(text.replace("_", ""))
        if kind is float:
            return float(text)
    except ValueError:
        return text
    return text


def _check(
    key: str, value: object, field: dataclasses.Field[Any], kind: object, origin: str
) -> None:
    allowed = _fault(value, field, kind)
    if allowed:
        # Of a table not the value: somebody may have written a token where its hash belongs.
        hidden = isinstance(value, dict) or "fault" in field.metadata
        what = "" if hidden else f" is {value!r}; it"
        raise SettingsError(f"{origin}: {key}{what} must be {allowed}")


def _fault(value: object, field: dataclasses.Field[Any], kind: object) -> str:
    """Return what is allowed, if ``value`` is not."""
    if "fault" in field.metadata:
        return str(field.metadata["fault"](value))
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        return "" if value in choices else "one of " + ", ".join(choices)
    if kind is bool:
        return "" if isinstance(value, bool) else "true or false"
    if kind is str:
        return "" if isinstance(value, str) else "a text"
    what = "a whole number" if kind is int else "a number of seconds"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return what
    if kind is int and isinstance(value, float):
        return what
    least, most = field.metadata.get("least"), field.metadata.get("most", math.inf)
    above = value > 0 if least is None else value >= least
    if above and value <= most and not math.isinf(value):
        return ""
    if most < math.inf:
        return f"{what} from {1 if least is None else least} to {most}"
    return f"{what} above 0" if least is None else f"{what}, {least} or more"
