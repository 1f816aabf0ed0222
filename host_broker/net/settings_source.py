"""Where ``Settings`` come from: a TOML file, then ``--set`` flags, both typed by the dataclasses.

The dataclasses of ``host_broker.settings`` are the one list of keys, types and defaults; nothing is
repeated here except the rules a type cannot say.
"""

import dataclasses
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path

from host_broker.settings import Settings

# A run of up to 8 MiB and one message more must fit a journal record, which is at most 16 MiB +
# 64 KiB (docs/journal.md).
_LARGEST_BODY = 8 * 1024 * 1024
_LARGEST_SEND = 65463  # bytes of data (LightMQ R16)
_TOKEN = re.compile(r"|sha256:[0-9a-f]{64}")
# More would keep a core busy for a thousand messages a second.
_LONGEST_BUSY_POLL_US = 1000
_MAY_BE_ZERO = {
    "lightmq.ping_interval_s",
    "fmqp.idle_timeout_s",
    "fmqp.max_wills",
    "fmqp.max_cached",
}
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
    sections = {
        name: dataclasses.replace(getattr(Settings(), name), **fields)
        for name, fields in values.items()
    }
    settings = dataclasses.replace(Settings(), **sections)
    if settings.net.outbox_low_bytes > settings.net.outbox_high_bytes:
        raise SettingsError(
            f"net.outbox_low_bytes is {settings.net.outbox_low_bytes}, which is above "
            f"net.outbox_high_bytes ({settings.net.outbox_high_bytes}); it must not be"
        )
    return settings


def _read_file(path: Path, values: dict[str, dict[str, object]]) -> None:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"cannot read --config {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error
    for section, table in document.items():
        known = _section(section, str(path))
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: '{section}' must be a table: [{section}]")
        for field, value in table.items():
            kind = _field(known, section, field, str(path))
            _check(f"{section}.{field}", value, kind, str(path))
            values.setdefault(section, {})[field] = float(value) if kind is float else value


def _read_assignment(assignment: str, values: dict[str, dict[str, object]]) -> None:
    origin = f"--set {assignment}"
    key, equals, text = assignment.partition("=")
    section, dot, field = key.strip().partition(".")
    if not (equals and dot):
        raise SettingsError(f"{origin}: write it as section.field=VALUE, e.g. journal.fsync=true")
    kind = _field(_section(section, origin), section, field, origin)
    value = _from_text(text.strip(), kind)
    _check(f"{section}.{field}", value, kind, origin)
    values.setdefault(section, {})[field] = value


def _section(name: str, origin: str) -> dict[str, object]:
    """Return the field types of a section."""
    sections = typing.get_type_hints(Settings)
    if name not in sections:
        raise SettingsError(
            f"{origin}: unknown section '{name}'; there are: {', '.join(sorted(sections))}"
        )
    return typing.get_type_hints(sections[name])


def _field(known: dict[str, object], section: str, name: str, origin: str) -> object:
    if name not in known:
        raise SettingsError(
            f"{origin}: unknown key '{section}.{name}'; [{section}] has: {', '.join(sorted(known))}"
        )
    return known[name]


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


def _check(key: str, value: object, kind: object, origin: str) -> None:
    allowed = _complaint(key, value, kind)
    if allowed:
        # Of a table not the value: somebody may have written a token where its hash belongs.
        what = "" if isinstance(value, dict) else f" is {value!r}; it"
        raise SettingsError(f"{origin}: {key}{what} must be {allowed}")


def _complaint(key: str, value: object, kind: object) -> str:
    """Return what is allowed, if ``value`` is not."""
    if typing.get_origin(kind) is typing.Literal:
        choices = typing.get_args(kind)
        return "" if value in choices else "one of " + ", ".join(choices)
    if kind is bool:
        return "" if isinstance(value, bool) else "true or false"
    if kind is str:
        return "" if isinstance(value, str) else "a text"
    if typing.get_origin(kind) is Mapping:
        return _clients_complaint(value)
    what = "a whole number" if kind is int else "a number of seconds"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return what
    if kind is int and isinstance(value, float):
        return what
    if key == "net.busy_poll_us":
        return (
            ""
            if 0 <= value <= _LONGEST_BUSY_POLL_US
            else f"{what} from 0 to {_LONGEST_BUSY_POLL_US}"
        )
    if key in _MAY_BE_ZERO:
        return "" if 0 <= value < float("inf") else f"{what}, 0 or more"
    if key == "fmqp.max_body":
        return "" if 0 < value <= _LARGEST_BODY else f"{what} from 1 to {_LARGEST_BODY}"
    if key == "lightmq.carried_bytes":
        return "" if 0 < value <= _LARGEST_SEND else f"{what} from 1 to {_LARGEST_SEND}"
    if key == "fmqp.hard_body_limit":
        return "" if 0 < value < 1 << 32 else f"{what} below 4294967296"
    if key == "journal.partitions":
        return "" if 0 < value <= 10_000 else f"{what} from 1 to 10000"
    return "" if 0 < value < float("inf") else f"{what} above 0"


def _clients_complaint(value: object) -> str:
    if not isinstance(value, dict):
        return "a table in the --config file: [lightmq.clients], then NAME = TOKEN"
    for name, token in value.items():
        if not (name and isinstance(token, str) and _TOKEN.fullmatch(token)):
            return f'"" or "sha256:" and 64 hexadecimal digits for each client; see {name!r}'
    return ""
