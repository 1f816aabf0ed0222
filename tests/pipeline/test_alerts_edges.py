"""Where alerts meet Spark: rows to events, alerts to publications."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from motemq_pipeline.alerts.events import Gone, Reading, Returned
from motemq_pipeline.alerts.signals import events
from motemq_pipeline.alerts.stream import publications, publish
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.pipeline.desk import ODD_BOARD


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    options = ("--listen", "auto://127.0.0.1:0", "--set", "journal.flush_s=0.001")
    with broker("--data", str(tmp_path / "data"), *options) as process:
        yield process


def _frame(*rows: tuple[Any, ...]) -> pd.DataFrame:
    """Signals: partition, message_seq, at_ms, kind, number."""
    return pd.DataFrame(
        [
            {
                "shard": 0,
                "board": "a",
                "kind": kind,
                "at_ms": at_ms,
                "path": "p",
                "sensor": "s",
                "number": number,
                "value": 1.5,
                "connection": 7,
                "partition": partition,
                "message_seq": message,
            }
            for partition, message, at_ms, kind, number in rows
        ]
    )


def test_events_come_in_the_brokers_order_also_when_its_clock_went_back() -> None:
    found = list(
        events(
            [
                _frame((0, 12, 500, 0, 4), (1, 7, 2500, 1, -1)),
                _frame((0, 10, 2000, 0, 3), (0, 9, 1000, 0, -1), (1, 6, 1500, 2, -1)),
            ]
        )
    )
    assert found == [
        Reading("a", 1000, "p", "s", None, 1.5, 7),
        Returned("a", 1500, "p"),
        Reading("a", 2000, "p", "s", 3, 1.5, 7),
        Reading("a", 500, "p", "s", 4, 1.5, 7),
        Gone("a", 2500, "p"),
    ]
    assert list(events([])) == []


def test_any_board_has_a_path_the_broker_takes(
    spark: SparkSession, tmp_path: Path, running: BrokerProcess
) -> None:
    names = ["a", ODD_BOARD, "*", "a/b//", "", "é" * 200, "é" * 199 + "e", " ", "$"]
    at = "timestamp '2026-01-01 00:00:00.5'"
    rows = spark.createDataFrame([(name,) for name in names], "board string").selectExpr(
        *("'id' alert", "'range' kind", "board", "'s' sensor", f"{at} raised_at"),
        *("cast(null as timestamp) cleared_at", "double('Infinity') value", "1D `limit`"),
        *("'words' message", "'key' key"),
    )
    paths = [row.path for row in publications(rows).collect()]
    assert paths[0] == "alerts/a/range"
    assert paths[4] == "alerts/-/range"
    assert len(set(paths)) == len(names)
    assert all(path.count("/") == 2 and len(path) <= 255 for path in paths)
    url = f"http://127.0.0.1:{running.ports['auto']}"
    options = {"brokers": url, "checkpointLocation": str(tmp_path / "c")}
    for _ in range(2):  # the same batch again
        assert publish(rows, 3, options) == len(names)
    journal = spark.read.format("motemq").option("brokers", url).load()
    said = {row.path: json.loads(row.payload) for row in journal.collect()}
    assert journal.count() == len(names)
    assert {path: each["board"] for path, each in said.items()} == dict(
        zip(paths, names, strict=True)
    )
    assert said["alerts/a/range"]["raised_at"] == "2026-01-01T00:00:00.500Z"
