"""KLL sketches of doubles: percentiles of any number of values in some 10 KB, mergeable.

They are those of Apache DataSketches, which Spark has, too: ``kll_merge_agg_double`` and
``kll_sketch_get_quantile_double`` read them. Of up to ``K`` values a sketch has them all, so many
such sketches are made at once by columns. The algorithm: Karnin, Lang and Liberty, "Optimal
Quantile Approximation in Streams", 2016.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from datasketches import kll_doubles_sketch

K: Final = 400  # 0.6 % of rank, single-sided, at 99 % confidence
PERCENTS: Final = (50, 95, 99)
_SHARES: Final = [percent / 100 for percent in PERCENTS]
_LONG: Final = 8
_HEAD: Final = 3  # words of 8 bytes before the least value
_Values = npt.NDArray[np.float64]
_Places = npt.NDArray[np.int64]


def sketch_of(values: _Values) -> bytes:
    """Return the sketch of values."""
    sketch = kll_doubles_sketch(K)
    sketch.update(values)
    found: bytes = sketch.serialize()
    return found


def merged(sketches: Iterable[bytes]) -> tuple[bytes, list[float]]:
    """Return the sketch of all that sketches stand for, and the values of ``PERCENTS``.

    These are the first that so many do not exceed.
    """
    whole = kll_doubles_sketch(K)
    for sketch in sketches:
        whole.merge(kll_doubles_sketch.deserialize(sketch))
    return whole.serialize(), whole.get_quantiles(_SHARES, inclusive=True)


def of_few(values: _Values, begins: _Places, counts: _Places) -> pa.Array:
    """Return sketches of up to ``K`` values each, which are in order from where each begins.

    By columns, because roll-ups would take twice the time if the library made each by itself where
    a window has one value. What a sketch begins with is the library's; the values are in order.
    """
    one = counts == 1
    length = np.where(one, 2, _HEAD + 2 + counts)  # of each sketch, in 8 bytes
    at = np.cumsum(length) - length
    words = np.empty(int(length.sum()), np.uint64)
    bits = np.ascontiguousarray(values).view(np.uint64)
    several = at[~one]
    words[at[one]] = np.frombuffer(sketch_of(np.zeros(1)), np.uint64, 1)
    words[several[:, None] + np.arange(_HEAD)] = _heads(counts[~one])
    words[several + _HEAD] = bits[begins[~one]]
    words[several + _HEAD + 1] = bits[(begins + counts - 1)[~one]]
    within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    words[np.repeat(at + length - counts, counts) + within] = bits[
        np.repeat(begins, counts) + within
    ]
    ends = np.append(0, np.cumsum(length * _LONG)).astype(np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.large_binary(), len(counts), buffers)


def _heads(counts: _Places) -> npt.NDArray[np.uint64]:
    """Return what sketches of so many values have before these, each of more than one."""
    different, of = np.unique(counts, return_inverse=True)
    heads = [
        np.frombuffer(sketch_of(np.zeros(count)), np.uint64, _HEAD) for count in different.tolist()
    ]
    return np.array(heads, np.uint64).reshape(-1, _HEAD)[of]
