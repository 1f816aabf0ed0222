"""KLL sketches of doubles, by numpy: percentiles of any number of values in some 10 KB, mergeable.

They are in the format of Apache DataSketches, so Spark's ``kll_merge_agg_double`` and
``kll_sketch_get_quantile_double`` read them. Of up to ``K`` values a sketch has them all, so many
such sketches are made at once by columns; one of more values is made by itself (``Sketch``). The
algorithm: Karnin, Lang and Liberty, "Optimal Quantile Approximation in Streams", 2016.
"""

import struct
from collections.abc import Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

K: Final = 400  # 0.6 % of rank, single-sided, at 99 % confidence
PERCENTS: Final = (50, 95, 99)
_LEAST: Final = 8  # values of which a level may have at least so many: M of DataSketches
_ONE: Final = struct.Struct("<BBBBHBx")  # longs, version, family, flags, K, M; then the value
_MORE: Final = struct.Struct("<BBBBHBxQHBx")  # … values, least K, levels
_FAMILY: Final = 15
_IS_SORTED, _IS_ONE, _IS_EMPTY = 2, 4, 1
_LONG: Final = 8
_Values = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]


class Sketch:
    """A sketch that takes values, and other sketches."""

    def __init__(self) -> None:
        self._count = 0
        self._low, self._high = np.inf, -np.inf
        self._levels: list[_Values] = [np.empty(0)]  # a value of level n stands for 2 ** n
        self._chance = np.random.default_rng()

    def add(self, values: _Values) -> Self:
        """Take values, which are in order."""
        if len(values):
            self._count += len(values)
            self._low, self._high = min(self._low, values[0]), max(self._high, values[-1])
            self._take([values])
        return self

    def merge(self, sketch: bytes) -> Self:
        """Take what another sketch stands for."""
        flags = sketch[3]
        if flags & _IS_EMPTY:
            return self
        if flags & _IS_ONE:
            return self.add(np.frombuffer(sketch, np.float64, 1, _ONE.size))
        *_, count, _, levels = _MORE.unpack_from(sketch)
        at = _MORE.size + 4 * levels
        begins = np.frombuffer(sketch, np.int32, levels, _MORE.size)
        low, high = np.frombuffer(sketch, np.float64, 2, at)
        values = np.frombuffer(sketch, np.float64, offset=at + 2 * _LONG)
        self._count += count
        self._low, self._high = min(self._low, low), max(self._high, high)
        self._take(np.split(values, begins[1:] - begins[0]))
        return self

    def to_bytes(self) -> bytes:
        """Return the sketch as DataSketches writes it."""
        if self._count == 0:
            return _ONE.pack(2, 1, _FAMILY, _IS_EMPTY, K, _LEAST)
        if self._count == 1:
            return _ONE.pack(2, 2, _FAMILY, _IS_ONE, K, _LEAST) + self._levels[0].tobytes()
        levels = [np.sort(level) for level in self._levels]
        free = _capacity(len(levels)) - sum(map(len, levels))
        begins = np.cumsum([free, *map(len, levels[:-1])], dtype=np.int32)
        parts = [np.array([self._low, self._high]), *levels]
        head = _MORE.pack(5, 1, _FAMILY, _IS_SORTED, K, _LEAST, self._count, K, len(levels))
        return head + begins.tobytes() + b"".join(part.tobytes() for part in parts)

    def percentiles(self) -> list[float]:
        """Return the values of ``PERCENTS``: the first that so many do not exceed."""
        values = np.concatenate(self._levels)
        sizes = list(map(len, self._levels))
        order = np.argsort(values)
        ranks = np.cumsum(np.repeat(1 << np.arange(len(sizes)), sizes)[order])
        wanted = [(self._count * percent + 99) // 100 for percent in PERCENTS]
        return [float(values[order[at]]) for at in np.searchsorted(ranks, wanted)]

    def _take(self, levels: Sequence[_Values]) -> None:
        """Take values by level; where that is too many, every other one of a level goes up."""
        ours = self._levels
        ours += [np.empty(0) for _ in range(len(levels) - len(ours))]
        for at, level in enumerate(levels):
            ours[at] = np.concatenate((ours[at], level)) if len(ours[at]) else level
        while sum(map(len, ours)) > _capacity(len(ours)):
            at = next(n for n, level in enumerate(ours) if len(level) > _of_level(n, len(ours)))
            if at + 1 == len(ours):
                ours.append(np.empty(0))
            level = np.sort(ours[at])
            odd = len(level) % 2
            ours[at] = level[:odd]
            half = level[odd + self._chance.integers(2) :: 2]
            ours[at + 1] = np.concatenate((ours[at + 1], half))


def of_few(values: _Values, begins: _Places, counts: _Places) -> pa.Array:
    """Return sketches of up to ``K`` values each, which are in order from where each begins."""
    one = counts == 1
    length = np.where(one, 2, 5 + counts)  # of each sketch, in 8 bytes
    at = np.cumsum(length) - length
    words = np.empty(int(length.sum()), np.uint64)
    single, several = at[one], at[~one]
    words[single] = np.frombuffer(_ONE.pack(2, 2, _FAMILY, _IS_ONE, K, _LEAST), np.uint64)
    head = np.frombuffer(_MORE.pack(5, 1, _FAMILY, _IS_SORTED, K, _LEAST, 0, K, 1), np.uint64, 1)
    words[several] = head
    words[several + 1] = counts[~one].astype(np.uint64)
    free = (_capacity(1) - counts[~one]).astype(np.uint64)
    words[several + 2] = np.uint64(K | 1 << 16) | free << np.uint64(32)
    bits = np.ascontiguousarray(values).view(np.uint64)
    words[several + 3] = bits[begins[~one]]
    words[several + 4] = bits[(begins + counts - 1)[~one]]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    words[np.repeat(np.where(one, at + 1, at + 5), counts) + within] = bits[
        np.repeat(begins, counts) + within
    ]
    ends = np.append(0, np.cumsum(length * _LONG)).astype(np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)


def _capacity(levels: int) -> int:
    return sum(_of_level(at, levels) for at in range(levels))


def _of_level(level: int, levels: int) -> int:
    """Return how many values a level may have: two thirds of the one above, as DataSketches."""
    depth = levels - level - 1
    values: int = ((2 * K << depth) // 3**depth + 1) // 2
    return max(_LEAST, values)
