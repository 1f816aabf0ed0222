"""Where a TOML file says what: tomllib tells values, a person needs lines."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

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
