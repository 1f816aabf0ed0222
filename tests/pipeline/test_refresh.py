"""Tables that are made again as readings come are those made of all readings at once."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import adding, compaction, job, store
from motemq_pipeline.config import load_config
from motemq_pipeline.refresh import Refresh
from motemq_pipeline.rollups import WINDOWS, rollup
from motemq_pipeline.schemas import TABLES

_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
_SILVER = "silver_telemetry"
_BATCHES = 3


class _Desk:
    """Boards that send for some simulated hours: late, twice, with gaps, or begun again."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._hour = 0
        self._sent: list[tuple[Any, ...]] = []
        self._message = 0

    def batch(self) -> list[tuple[Any, ...]]:
        self._hour += self._chance.choice([0, 1, 1, 30])
        return [self._reading() for _ in range(self._chance.randint(1, 40))]

    def _reading(self) -> tuple[Any, ...]:
        chance = self._chance
        self._message += 1
        if self._sent and chance.random() < 0.2:
            return (*chance.choice(self._sent)[:-1], self._message)  # a copy
        at = _NOON + timedelta(seconds=3600 * self._hour + chance.randrange(3600))
        if chance.random() < 0.2:
            at -= timedelta(hours=chance.randint(1, 5))
        board, sensor = chance.choice("abc"), chance.choice(["t", "h", "end"])
        seq = chance.choice([None, chance.randrange(100), self._message])
        value = chance.choice([float(self._message), -0.5])
        found = (board, sensor, seq, None, "C", value, at, "broker", at, f"home/{board}/x", "fmqp",
                 chance.choice([1, 2]), 0, self._message)  # fmt: skip
        self._sent.append(found)
        return found


def _rows(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return rows


@settings(deadline=None, max_examples=2, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_what_is_made_by_and_by_is_what_is_made_at_once(
    spark: SparkSession, tmp_path_factory: Any, seed: int
) -> None:
    chance, folder = random.Random(seed), tmp_path_factory.mktemp("refresh")
    file = folder / "run.toml"
    file.write_text('[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n')
    config = load_config(file)
    tables: Path = config.tables
    for table in TABLES:
        store.create(table, tables)
    desk, refresh = _Desk(chance), Refresh(spark, config)
    with pytest.MonkeyPatch.context() as patch:
        # All others are made whole each time.
        patch.setattr(job, "FROM_SILVER", tuple(WINDOWS))
        for number in range(_BATCHES):
            rows = spark.createDataFrame(desk.batch(), TABLES[_SILVER])
            assert adding.append(_SILVER, rows, tables, number) > 0
            if chance.random() < 0.3:
                compaction.compact(tables)
            if chance.random() < 0.2:
                refresh = Refresh(spark, config)  # the run was started again
            if chance.random() < 0.7 or number == _BATCHES - 1:
                refresh.follow(at_once=True)
    everything = store.read(spark, _SILVER, tables)
    for table in WINDOWS:
        kept: pa.Table = store.dataset(table, tables).to_table()
        assert kept.num_rows
        assert kept.to_pylist() == _rows(rollup(everything, table)), table
