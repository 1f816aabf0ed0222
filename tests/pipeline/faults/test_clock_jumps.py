"""A broker whose clock jumps by hours, there and back: every message is in the tables once."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from host_broker.client import connect
from motemq_pipeline.config import load_config
from motemq_pipeline.run import run
from tests.host_broker.net.broker_process import END_S, START_S, line_of, spawn
from tests.pipeline.conftest import rows_of

_EACH = 60
_JUMPS_S = (0, -86_400, 7_200, -3_600)
_BROKER = """
import sys, time
from pathlib import Path

really, offset = time.time_ns, Path(sys.argv.pop(1))
time.time_ns = lambda: really() + int(offset.read_text()) * 10**9
from motemq.cli import main
main()
"""


class Clock:
    """The clock of a broker: so many seconds off."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.jump(0)

    def jump(self, seconds: int) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(seconds))
        os.replace(fresh, self.file)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path / "clock")


@pytest.fixture
def port(tmp_path: Path, clock: Clock) -> Iterator[int]:
    options = ["--data", str(tmp_path / "data"), "--listen", "auto://127.0.0.1:0"]
    options += ["--set", "journal.flush_s=0.001", "--set", "journal.segment_bytes=4096"]
    process = spawn([sys.executable, "-c", _BROKER, str(clock.file), "broker", *options])
    try:
        yield int(line_of(process, START_S).rpartition(":")[2])
    finally:
        process.kill()
        process.communicate(timeout=END_S)


@pytest.mark.timeout(900)
def test_no_message_is_lost_or_doubled(
    spark: SparkSession, tmp_path: Path, clock: Clock, port: int
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'[source]\nbrokers = "http://127.0.0.1:{port}"\ntopics = "telemetry/*/*"\n'
        'max_rows = 150\n[tables]\nfolder = "tables"\n'
    )
    config = load_config(file)
    seq = 0
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for number, seconds in enumerate(_JUMPS_S, start=1):
            clock.jump(seconds)
            for _ in range(_EACH):
                said = {"v": 1, "board": "b", "seq": seq, "t_ms": seq, "sensor": "t", "unit": "C"}
                payload = json.dumps({**said, "value": seq / 2}).encode()
                client.publish("telemetry/b/t", payload)
                client.sync()  # a record each
                seq += 1
            if number % 2 == 0:  # the second time it goes on from its checkpoint
                run(spark, config, True, lambda _: None, lambda: False)
    total = _EACH * len(_JUMPS_S)
    silver = rows_of(config.place.uri, "silver_telemetry")
    assert sorted(row["seq"] for row in silver) == list(range(total))
    times = [row["received_at"] for row in sorted(silver, key=lambda row: row["seq"])]
    assert times != sorted(times)
    bronze = rows_of(config.place.uri, "bronze_messages")
    keys = [(row["partition"], row["seq"]) for row in bronze]
    assert len(keys) == len(set(keys)) == total
    for table in ("gold_rollup_minute", "gold_rollup_hour"):
        rows = rows_of(config.place.uri, table)
        assert sum(row["count"] for row in rows) == total
    (health,) = rows_of(config.place.uri, "gold_board_health")
    assert (health["messages"], health["gaps"], health["duplicates"]) == (total, 0, 0)
