"""Path patterns of the registry: ``telemetry/{board}/*``."""

import re
from dataclasses import dataclass

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
