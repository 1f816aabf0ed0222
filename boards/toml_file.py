"""TOML as typed tables whose errors name file and line, and say what would be right.

``tomllib`` tells no lines, so a scanner of our own finds where each key is written. It may be
lenient: it only sees text that ``tomllib`` has accepted.
"""

import datetime
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from boards.errors import RigError

_MAX_BYTES = 1024 * 1024  # a larger file is no configuration
_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")
_WORDS = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list [ ]",
    datetime.date: "a date like 2027-01-15",
}

KeyPath = tuple[str, ...]


class TomlError(RigError):
    """A TOML file is wrong; the text is ``FILE:LINE: what, and what would be right``."""


class Table:
    """Takes typed keys out of a TOML table and complains about what is left."""

    def __init__(
        self, file: Path, lines: Mapping[KeyPath, int], path: KeyPath, data: Mapping[str, Any]
    ) -> None:
        self.file = file
        self._lines, self._path, self._left = lines, path, dict(data)
        self._known: set[str] = set()

    def __contains__(self, key: str) -> bool:
        self._known.add(key)
        return key in self._left

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        """Return and remove ``key``; a key without ``default`` is required.

        Raises ``TomlError`` if it is missing or not of the ``kind``.
        """
        self._known.add(key)
        value = self._left.pop(key, default)
        if value is None:
            raise self.error(f"{self._name(key)} is missing; it is {_WORDS[kind]}")
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(f"{self._name(key)} = {value!r} is not {_WORDS[kind]}", key)
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """Take a text that is not empty."""
        value: str = self.take(key, str, default)
        if not value:
            raise self.error(f"{self._name(key)} is empty", key)
        return value

    def number(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """Take a whole number from ``low`` to ``high``."""
        value: int = self.take(key, int, default)
        if not low <= value <= high:
            raise self.error(f"{self._name(key)} = {value} is not from {low} to {high}", key)
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> Any:
        """Take one of the ``allowed`` texts."""
        value = self.take(key, str, default)
        if value not in allowed:
            raise self.error(
                f"{self._name(key)} = {value!r} is not one of {', '.join(allowed)}", key
            )
        return value

    def texts(self, key: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """Take a list of texts."""
        values = self.take(key, list, None if default is None else list(default))
        for value in values:
            if not isinstance(value, str):
                raise self.error(f"{self._name(key)}: {value!r} is not text in quotes", key)
        return tuple(values)

    def choices(self, key: str, allowed: Sequence[str], default: Sequence[str] | None) -> Any:
        """Take a list of the ``allowed`` texts, as a tuple."""
        values = self.texts(key, default)
        for value in values:
            if value not in allowed:
                raise self.error(
                    f"{self._name(key)}: {value!r} is not one of {', '.join(allowed)}", key
                )
        return values

    def table(self, key: str, *, required: bool = False) -> "Table":
        """Take a sub-table, an empty one if it is absent and not ``required``."""
        data = self.take(key, dict, None if required else {})
        return Table(self.file, self._lines, (*self._path, key), data)

    def rows(self, key: str) -> "list[Table]":
        """Take tables that are written ``[[key]]`` each; none if there is none."""
        data = self._left.pop(key, []) if key in self else []
        if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
            raise self.error(f"write each {self._name(key)} as a table: [[{self._name(key)}]]", key)
        path = (*self._path, key)
        return [
            Table(self.file, self._lines, _row_path(path, number), each)
            for number, each in enumerate(data)
        ]

    def tables(self) -> Iterator[tuple[str, "Table"]]:
        """Take every key that is left, each of which must be a table."""
        for key in list(self._left):
            yield key, self.table(key)

    def end(self) -> None:
        """Raise ``TomlError`` if there is a key that nobody has taken."""
        if self._left:
            key = min(self._left)
            known = ", ".join(sorted(self._known))
            raise self.error(f"unknown key {self._name(key)}; here are known: {known}", key)

    def error(self, text: str, key: str | None = None) -> TomlError:
        """Return an error that names file and line of ``key``, or of this table."""
        return TomlError(f"{self.file}:{self.line(key)}: {text}")

    def line(self, key: str | None = None) -> int:
        """Return the line of ``key``, or of this table."""
        path = self._path if key is None else (*self._path, key)
        while path not in self._lines and path:
            path = path[:-1]
        return self._lines.get(path, 1)

    def _name(self, key: str) -> str:
        return ".".join(name for name in (*self._path, key) if not name.startswith("["))


def read_table(file: Path) -> Table:
    """Read a TOML file. Raises ``TomlError``, also if it cannot be read."""
    try:
        with file.open("rb") as opened:
            raw = opened.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise TomlError(f"{file}:1: larger than 1 MiB, so it is no configuration")
        text = raw.decode()
    except OSError as error:
        raise TomlError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TomlError(f"{file}:{line}: is not UTF-8 text") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        raise TomlError(f"{file}:{line}: is not TOML: {error}") from None
    return Table(file, key_lines(text), (), data)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (from 1) on which each key and table of valid TOML is first written.

    Keys of inline tables are not listed: they stand on the line of their table, or just below. The
    second table of an array ``[[key]]`` is ``(key, "[1]")``, the first one ``(key,)``.
    """
    found: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}  # of the tables of each array
    prefix: KeyPath = ()
    position = 0
    while position < len(text):
        line = text.count("\n", 0, position) + 1
        end = _statement_end(text, position)
        statement = text[position:end].strip()
        if statement.startswith("["):
            *parents, name = _keys(statement.lstrip("["), 0)[0] or ("",)
            path = (*_in_arrays(parents, counts), name)
            if statement.startswith("[["):
                counts[path] = counts.get(path, 0) + 1
            prefix = _in_arrays([name], counts, path[:-1])
            found.setdefault(prefix, line)
        elif statement and not statement.startswith("#"):
            keys = (*prefix, *_keys(statement, 0)[0])
            for length in range(len(prefix) + 1, len(keys) + 1):
                found.setdefault(keys[:length], line)
        position = end + 1
    return found


def _row_path(path: KeyPath, number: int) -> KeyPath:
    return (*path, f"[{number}]") if number else path


def _in_arrays(keys: Sequence[str], counts: Mapping[KeyPath, int], path: KeyPath = ()) -> KeyPath:
    """Return the path of ``keys`` below ``path``: of an array they mean its last table so far."""
    for key in keys:
        path = (*path, key)
        path = _row_path(path, counts.get(path, 1) - 1)
    return path


def _keys(text: str, position: int) -> tuple[KeyPath, int]:
    keys: list[str] = []
    while match := _KEY.match(text, position):
        keys.append(match[1].strip("\"'"))
        position = match.end()
        if position >= len(text) or text[position] != ".":
            break
        position += 1
    return tuple(keys), position


def _statement_end(text: str, position: int) -> int:
    """Return where the statement that begins at ``position`` ends: a newline outside of values."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character in "\"'":
            position = _string_end(text, position)
            continue
        if character == "#":
            position = (text.find("\n", position) + 1 or len(text) + 1) - 1
            continue
        if character == "\n" and depth <= 0:
            return position
        depth += (character in "[{") - (character in "]}")
        position += 1
    return len(text)


def _string_end(text: str, position: int) -> int:
    quote = text[position]
    mark = quote * 3 if text.startswith(quote * 3, position) else quote
    position += len(mark)
    while position < len(text) and not text.startswith(mark, position):
        position += 2 if text[position] == "\\" and quote == '"' else 1
    return position + len(mark)
