"""``--property``: what messages say beside their payload, and how it is shown."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import click

from host_broker.client_session import Message, PropertyValue
from host_broker.printable import printable

_SPELLING = (
    "write NAME=VALUE, and before the value what it is: N5.5 a number, Tkitchen text, "
    "D2026-11-24T12:00:00Z or D1795521600.0 a date"
)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NUMBER = 40  # characters: a sign, 19 digits, a dot, 19 digits
_SHOWN = 60  # characters of a mistake


def _read(
    context: click.Context, option: click.Parameter, said: tuple[str, ...]
) -> dict[str, PropertyValue]:
    found: dict[str, PropertyValue] = {}
    for each in said:
        name, equals, text = each.partition("=")
        if not (name and equals and text[:1] in ("N", "D", "T")):
            raise click.BadParameter(f"'{_start(each)}': {_SPELLING}")
        if name in found:
            raise click.BadParameter(f"there are two properties '{printable(name)}'")
        found[name] = _value(each, text[0], text[1:])
    return found


def _value(said: str, kind: str, text: str) -> PropertyValue:
    if kind == "T":
        return text
    is_number = _NUMBER.fullmatch(text) is not None
    if kind == "N":
        if not is_number:
            raise click.BadParameter(f"'{_start(said)}': '{_start(text)}' is no number")
        if len(text) > _LONGEST_NUMBER:
            raise click.BadParameter(
                f"'{_start(said)}': a number has at most 19 digits, and as many behind its dot; "
                f"this one has {len(text)} characters"
            )
        return float(text) if "." in text else int(text)
    try:
        if is_number:
            return _EPOCH + timedelta(microseconds=int(Decimal(text) * 1_000_000))
        date = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"'{_start(said)}': '{_start(text)}' is no date of ISO 8601, and no seconds since 1970"
        ) from None
    if date.tzinfo is None:
        raise click.BadParameter(
            f"'{_start(said)}': the date has no timezone; end it with Z, or with +01:00"
        )
    return date


def _start(said: str) -> str:
    return printable(said if len(said) <= _SHOWN else f"{said[:_SHOWN]}…")


property_option = click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_read,
    help="Say so beside the payload, as often as wanted: level=N5, room=Tkitchen, "
    "at=D2026-11-24T12:00:00Z (MicroMsg2).",
)


def properties_text(message: Message) -> str:
    """All properties on one line that is safe for a terminal: ``level:5 room:kitchen``."""
    return " ".join(f"{name}:{_shown(value)}" for name, value in _all(message))


def properties_json(message: Message) -> dict[str, object]:
    """All properties for JSON: numbers as numbers, dates in ISO 8601."""
    return {
        name: value if isinstance(value, int | float) else _shown(value)
        for name, value in _all(message)
    }


def _all(message: Message) -> list[tuple[str, PropertyValue]]:
    properties: Mapping[str, PropertyValue] = message.properties or {}
    return list(properties.items())


def _shown(value: PropertyValue) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, bytes):
        return printable(value)
    return printable(str(value))
