"""The three small languages inside frames (A21), and URL encoding.

Extension lists ``name:key=value,key=value;name``, commands ``name;key=value,key=value``, message
properties ``key:value;key:value;``. Readers raise ``GrammarError``.
"""

import re
from collections.abc import Iterable

from host_broker.protocols.micromsg2.events import CommandFrame, Extension

# A10: what is said is FIELD, what is accepted also has capitals and underscores.
_NAME = re.compile(rb"[A-Za-z0-9_-]+")
_FIELD = re.compile("[a-z0-9-]+")
_SEPARATOR = re.compile(rb"[=:]")  # A7: either, between a property of an extension and its value
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")
_ENCODED = re.compile(rb"[^A-Za-z0-9._~-]")  # A22
_SHOWN = 60  # bytes of a peer's text in a reason


class GrammarError(ValueError):
    """Text that is not of the language; ``rule`` is the requirement it breaks."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def url_encode(value: bytes) -> bytes:
    """Escape everything but letters, digits and ``-_.~`` (A22)."""
    return _ENCODED.sub(lambda found: b"%%%02X" % found[0][0], value)


def url_decode(text: bytes) -> bytes:
    """Replace ``%`` and two hexadecimal digits; a ``+`` is a plus (A22)."""
    if b"%" not in text:
        return text

    def byte(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            reason = f"a % without two hexadecimal digits in {text[:_SHOWN]!r}"
            raise GrammarError("R13", reason)
        return bytes([int(found[1], 16)])

    return _ESCAPE.sub(byte, text)


def read_extensions(text: bytes) -> tuple[Extension, ...]:
    """Read a list of extensions (R12, R13); with or without a semicolon at its end (A9)."""
    if not text:
        return ()
    return tuple(_extension(each) for each in text.removesuffix(b";").split(b";"))


def _extension(text: bytes) -> Extension:
    name, _, listed = text.partition(b":")
    properties = []
    for each in listed.split(b",") if listed else ():
        separator = _SEPARATOR.search(each)
        if separator is None:
            reason = f"a property without a value, {each[:_SHOWN]!r}, in an extension"
            raise GrammarError("R13", reason)
        key, value = each[: separator.start()], each[separator.end() :]
        properties.append((_name(key, "R13"), _text(url_decode(value), "R13")))
    return Extension(_name(name, "R13"), tuple(properties))


def spell_extensions(extensions: Iterable[Extension]) -> bytes:
    """Spell a list of extensions; names and keys as they are (``field_fault``)."""
    parts = []
    for extension in extensions:
        pairs = [
            key.encode() + b"=" + url_encode(value.encode()) for key, value in extension.properties
        ]
        name = extension.name.encode()
        parts.append(name + b":" + b",".join(pairs) if pairs else name)
    return b";".join(parts)


def read_command(text: bytes) -> CommandFrame:
    """Read a command (R24); its name is in small letters, however it came (A23)."""
    name, _, listed = text.partition(b";")
    arguments = []
    for each in listed.split(b",") if listed else ():
        key, equals, value = each.partition(b"=")
        if not equals:
            raise GrammarError("R24", f"{each[:_SHOWN]!r} in a command is not key=value")
        arguments.append((_name(key, "R24"), url_decode(value)))
    return CommandFrame(_name(name, "R24").lower(), tuple(arguments))


def spell_command(name: str, arguments: Iterable[tuple[str, bytes]] = ()) -> bytes:
    """Spell a command; names and keys as they are (``field_fault``)."""
    pairs = [key.encode() + b"=" + url_encode(value) for key, value in arguments]
    return b";".join([name.encode(), b",".join(pairs)]) if pairs else name.encode()


def read_properties(text: bytes) -> dict[str, bytes]:
    """Read a message's properties; values are left as they are. Of a key said twice the last."""
    properties: dict[str, bytes] = {}
    if not text:
        return properties
    for each in text.removesuffix(b";").split(b";"):
        key, colon, value = each.partition(b":")
        if not colon:
            raise GrammarError("R40", f"{each[:_SHOWN]!r} in properties is not key:value")
        properties[_name(key, "R40")] = value
    return properties


def spell_properties(properties: Iterable[tuple[str, bytes]]) -> bytes:
    """Spell a message's properties; values as they are."""
    return b";".join(key.encode() + b":" + value for key, value in properties)


def field_fault(name: str) -> str:
    """Return what keeps a name of ours from being a FIELD, "" if nothing does (A10)."""
    if _FIELD.fullmatch(name):
        return ""
    return f"{name!r} is not a name of small letters, digits and hyphens"


def _name(text: bytes, rule: str) -> str:
    if not _NAME.fullmatch(text):
        reason = f"{text[:_SHOWN]!r} is not a name of letters, digits, - and _"
        raise GrammarError(rule, reason)
    return text.decode()


def _text(value: bytes, rule: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise GrammarError(rule, f"the value {value[:_SHOWN]!r} is not UTF-8") from None
