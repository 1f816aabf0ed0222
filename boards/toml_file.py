"""TOML files as typed data (msgspec), whose errors name file and line, and say what would be right.

``tomllib`` tells no lines, so a scanner of our own finds where each key is written. It may be
lenient: it only sees text that ``tomllib`` has accepted.
"""

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import inspect

from boards.errors import RigError

_MAX_BYTES = 1024 * 1024  # a larger file is no configuration
_KEY = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)\s*""")
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")  # of where msgspec says that a mistake is
_FIELD = re.compile(r"Object (missing required|contains unknown) field `(.*)`")
_WORDS: Mapping[type, str] = {
    inspect.IntType: "a whole number",
    inspect.FloatType: "a number",
    inspect.BoolType: "true or false",
    inspect.StructType: "a table",
    inspect.DictType: "a table",
    inspect.ListType: "a list [ ]",
    inspect.VarTupleType: "a list [ ]",
    inspect.DateType: "a date like 2027-01-15",
}

KeyPath = tuple[str, ...]
_Kind = TypeVar("_Kind")


class TomlError(RigError):
    """A TOML file is wrong; the text is ``FILE:LINE: what, and what would be right``."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a file: its keys, with their types and what they are where they are left out."""


class TomlFile:
    """A file that is TOML: ``data`` as ``tomllib`` reads it, and the line of each key.

    A place is written as in TOML, ``flash.method``; ``port.[1]`` is the second of ``[[port]]``.
    """

    def __init__(self, file: Path, data: dict[str, Any], lines: Mapping[KeyPath, int]) -> None:
        self.file, self.data = file, data
        self._lines = lines

    def section(self, kind: type[_Kind], place: str = "", data: object = None) -> _Kind:
        """Return ``data``, which is at ``place``, as a ``Section``; default: the whole file.

        Raises ``TomlError`` for a key that is missing, unknown, or not of its type.
        """
        data = self.data if data is None else data
        try:
            return msgspec.convert(data, kind, dec_hook=lambda custom, value: custom(value))
        except msgspec.ValidationError as error:
            raise self._explained(str(error), kind, place, data) from None

    def rows(self, kind: type[_Kind], key: str) -> list[tuple[str, _Kind]]:
        """Return the tables that are written ``[[key]]`` each, with their places."""
        data = self.data.get(key, [])
        if not isinstance(data, list) or not all(isinstance(each, dict) for each in data):
            raise self.error(f"write each {key} as a table: [[{key}]]", key)
        places = [".".join(_row_path((key,), number)) for number in range(len(data))]
        return [(at, self.section(kind, at, row)) for at, row in zip(places, data, strict=True)]

    def error(self, text: str, place: str = "") -> TomlError:
        """Return an error that names file and line of ``place``."""
        return TomlError(f"{self.file}:{self.line(place)}: {text}")

    def line(self, place: str = "") -> int:
        """Return the line of ``place``, or of the nearest table around it."""
        path = tuple(place.split("."))
        while path not in self._lines and path:
            path = path[:-1]
        return self._lines.get(path, 1)

    def missing(self, kind: type, key: str, place: str) -> TomlError:
        """Return the error for a ``key`` of the ``Section`` at ``place`` that is needed here."""
        return self._missing(_type_of(inspect.type_info(kind), key), key, place)

    def one_of(self, allowed: Sequence[str], value: str, place: str) -> Any:
        """Return the ``value`` at ``place``. Raises ``TomlError`` if it is not ``allowed``."""
        if value not in allowed:
            known = ", ".join(allowed)
            raise self.error(f"{_shown(place)} = {value!r} is not one of {known}", place)
        return value

    def _explained(self, text: str, wanted: type, place: str, value: Any) -> TomlError:
        """Say in a person's words what msgspec found; ``place`` is where ``value`` is."""
        what, _, where = text.partition(" - at `")
        kind, sign, order = inspect.type_info(wanted), " = ", wanted
        for key, number in _STEP.findall(where):
            if key:
                order = get_type_hints(getattr(kind, "cls", object)).get(key, order)
                place = f"{place}.{key}".lstrip(".")
            kind, value = _type_of(kind, key), value[key or int(number)]
            sign = " = " if key else ": "
        if field := _FIELD.match(what):
            if field[1] == "missing required":
                return self._missing(_type_of(kind, field[2]), field[2], place)
            known = ", ".join(sorted(each.name for each in getattr(kind, "fields", ())))
            place = f"{place}.{field[2]}".lstrip(".")
            return self.error(f"unknown key {_shown(place)}; here are known: {known}", place)
        if isinstance(kind, inspect.LiteralType):
            words = f"one of {', '.join(_literals(order))}"  # msgspec has them sorted
        else:
            words = _words(kind, value)
        if value == "" and isinstance(kind, inspect.StrType):
            return self.error(f"{_shown(place)} is empty", place)
        return self.error(f"{_shown(place)}{sign}{value!r} is not {words}", place)

    def _missing(self, kind: inspect.Type, key: str, place: str) -> TomlError:
        name = _shown(f"{place}.{key}".lstrip("."))
        return self.error(f"{name} is missing; it is {_words(kind)}", place)


