"""Our KLL sketches are those of Spark, and percentiles have the rank that docs/tables.md says."""

import base64
import bisect
import random
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from motemq_pipeline.sketches import PERCENTS, K, merged, of_few, sketch_of

_PERCENTILES = "kll_sketch_get_quantile_double(sketch, array({})) p".format(
    ", ".join(f"{percent / 100}D" for percent in PERCENTS)
)
_COUNT = "kll_sketch_get_n_double(sketch) n"
_SIZES = (1, 2, 8, 399, 400, 401, 666, 5_000, 200_000)
# As tables have them that MoteMQ wrote without a library, with the percentiles that it read there.
_OF_OLD = {
    "eNpjYuJnmcDIwQABLA4ACLcA9Q==": ([2.5], [2.5] * 3),
    "eNpjZeRnmsDIwcDCAAETGBkZehihHIYP9hBayAGVz+CASgs5AADORAVW": (
        [1.0, 2.0, 2.0, 4.5],
        [2.0, 4.5, 4.5],
    ),
    "eNrt2LEJgDAURdH3xUA6BS2yjRnPMqNZOYcjKIpNSivzuRceZ4cXbOiKRa2T7or12i/fbaaqlB9nxA8mRET8lUQe"
    "OhbE9lVG9GNEdOCI6ED+yFY8Ab/KINY=": (
        sorted(float(n % 7) for n in range(5_000)),
        [3.0, 6.0, 6.0],
    ),
}


def _off(found: list[float], values: list[float]) -> float:
    """Return by how much of all values the worst percentile is at a wrong place."""
    worst = 0.0
    for value, percent in zip(found, PERCENTS, strict=True):
        low, high = bisect.bisect_left(values, value), bisect.bisect_right(values, value)
        share = percent / 100
        worst = max(worst, low / len(values) - share, share - high / len(values))
    return worst


@pytest.mark.parametrize("size", _SIZES)
def test_a_sketch_is_read_by_spark_as_by_us(spark: SparkSession, size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    ours = sketch_of(np.sort(values))
    again, percentiles = merged([ours])
    assert merged([again, sketch_of(np.empty(0))])[1] == percentiles
    frame = spark.createDataFrame([(ours,)], "sketch binary")
    found = frame.selectExpr(_PERCENTILES, _COUNT).first()
    assert found is not None
    assert (found["p"], found["n"]) == (percentiles, size)
    assert _off(found["p"], sorted(values)) <= (0.01 if size > K else 1 / size)


def test_spark_merges_our_sketches_and_we_merge_sparks(spark: SparkSession) -> None:
    chance = np.random.default_rng()
    pieces = [chance.normal(size=size) for size in _SIZES]
    values = sorted(np.concatenate(pieces))
    ours = [(sketch_of(np.sort(piece)),) for piece in pieces]
    frame = spark.createDataFrame(ours, "sketch binary").agg(
        F.kll_merge_agg_double("sketch", F.lit(K)).alias("sketch")
    )
    found = frame.selectExpr(_PERCENTILES, _COUNT).first()
    assert found is not None
    assert found["n"] == len(values)
    assert _off(found["p"], values) <= 0.01
    made = spark.createDataFrame(
        [(at, float(v)) for at, piece in enumerate(pieces[:-1]) for v in piece], "at int, v double"
    )
    sketch = F.kll_sketch_agg_double("v", F.lit(K))
    rows = made.groupBy("at").agg(sketch.alias("sketch")).collect()
    _, theirs = merged(bytes(row["sketch"]) for row in rows)
    assert _off(theirs, sorted(np.concatenate(pieces[:-1]))) <= 0.01


def test_sketches_that_tables_have_already_are_read_and_merged(spark: SparkSession) -> None:
    for text, (values, percentiles) in _OF_OLD.items():
        sketch = zlib.decompress(base64.b64decode(text))
        again, found = merged([sketch])
        assert found == percentiles
        rows = spark.createDataFrame([(sketch,), (again,)], "sketch binary")
        for row in rows.selectExpr(_PERCENTILES, _COUNT).collect():
            assert (row["p"], row["n"]) == (percentiles, len(values))
        more = [float(n) for n in range(-len(values), 0)]
        _, found = merged([sketch, sketch_of(np.array(more)), sketch])
        assert _off(found, sorted([*values, *more, *values])) <= 0.01


@given(
    st.lists(
        st.lists(st.floats(-9, 9).map(lambda v: v + 0.0), min_size=1, max_size=K),
        min_size=1,
        max_size=9,
    )
)
def test_sketches_of_few_values_have_them_all(groups: list[list[float]]) -> None:
    groups = [sorted(group) for group in groups]
    counts = np.array([len(group) for group in groups])
    made = of_few(np.concatenate(groups), np.cumsum(counts) - counts, counts)
    for group, sketch in zip(groups, made.to_pylist(), strict=True):
        theirs = sketch_of(np.array(group))
        # The library has them in any order.
        begin = len(theirs) - 8 * len(group)
        assert sketch[:begin] == theirs[:begin]
        assert list(np.frombuffer(sketch[begin:])) == group
        assert sorted(np.frombuffer(theirs[begin:])) == group
        assert merged([sketch])[1] == _exact(group)
        # With those of another one, up to so many.
        more = group[: K - len(group)]
        assert merged([sketch, sketch_of(np.array(more))])[1] == _exact(sorted(group + more))


def _exact(values: list[float]) -> list[float]:
    return [values[-(-len(values) * percent // 100) - 1] for percent in PERCENTS]


@pytest.mark.parametrize("order", ["rising", "falling", "random", "few values"])
def test_a_sketch_that_grows_by_many_merges_keeps_its_rank(order: str) -> None:
    """An hour that is refreshed 3,600 times, by a few readings each time."""
    chance = random.Random(order)
    values = [float(n) for n in range(100_000)]
    if order == "falling":
        values.reverse()
    elif order == "random":
        chance.shuffle(values)
    elif order == "few values":
        values = [float(chance.randrange(7)) for _ in values]
    sketch, at = sketch_of(np.empty(0)), 0
    while at < len(values):
        size = chance.choice([1, 2, 17, 60])
        sketch, percentiles = merged([sketch, sketch_of(np.sort(values[at : at + size]))])
        at += size
    assert _off(percentiles, sorted(values)) <= 0.01
    assert len(sketch) < 11_000
