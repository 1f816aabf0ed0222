"""Bytes from anybody, as text that is one line and harmless to a terminal."""

import re

_UNSAFE = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f"  # controls: escape sequences, new lines; a tab is harmless
    "\u2028\u2029"  # new lines to some programs
    "\u202a-\u202e\u2066-\u2069]"  # these turn the direction of what follows
)
_SHORT = {"\n": "\\n", "\r": "\\r"}


def printable(data: bytes) -> str:
    r"""Return ``data`` as UTF-8 text; what is unsafe or no UTF-8 is written ``\n``, ``\xNN``.

    A backslash stays as it is, so that JSON passes unchanged; hence this cannot be reversed.
    """
    return _UNSAFE.sub(_escaped, data.decode("utf-8", "backslashreplace"))


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