def _type_of(kind: inspect.Type, key: str) -> inspect.Type:
    """Return the type of a table's ``key``, or of a list's items; None is what may be left out."""
    if isinstance(kind, inspect.StructType):
        kind = next(field.type for field in kind.fields if field.name == key)
    else:
        kind = getattr(kind, "item_type", inspect.AnyType())
    if isinstance(kind, inspect.UnionType):
        kind = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
    return kind


def _literals(annotation: Any) -> list[str]:
    """Return the texts of a ``Literal`` somewhere in an annotation, in their order."""
    if isinstance(annotation, str):
        return [annotation]
    return [text for inner in get_args(annotation) for text in _literals(inner)]


def _words(kind: inspect.Type, value: object = None) -> str:
    """Say what a value of this type is; ``value``: the one that is not."""
    if type(value) is int and isinstance(kind, inspect.IntType) and kind.le is not None:
        return f"from {kind.ge} to {kind.le}"
    if type(value) in (int, float) and isinstance(kind, inspect.FloatType):
        return f"{kind.ge:g} or more"
    return _WORDS.get(type(kind), "text in quotes")


def _shown(place: str) -> str:
    return ".".join(name for name in place.split(".") if not name.startswith("["))


def toml_files(folder: Path) -> list[Path]:
    """Return the TOML files in a folder, in order; not what editors hide there: ``.#a.toml``."""
    return sorted(file for file in folder.glob("*.toml") if not file.name.startswith("."))


def read_toml(file: Path) -> TomlFile:
    """Read a TOML file, also one that begins with Windows' byte order mark.

    Raises ``TomlError``, also if it cannot be read.
    """
    try:
        if file.exists() and not (file.is_file() or file.is_dir()):
            raise TomlError(f"{file}: cannot be read: no file")  # a pipe, which would wait
        with file.open("rb") as opened:
            raw = opened.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise TomlError(f"{file}:1: larger than 1 MiB, so it is no configuration")
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise TomlError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise TomlError(f"{file}:{line}: is not UTF-8 text") from None
    try:
        data = tomllib.loads(text, parse_float=_finite)
    except _NotFinite as error:
        place = re.search(rf"[=\[,]\s*[+-]?{re.escape(str(error))}", text)
        line = text.count("\n", 0, place.end()) + 1 if place else 1
        raise TomlError(f"{file}:{line}: {error} is no number that means anything here") from None
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"at line (\d+)", str(error))
        line = int(place[1]) if place else text.count("\n") + 1
        raise TomlError(f"{file}:{line}: is not TOML: {error}") from None
    except (RecursionError, ValueError):
        why = "it has brackets within brackets without end, or a number of thousands of digits"
        raise TomlError(f"{file}:1: is no configuration: {why}") from None
    if _has_zero(data):
        place = re.search(r"\\(u0000|U00000000)", text)
        line = text.count("\n", 0, place.start()) + 1 if place else 1
        raise TomlError(f"{file}:{line}: a text has a zero character, which no name can have")
    return TomlFile(file, data, key_lines(text))


def _has_zero(value: object) -> bool:
    """Return True if a text within ``value``, a key too, has a NUL."""
    if isinstance(value, dict):
        return any(map(_has_zero, (*value, *value.values())))
    if isinstance(value, list):
        return any(map(_has_zero, value))
    return isinstance(value, str) and "\0" in value


class _NotFinite(ValueError):
    """A number is infinite or none at all; the text is how it is written."""


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFinite(text)
    return number


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
