"""Alerts by Spark: a broker that runs, its telemetry as a stream, the state in a checkpoint."""

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from host_broker.client import connect
from motemq_pipeline import silver
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.stream import SCHEMA, alert_stream, publish
from motemq_pipeline.registry import load_registry
from tests.host_broker.net.broker_process import BrokerProcess, broker

_DEADLINE_S = 700.0
_SLOW = "Python worker failed to connect back"
pytestmark = pytest.mark.timeout(2400)  # two starts of a query, on a machine that may be busy
_REGISTRY = """
[[rule]]
path = "telemetry/{board}/{sensor}"
is = "telemetry"
encoding = "json"
silent_after_s = 3
fields = { seq = "n", value = "v" }

[rule.sensors.temperature]
min = 0
max = 40
hysteresis = 1
"""
# Nothing but what the test does: a busy machine may take minutes for it.
_SETTINGS = AlertSettings(
    loss_clear_s=3600.0, will_after_s=1.0, loss_after_s=0.5, settle_s=3600.0, shards=2
)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    options = ("--listen", "auto://127.0.0.1:0", "--set", "journal.flush_s=0.001")
    with broker("--data", str(tmp_path / "data"), *options) as process:
        yield process


class Board:
    """A board: its readings, and the will of its connection."""

    def __init__(self, running: BrokerProcess, name: str) -> None:
        self._name = name
        self._numbers = itertools.count()
        self._url = f"fmqp://127.0.0.1:{running.ports['auto']}"
        self.come()

    def come(self) -> None:
        client = connect(self._url)
        self._client = client
        client.publish(f"status/{self._name}", b"offline", will=True)

    def says(self, *values: float, lost: int = 0) -> None:
        for _ in range(lost):
            next(self._numbers)
        for value in values:
            payload = json.dumps({"n": next(self._numbers), "v": value}).encode()
            self._client.publish(f"telemetry/{self._name}/temperature", payload)
        self._client.sync()

    def goes(self) -> None:
        self._client.close()


def _messages(spark: SparkSession, running: BrokerProcess) -> DataFrame:
    reader = spark.readStream.format("motemq").option("startingOffsets", "earliest")
    return reader.option("brokers", f"127.0.0.1:{running.ports['auto']}").load()


class Watch:
    """A query that adds alerts to a table and publishes them; it may be ended and begun again."""

    def __init__(self, spark: SparkSession, running: BrokerProcess, folder: Path) -> None:
        self._spark, self._running, self._folder = spark, running, folder
        self.query = self._start()

    def _start(self) -> StreamingQuery:
        messages = _messages(self._spark, self._running)
        (self._folder / "registry.toml").write_text(_REGISTRY)
        registry = load_registry(self._folder / "registry.toml")
        readings = silver.telemetry(silver.decoded(messages, registry))
        alerts = alert_stream(readings, registry, _SETTINGS, messages)
        checkpoint = str(self._folder / "checkpoint")
        options = {
            "brokers": f"http://127.0.0.1:{self._running.ports['auto']}",
            "checkpointLocation": checkpoint,
        }
        table = str(self._folder / "table")

        def add(batch: DataFrame, number: int) -> None:
            batch.persist()
            if publish(batch, number, options):
                batch.write.mode("overwrite").parquet(f"{table}/batch={number}")
            batch.unpersist()

        writer = alerts.writeStream.foreachBatch(add).option("checkpointLocation", checkpoint)
        return writer.trigger(processingTime="500 milliseconds").start()

    def again(self) -> None:
        self.query.stop()
        self.query = self._start()

    def rows(self) -> list[tuple[str, str, str]]:
        """Return (board, kind, raised or cleared) of all alerts."""
        if not (self._folder / "table").is_dir():
            return []
        rows = self._spark.read.schema(SCHEMA).parquet(str(self._folder / "table")).collect()
        assert len({row.key for row in rows}) == len(rows)
        for row in rows:
            assert row.cleared_at is None or row.cleared_at >= row.raised_at
        told = [
            (row.cleared_at or row.raised_at, row.board, row.kind, row.cleared_at) for row in rows
        ]
        return [
            (b, kind, "cleared" if at else "raised") for _, b, kind, at in sorted(told, key=str)
        ]

    def until(self, *expected: tuple[str, str, str]) -> None:
        """Wait for alerts that are not there yet; all of them, and no others."""
        deadline = time.monotonic() + _DEADLINE_S
        while sorted(found := self.rows()) != sorted(expected):
            if not self.query.isActive:
                # Spark gives its Python ten seconds to start, whatever else the machine does.
                assert _SLOW in str(failure := self.query.exception()), failure
                self.query = self._start()
            assert time.monotonic() < deadline, found
            time.sleep(0.3)


def test_alerts_of_boards_over_a_restart(
    spark: SparkSession, tmp_path: Path, running: BrokerProcess
) -> None:
    listener = connect(f"fmqp://127.0.0.1:{running.ports['auto']}")
    with contextlib.ExitStack() as ends:
        ends.enter_context(listener)
        listener.subscribe("alerts/*/*")
        listener.sync()
        kitchen, hall = Board(running, "kitchen"), Board(running, "hall")
        ends.callback(kitchen.goes)
        ends.callback(hall.goes)
        watch = Watch(spark, running, tmp_path)
        ends.callback(lambda: watch.query.stop())
        kitchen.says(20.0, 41.0, 42.0)
        hall.says(20.0)
        hall.says(20.0, lost=2)
        at_first = [
            ("kitchen", "range", "raised"),
            ("hall", "loss", "raised"),
            ("kitchen", "silent", "raised"),
            ("hall", "silent", "raised"),
        ]
        watch.until(*at_first)
        # From its checkpoint the query says nothing again, and still knows what is to be cleared.
        watch.again()
        kitchen.goes()
        second = [*at_first, ("kitchen", "will", "raised")]
        watch.until(*second)
        kitchen.come()
        kitchen.says(20.0)
        back = [("kitchen", kind, "cleared") for kind in ("range", "silent", "will")]
        watch.until(*second, *back, ("kitchen", "silent", "raised"))
        watch.query.stop()
        listener.sync()
        heard = []
        while (message := listener.receive(0.0)) is not None:
            heard.append((message.topic, json.loads(message.payload)))
    topics = [topic for topic, _ in heard]
    expected = [f"alerts/{board}/{kind}" for board, kind, _ in watch.rows()]
    assert sorted(topics) == sorted(expected)
    (out,) = [said for topic, said in heard if topic == "alerts/kitchen/range"][:1]
    assert (out["value"], out["limit"], out["cleared_at"]) == (41.0, 40.0, None)
    assert out["raised_at"].endswith("Z")
    assert set(out) == {column.split(" ")[0] for column in SCHEMA.split(", ")}
