"""Values of message properties and filters: numbers, dates and text (R40).

On the wire a value is one letter, N, D or T, and its URL-encoded text. On the bus a property is its
text without either, so that other protocols read it as what it says; which ones are numbers or
dates is a property of its own (``TYPES``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from host_broker.bus.publication import Properties
from host_broker.protocols.micromsg2.grammar import (
    read_properties,
    spell_properties,
    url_decode,
    url_encode,
)

Kind = Literal["N", "D", "T"]

TYPES = "micromsg2.types"  # count:N;at:D
MAX_PROPERTIES = 65535  # bytes of a message's properties

# 19 digits hold a 64-bit long; a date is seconds since 1970 (UTC).
_NUMBER = re.compile(rb"[+-]?[0-9]{1,19}(\.[0-9]{1,19})?")
_NOT_IN_NAMES = re.compile("[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it was said: its text, and the number that it is unless it is text."""

    kind: Kind
    text: bytes
    number: Decimal | None = None


def read_number(text: bytes) -> Decimal | None:
    """Return the number of a text, exactly; None if it is none."""
    if _NUMBER.fullmatch(text):
        return Decimal(text.decode())
    return None


def read_value(encoded: bytes) -> Value:
    """Read a value as on the wire; one that does not read as N, D or T is text (A20).

    GrammarError: it is not URL encoded.
    """
    text = url_decode(encoded)
    kind, rest = text[:1], text[1:]
    if kind == b"T":
        return Value("T", rest)
    if kind in (b"N", b"D"):
        number = read_number(rest)
        if number is not None:
            return Value("N" if kind == b"N" else "D", rest, number)
    return Value("T", text)


def properties_to_bus(wire: bytes) -> dict[str, bytes]:
    """Return a message's properties as the bus carries them. GrammarError: they are none."""
    properties: dict[str, bytes] = {}
    kinds: dict[str, bytes] = {}
    for name, encoded in read_properties(wire).items():
        value = read_value(encoded)
        properties[name] = value.text
        if value.kind != "T":
            kinds[name] = value.kind.encode()
    if kinds:
        properties[TYPES] = spell_properties(kinds.items())
    return properties


def properties_to_wire(properties: Properties) -> bytes:
    """Spell a publication's properties, whatever protocol they came from.

    What a name cannot have here becomes a hyphen; of two that are then the same the first is said.
    Those that do not fit are left out.
    """
    kinds = _kinds(properties)
    said: dict[str, bytes] = {}
    left = MAX_PROPERTIES
    for name, text in properties.items():
        if name == TYPES:
            continue
        kind = kinds.get(name, b"T")
        if kind not in (b"N", b"D") or read_number(text) is None:
            kind = b"T"
        name = _NOT_IN_NAMES.sub("-", name)
        value = kind + url_encode(text)
        size = len(name) + len(value) + 2
        if name not in said and size <= left:
            said[name] = value
            left -= size
    return spell_properties(said.items())


def _kinds(properties: Properties) -> Mapping[str, bytes]:
    """Anybody may have published ``TYPES``, so that it need not be what we spell."""
    try:
        return read_properties(properties.get(TYPES, b""))
    except ValueError:
        return {}
