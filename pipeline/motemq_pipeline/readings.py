"""Readings as columns of numbers, by which they are sorted and brought together."""

from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

MINUTE_US: Final = 60 * 10**6
HOUR_US: Final = 3600 * 10**6
WINDOW: Final = "window_start_ms"
WINDOW_MS: Final = 10_000  # of simulated time
TIME: Final = pa.timestamp("us", tz="UTC")
_MOST_CODES: Final = 2**63
Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Codes = npt.NDArray[np.unsignedinteger]
_Column = TypeVar("_Column", bound=npt.NDArray[Any])


class Readings:
    """Readings as columns of numbers, by which they are put into order.

    ``hour`` and ``window_start_ms`` (-1 without a ``t_ms``) are made of others, if not there.
    """

    def __init__(self, rows: pa.Table, at: Places | None = None) -> None:
        self._rows = rows
        self._at = at  # where those are that are meant; None: all
        self._coded: dict[str, tuple[Codes, pa.Array]] = {}

    def only(self, at: Places) -> "Readings":
        """Return some of them."""
        found = Readings(self._rows, at if self._at is None else self._at[at])
        found._coded = self._coded
        return found

    def table(self, names: tuple[str, ...]) -> pa.Table:
        """Return columns of them."""
        rows = pa.table([self._column(name) for name in names], list(names))
        return rows if self._at is None else rows.take(pa.array(self._at))

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Return which have a value in a column."""
        found: npt.NDArray[np.bool_] = _known(self._column(name).combine_chunks())
        return self._chosen(found)

    def numbers(self, name: str) -> Numbers:
        """Return a column of integers, 0 for null."""
        found: Numbers = self._column(name).combine_chunks().fill_null(0).to_numpy()
        return self._chosen(found)

    def starts(self, us: int) -> Numbers:
        """Return the beginnings of the spans of so many microseconds in which they happened."""
        return self._chosen(self._starts(us))

    def times(self) -> Numbers:
        """Return when they happened, in microseconds since 1970."""
        return self.starts(1)

    def values(self) -> Values:
        """Return what was measured."""
        found: Values = self._rows.column("value").to_numpy()
        return self._chosen(found)

    def column(self, name: str, at: Places) -> pa.Array:
        """Return a column of ``code``, of some of them."""
        codes, values = self._code(name)
        return values.take(pa.array(codes[at if self._at is None else self._at[at]]))

    def code(self, *names: str) -> Codes:
        """Return a number of each that has the order of some columns."""
        found: Codes = np.zeros(self._rows.num_rows, np.uint8)
        most = 1
        for name in names:
            codes, values = self._code(name)
            if most * len(values) > _MOST_CODES:
                different, places = np.unique(found, return_inverse=True)
                found, most = places.astype(np.uint64), len(different)
            most *= len(values)
            # The fewer bytes, the less it takes to sort them.
            kind = np.min_scalar_type(most)
            found = found.astype(kind) * kind.type(len(values)) + codes.astype(kind)
        return self._chosen(found)

    def _chosen(self, column: _Column) -> _Column:
        return column if self._at is None else cast(_Column, column[self._at])

    def _code(self, name: str) -> tuple[Codes, pa.Array]:
        """Return a column as places in its values, which are in order, and null behind them."""
        if name not in self._coded:
            # Encoded first: the texts of a task may be more than fit into one array.
            column = self._column(name)
            if not len(column):  # which Arrow does not encode
                return np.empty(0, np.uint8), pa.nulls(1, column.type)
            coded = column.dictionary_encode().combine_chunks()
            values = coded.dictionary
            order = pc.array_sort_indices(values)
            place = np.empty(len(values) + 1, np.min_scalar_type(len(values)))
            place[order.to_numpy()] = np.arange(len(values))
            place[-1] = len(values)
            codes = place[coded.indices.fill_null(-1).to_numpy()]
            values = pa.concat_arrays([values.take(order), pa.nulls(1, values.type)])
            self._coded[name] = codes, values
        return self._coded[name]

    def _column(self, name: str) -> pa.ChunkedArray:
        if name in self._rows.column_names:
            return self._rows.column(name)
        if name == "hour":
            return pa.chunked_array([pa.array(self._starts(HOUR_US)).cast(TIME)])
        if name != WINDOW:
            raise KeyError(name)
        t_ms = self._rows.column("t_ms").combine_chunks()
        start = t_ms.fill_null(0).to_numpy()
        return pa.chunked_array([pa.array(np.where(_known(t_ms), start - start % WINDOW_MS, -1))])

    def _starts(self, us: int) -> Numbers:
        times = self._rows.column("event_time").combine_chunks().cast(pa.int64()).to_numpy()
        found: Numbers = times - times % us
        return found


def _known(values: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = values.is_valid().to_numpy(zero_copy_only=False)
    return found


def changes(*columns: npt.NDArray[np.generic]) -> Places:
    """Return where columns begin to have other values than before."""
    different = np.zeros(len(columns[0]), np.bool_)
    different[:1] = True
    for column in columns:
        different[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(different)
