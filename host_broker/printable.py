"""Bytes and texts from anybody, made harmless for a terminal, a line of JSON, a CSV or a page.

This is the one place that says what is unsafe; every output of a peer's words goes through it.
"""

import json
import re
from collections.abc import Mapping

_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # controls: escape sequences, new lines; a tab is harmless
    "\u2028\u2029"  # new lines to some programs
    # These turn the direction of what follows, so that a line says something else than it is.
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
    "\ufeff\U000e0000-\U000e007f"  # these are not seen at all
    "\ud800-\udfff]"  # no characters: half of a pair, or a byte that was no UTF-8
)
_SHORT: Mapping[str, str] = {"\n": "\\n", "\r": "\\r"}
# What a spreadsheet takes for a formula; some skip white space before it.
_FORMULA = re.compile(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20]|[\t\r]")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def printable(said: bytes | str) -> str:
    r"""Return what somebody said as one line of text that is harmless to a terminal.

    Bytes are UTF-8; what is unsafe or no UTF-8 is written ``\n``, ``\xNN``, ``\uNNNN``. A backslash
    stays as it is, so that JSON passes unchanged; hence this cannot be reversed.
    """
    text = said if isinstance(said, str) else said.decode("utf-8", "backslashreplace")
    return _UNSAFE.sub(_escaped, text)


def printable_lines(said: str) -> str:
    """Return a text of several lines, each of which is printable."""
    return "\n".join(map(printable, said.split("\n")))


def json_text(document: object, *, indent: int | None = None) -> str:
    r"""Return JSON whose text is harmless to a terminal, and says what ``document`` says.

    What is unsafe is written ``\uNNNN``, as JSON itself has it; all other letters stay readable.
    """
    text = json.dumps(document, ensure_ascii=False, indent=indent)
    return "\n".join(_UNSAFE.sub(_escaped_for_json, line) for line in text.split("\n"))


def _escaped_for_json(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]


def spreadsheet_cell(said: bytes | str) -> str:
    """Return what a cell of a CSV may have: printable, and no formula.

    What a spreadsheet would calculate begins with an apostrophe then, which it takes for "this is
    text"; numbers stay numbers.
    """
    text = printable(said)
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return "'" + text
    return text


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was no UTF-8, as ``surrogateescape`` spells it
        code -= 0xDC00
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
