"""Our KLL sketches are those of Spark, and percentiles have the rank that docs/tables.md says."""

import bisect
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from motemq_pipeline.sketches import PERCENTS, K, Sketch, of_few

_PERCENTILES = "kll_sketch_get_quantile_double(sketch, array({})) p".format(
    ", ".join(f"{percent / 100}D" for percent in PERCENTS)
)
_COUNT = "kll_sketch_get_n_double(sketch) n"
_SIZES = (0, 1, 2, 8, 399, 400, 401, 666, 5_000, 200_000)


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
    ours = Sketch().add(np.sort(values)).to_bytes()
    again = Sketch().merge(ours)
    assert again.to_bytes() == ours
    if not size:
        return
    frame = spark.createDataFrame([(ours,)], "sketch binary")
    found = frame.selectExpr(_PERCENTILES, _COUNT).first()
    assert found is not None
    assert (found["p"], found["n"]) == (again.percentiles(), size)
    assert _off(found["p"], sorted(values)) <= (0.01 if size > K else 1 / size)


def test_spark_merges_our_sketches_and_we_merge_sparks(spark: SparkSession) -> None:
    chance = np.random.default_rng()
    pieces = [chance.normal(size=size) for size in _SIZES[1:]]
    values = sorted(np.concatenate(pieces))
    ours = [(Sketch().add(np.sort(piece)).to_bytes(),) for piece in pieces]
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
    theirs = Sketch()
    for row in made.groupBy("at").agg(sketch.alias("sketch")).collect():
        theirs.merge(bytes(row["sketch"]))
    assert _off(theirs.percentiles(), sorted(np.concatenate(pieces[:-1]))) <= 0.01


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
        assert sketch == Sketch().add(np.array(group)).to_bytes()
        expected = [group[-(-len(group) * percent // 100) - 1] for percent in PERCENTS]
        assert Sketch().merge(sketch).percentiles() == expected


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
    sketch, at = Sketch().to_bytes(), 0
    while at < len(values):
        size = chance.choice([1, 2, 17, 60])
        more = np.sort(values[at : at + size])
        sketch = Sketch().merge(sketch).add(more).to_bytes()
        at += size
    assert _off(Sketch().merge(sketch).percentiles(), sorted(values)) <= 0.01
    assert len(sketch) < 11_000
