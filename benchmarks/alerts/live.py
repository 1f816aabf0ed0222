"""A query of alerts beside a broker: its start, its batches, and how long a person waits."""

import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.alerts.rules import REGISTRY
from benchmarks.faults.processes import Broker, Failed
from host_broker.client import connect
from motemq_pipeline import silver
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.stream import alert_stream, publish
from motemq_pipeline.registry import load_registry

_START_S = 300.0
_HEARD_S = 300.0
_BOARDS = 100
_ASKED = 10  # values out of range
_TICK_S = 0.01
_LOADED = 20  # a batch of a twentieth of what is sent in a second has its load


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds to the first batch; ms of an idle and a loaded batch, medians; ms to be heard."""

    start_s: float
    idle_ms: float
    loaded_ms: float
    loaded_rows: float
    heard_p50_ms: float
    heard_max_ms: float


def measure(spark: SparkSession, folder: Path, rate: float, seconds: float) -> Result:
    """Publish ``rate`` readings a second; now and then one is out of range, and is waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder / "data", "--set", "journal.flush_s=0.01")
    try:
        _publish_one(broker.port)  # a query without data runs no batch, and so does not begin
        began = time.monotonic()
        query = _query(spark, folder, broker.port)
        try:
            _wait(query, 1)
            start_s = time.monotonic() - began
            time.sleep(seconds / 3)
            idle = _batches_ms(query)
            heard = _load(broker.port, rate, seconds)
            # An alert is heard before its batch ends, and on a busy machine the first one is long.
            _wait(query, rate / _LOADED)
            loaded = [
                (progress.batchDuration, progress.numInputRows)
                for progress in query.recentProgress
                if progress.numInputRows >= rate / _LOADED
            ]
        finally:
            query.stop()
    finally:
        broker.end()
    if not heard:
        raise Failed(f"no alert was heard within {_HEARD_S:g} s: {query.exception()}")
    return Result(
        start_s,
        statistics.median(idle or [0.0]),
        statistics.median(ms for ms, _ in loaded),
        statistics.median(rows for _, rows in loaded),
        statistics.median(heard),
        max(heard),
    )


def _query(spark: SparkSession, folder: Path, port: int) -> StreamingQuery:
    file = folder / "registry.toml"
    file.write_text(REGISTRY)
    registry = load_registry(file)
    url = f"http://127.0.0.1:{port}"
    reader = spark.readStream.format("motemq").option("brokers", url)
    messages = reader.option("startingOffsets", "earliest").option("topics", "bench/*/*").load()
    readings = silver.telemetry(silver.decoded(messages, registry))
    alerts = alert_stream(readings, registry, AlertSettings())
    checkpoint = str(folder / "checkpoint")

    def add(batch: DataFrame, number: int) -> None:
        publish(batch, number, {"brokers": url, "checkpointLocation": checkpoint})

    writer = alerts.writeStream.foreachBatch(add).option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="0 seconds").start()


def _publish_one(port: int) -> None:
    with connect(f"fmqp://127.0.0.1:{port}") as client:
        client.publish("bench/first/temperature", b'{"n": 0, "v": 20}')
        client.sync()


def _wait(query: StreamingQuery, rows: float) -> None:
    """Wait until a batch of so many rows is done."""
    deadline = time.monotonic() + _START_S
    while not any(progress.numInputRows >= rows for progress in query.recentProgress):
        if not query.isActive or time.monotonic() > deadline:
            raise Failed(f"no batch had {rows:g} rows: {query.exception()}")
        time.sleep(0.05)


def _batches_ms(query: StreamingQuery) -> list[float]:
    """Return the ms of batches without data."""
    return [
        float(progress.batchDuration)
        for progress in query.recentProgress
        if "addBatch" in progress.durationMs and not progress.numInputRows
    ]


def _load(port: int, rate: float, seconds: float) -> list[float]:
    """Publish; returns, of values out of range, the ms from publication to alert."""
    client = connect(f"fmqp://127.0.0.1:{port}")
    heard: list[float] = []
    with client:
        client.subscribe("alerts/*/range")
        client.sync()
        began, sent, asked_at, asked = time.monotonic(), 0, 0.0, 0
        while time.monotonic() - began < seconds or (
            asked_at and time.monotonic() - asked_at < _HEARD_S
        ):
            passed = time.monotonic() - began
            while sent < passed * rate:
                out = not asked_at and asked < _ASKED and passed > (asked + 0.5) * seconds / _ASKED
                if out:
                    asked, asked_at = asked + 1, time.monotonic()
                value = 20.0 if not out else 99.0
                board = f"out-{asked}" if out else f"board-{sent % _BOARDS}"
                number = 0 if out else sent // _BOARDS
                body = json.dumps({"n": number, "v": value}).encode()
                client.publish(f"bench/{board}/temperature", body)
                sent += 1
            while client.receive(_TICK_S) is not None:
                if asked_at:
                    heard.append((time.monotonic() - asked_at) * 1000)
                asked_at = 0.0
    return heard
