"""TOML files as pydantic models: all mistakes are told at once, each with its line, in our words.

pydantic says where in the data a mistake is, ``toml_lines`` on which line that stands. What must
hold between the keys of a table is checked beside the keys themselves (``between``), not after
them, so one kind of mistake hides no other.
"""

import difflib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from motemq_pipeline.errors import PipelineError

Place = tuple[str | int, ...]  # ("rule", 1, "sensors", "temperature", "min")


def fault_line(error: tomllib.TOMLDecodeError, text: str) -> int:
    """Return the line that a syntax error is on."""
    found = re.search(r"at line (\d+)", str(error))
    return int(found[1]) if found else text.rstrip("\n").count("\n") + 1


def lines_of(text: str) -> dict[Place, int]:
    """Return the line, from 1, of every table and key of a TOML text that tomllib takes.

    What is inside of an inline table or an array has the line on which its statement begins.
    """
    places: dict[Place, int] = {(): 1}
    sizes: dict[Place, int] = {}  # of arrays of tables
    table: Place = ()
    statement, begun = "", 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not statement and line.lstrip().startswith("["):
            table = _table(line, sizes)
            for depth in range(1, len(table) + 1):
                places.setdefault(table[:depth], number)
            places[table] = number
            continue
        begun = begun if statement else number
        statement += line + "\n"
        try:
            found = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # an array or text that goes on on the next line
        statement = ""
        for place in _places(found):
            places.setdefault(table + place, begun)
    return places


def nearest(places: dict[Place, int], place: Place) -> int:
    """Return the line of ``place``, or of the closest thing around it that is in the file."""
    while place not in places:
        place = place[:-1]
    return places[place]


def _table(header: str, sizes: dict[Place, int]) -> Place:
    """Return what a line ``[a.b]`` or ``[[a.b]]`` opens; arrays count on."""
    keys: list[str] = []
    found: Any = tomllib.loads(header)
    while isinstance(found, dict) and found:
        ((key, found),) = found.items()
        keys.append(key)
    table: Place = ()
    for depth, key in enumerate(keys, start=1):
        table = (*table, key)
        if depth == len(keys) and isinstance(found, list):
            sizes[table] = sizes.get(table, 0) + 1
        if table in sizes:
            table = (*table, sizes[table] - 1)
    return table


def _places(found: Any) -> Iterator[Place]:
    inside = (
        found.items()
        if isinstance(found, dict)
        else enumerate(found)
        if isinstance(found, list)
        else ()
    )
    for key, value in inside:
        yield (key,)
        for place in _places(value):
            yield (key, *place)


_FAULT, _WRONG = "fault", "wrong"
_LONGEST_VALUE: Final = 60  # characters of what somebody wrote
_Model = TypeVar("_Model", bound="TomlTable")
Mistake = tuple[Place, str]  # where in a table, and what
# What a key must be, by pydantic's name for what it is not.
_MUST_BE: Final = {
    "string_type": "a text",
    "string_too_short": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "list_type": "a list",
    "tuple_type": "a list",
}


