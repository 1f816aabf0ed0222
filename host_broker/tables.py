"""A file of tables that a protocol keeps in the data folder: settings of its own that last.

SQLite, so that people and their programs may read and change it while the broker runs. The edge
owns the file; the protocol says what is in it, and is told when somebody else has changed it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

Value = str | bytes | int | float | None
Rows = Sequence[tuple[Value, ...]]


@dataclass(frozen=True, slots=True)
class TableFile:
    """``name`` of the file in the data folder. ``schema``: statements that make the tables, which
    may be there already. ``queries``: names, each with the SELECT that gives the rows told of."""

    name: str
    schema: tuple[str, ...]
    queries: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """A change of a protocol's own tables, with the values for its question marks."""

    text: str
    values: tuple[Value, ...] = ()