class TomlTable(BaseModel):
    """A table of a TOML file; its fields are the keys that it may have.

    ``title`` is how its mistakes call it: "" at the top.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)
    title: ClassVar[str] = ""

    @classmethod
    def between(cls, table: Mapping[str, Any], context: Any) -> Iterator[Mistake]:
        """Yield what is wrong between keys. ``table``: what the file has; ``context``: of ``read``.

        It is asked whatever is wrong with the keys themselves.
        """
        yield from ()

    def contradictions(self) -> Iterator[Mistake]:
        """Yield what is wrong with a table of which every part is right by itself."""
        yield from ()

    @classmethod
    def missing(cls, key: str) -> str:
        """Return what to say of a key that must be there."""
        return f"{key} is missing"

    @classmethod
    def unknown(cls, key: str) -> str:
        """Return what to say of a key that is none."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        close = difflib.get_close_matches(key, known, 1)
        wanted = f"do you mean '{close[0]}'?" if close else f"there are {', '.join(known)}"
        where = f"in {cls.title}" if cls.title else "here"
        return f"'{key}' is unknown {where}; {wanted}"

    @model_validator(mode="wrap")
    @classmethod
    def _all_mistakes(
        cls, table: Any, handler: ModelWrapValidatorHandler["TomlTable"], info: ValidationInfo
    ) -> Any:
        if not isinstance(table, Mapping):
            return handler(table)  # the table around it knows its name
        errors: list[InitErrorDetails] = []
        found = None
        try:
            found = handler(table)
        except ValidationError as error:
            errors = [_details(each["loc"], cls._words(each)) for each in error.errors()]
        errors += [_details(*mistake) for mistake in cls.between(table, info.context)]
        if found is not None and not errors:
            errors += [_details(*mistake) for mistake in found.contradictions()]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        return found

    @classmethod
    def _words(cls, error: ErrorDetails) -> str:
        """Return what one of pydantic's errors says; those of tables within this one are said."""
        kind, place = error["type"], error["loc"]
        if kind == _FAULT:
            return error["msg"]
        key = str(place[-1]) if place else cls.title
        if kind == "missing":
            return cls.missing(key)
        if kind == "extra_forbidden":
            return cls.unknown(key)
        if kind == _WRONG:
            return must_be(key, error["ctx"]["what"], error["input"])
        if kind in _MUST_BE:
            return must_be(key, _MUST_BE[kind], error["input"])
        return f"'{key}': {error['msg']}"


def fault(text: str) -> PydanticCustomError:
    """Return the error for a validator to raise; ``text`` is all that is said."""
    return PydanticCustomError(_FAULT, "{text}", {"text": text})


def wrong(what: str) -> PydanticCustomError:
    """Return the error for a validator to raise; ``what`` is what the key must be."""
    return PydanticCustomError(_WRONG, "{what}", {"what": what})


def must_be(key: str, what: str, value: Any) -> str:
    """Return the sentence for a value that is something else."""
    return f"'{key}' must be {what}{but(value)}"


def but(value: Any) -> str:
    """Return ", not …" for what somebody wrote, "" for nothing."""
    if isinstance(value, date | time):  # a datetime is a date
        return f", not {value.isoformat()} without quotes"
    return "" if value is None else f", not {value!r:.{_LONGEST_VALUE}}"


def _details(place: tuple[int | str, ...], text: str) -> InitErrorDetails:
    return InitErrorDetails(type=fault(text), loc=place, input=None)


@dataclass(frozen=True, slots=True)
class TomlFile:
    """What a TOML file says, and on which lines."""

    file: Path
    table: dict[str, Any]
    lines: dict[Place, int]

    @classmethod
    def parsed(cls, file: Path, text: str, what: str = "this") -> "TomlFile":
        """Raises ``PipelineError`` with the line where ``what`` is no TOML."""
        # As tomllib reads it: a line ends with LF or CR LF.
        text = text.replace("\r\n", "\n")
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            where = f"{file}:{fault_line(error, text)}"
            raise PipelineError(f"{where}: {what} is not TOML: {error}") from error
        except (RecursionError, ValueError) as error:  # a number of thousands of digits
            why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise PipelineError(f"{file}: {what} cannot be read: {why}") from error
        return cls(file, table, lines_of(text))

    def line(self, place: Place) -> int:
        """Return the line of what is at a place, or of the closest thing around it."""
        return nearest(self.lines, place)

    def read(
        self, model: type[_Model], refuse: Callable[[list[str]], PipelineError], context: Any = None
    ) -> _Model:
        """Return the file as a model.

        Raises what ``refuse`` makes of the mistakes, ``FILE:LINE: what`` each, in order.
        """
        try:
            return model.model_validate(self.table, context=context)
        except ValidationError as error:
            found = {
                (self.line(each["loc"]), each["msg"]) for each in error.errors(include_url=False)
            }
            raise refuse([f"{self.file}:{line}: {text}" for line, text in sorted(found)]) from None
