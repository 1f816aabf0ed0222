"""Tables from a desk whose every fault is known."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from motemq_pipeline.job import Sources, write_tables
from motemq_pipeline.schemas import TABLES, columns
from tests.pipeline.conftest import Tables
from tests.pipeline.desk import MESSAGES, NO_WILL, ODD_BOARD, REFUSED, START_NS

_DOCS = Path(__file__).parents[2] / "docs" / "tables.md"


def test_every_table_is_written_with_its_documented_columns(
    spark: SparkSession, desk: Tables
) -> None:
    assert [written.table for written in desk.progress] == list(TABLES)
    for written in desk.progress:
        assert written.rows == len(desk.rows(written.table))
        found = spark.read.parquet(str(desk.folder / written.table)).schema
        assert found.simpleString() == StructType.fromDDL(TABLES[written.table]).simpleString()


def test_docs_tables_names_every_column_of_every_table() -> None:
    documented: dict[str, str] = {}
    for section in re.split(r"^## ", _DOCS.read_text(), flags=re.MULTILINE)[1:]:
        name = section.splitlines()[0].strip("`")
        pairs = re.findall(r"^\| `(\w+)` \| (\w+) \|", section, flags=re.MULTILINE)
        if pairs:
            documented[name] = ", ".join(f"{column} {kind}" for column, kind in pairs)
    assert documented == TABLES


def test_bronze_holds_every_message(desk: Tables) -> None:
    rows = desk.rows("bronze_messages")
    assert len(rows) == MESSAGES
    assert len({(row["partition"], row["seq"]) for row in rows}) == MESSAGES


def test_silver_holds_the_readings_and_neither_checks_nor_refused(desk: Tables) -> None:
    rows = desk.rows("silver_telemetry")
    counts = dict.fromkeys(("vpico-1", "vpico-2", ODD_BOARD), 0)
    for row in rows:
        counts[row["board"]] += 1
    assert counts == {"vpico-1": 60, "vpico-2": 61, ODD_BOARD: 3}
    assert {row["protocol"] for row in rows if row["board"] == "vpico-2"} == {"lightmq"}


def test_event_time_is_the_arrival_where_a_board_has_no_clock(desk: Tables) -> None:
    rows = [row for row in desk.rows("silver_telemetry") if row["board"] == "vpico-1"]
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=START_NS // 1000 % 1_000_000)
    assert {row["event_time"] for row in rows} == {start, start + timedelta(milliseconds=2)}
    assert {(row["event_time"] == row["received_at"], row["clock"]) for row in rows} == {
        (True, "broker")
    }


def test_bad_payloads_and_lines_are_in_quarantine_with_their_reasons(desk: Tables) -> None:
    rows = desk.rows("silver_quarantine")
    journal = [row for row in rows if row["source"] == "journal"]
    assert [(row["payload"], row["reason"]) for row in journal] == REFUSED
    (line,) = [row for row in rows if row["source"] == "rig"]
    assert line["path"] == "events.jsonl"
    assert line["payload"] == b'{"schema_version": 1, "run_id": "run-2", "ri'


def test_health_counts_gaps_and_duplicates_by_sequence_number(desk: Tables) -> None:
    found = {row["board"]: row for row in desk.rows("gold_board_health")}
    told = ["protocol", "streams", "messages", "gaps", "duplicates", "complete"]
    assert {board: [row[name] for name in told] for board, row in found.items()} == {
        "vpico-1": ["fmqp", 1, 60, 2, 1, True],
        "vpico-2": ["lightmq", 1, 61, 0, 0, True],
        ODD_BOARD: ["fmqp", 1, 3, 0, 0, False],
    }
    # Two records, 2 ms apart.
    assert found["vpico-1"]["rate_per_s"] == pytest.approx(60 / 0.002)
    assert found["vpico-2"]["rate_per_s"] is None


def test_rollup_counts_a_duplicate_once(desk: Tables) -> None:
    rows = {
        (row["board"], row["sensor"], row["window_start_ms"]): row
        for row in desk.rows("gold_sensor_rollup")
    }
    # Numbers 20 (which came twice), 23, 26, 29: values 22.0, 22.3, 22.6, 22.9.
    pressure = rows["vpico-1", "pressure", 20_000]
    assert (pressure["count"], pressure["unit"]) == (4, "hPa")
    assert pressure["mean"] == pytest.approx(22.45)
    assert (pressure["min"], pressure["max"]) == (22.0, 22.9)
    assert pressure["p50"] == pytest.approx(22.45)
    assert pressure["p95"] == pytest.approx(22.855)
    # Numbers 10 and 11 were lost: temperature keeps 12, 15, 18; humidity 13, 16, 19.
    assert rows["vpico-1", "temperature", 10_000]["count"] == 3
    assert rows["vpico-1", "humidity", 10_000]["count"] == 3
    assert not [key for key in rows if key[1] == "end"]


def test_checks_end_as_their_last_attempt(desk: Tables) -> None:
    told = ["run_id", "board_id", "check", "outcome", "attempts", "message"]
    assert [[row[name] for name in told] for row in desk.rows("gold_checks")] == [
        ["run-1", "vpico-1", "ping", "passed", 1, ""],
        ["run-2", "vpico-1", "ping", "passed", 1, ""],
        ["run-2", "vpico-1", "will_abrupt", "passed", 1, ""],
        ["run-2", "vpico-2", "ping", "passed", 2, ""],
        ["run-2", "vpico-2", "will_abrupt", "failed", 1, NO_WILL],
    ]


def test_round_trips_have_exact_percentiles_of_the_last_attempt(desk: Tables) -> None:
    numbers = ["count", "min", "p50", "p90", "p99", "max"]
    found = {
        (row["run_id"], row["board_id"], row["metric"]): [row[name] for name in numbers]
        for row in desk.rows("gold_rtt")
    }
    assert found == {
        ("run-1", "vpico-1", "rtt"): [1, *[5.0] * 5],
        ("run-2", "vpico-1", "rtt"): [
            100,
            10.0,
            505.0,
            pytest.approx(901.0),
            pytest.approx(990.1),
            1000.0,
        ],
        ("run-2", "vpico-1", "will_delay"): [1, *[104.25] * 5],
        ("run-2", "vpico-2", "rtt"): [2, 2000.0, 3000.0, 3800.0, pytest.approx(3980.0), 4000.0],
    }


def test_a_second_run_gives_the_same_tables(spark: SparkSession, desk: Tables) -> None:
    before = {table: pq.read_table(desk.folder / table) for table in TABLES}
    write_tables(spark, desk.sources, desk.folder, desk.progress[:0].append)
    for table, rows in before.items():
        assert pq.read_table(desk.folder / table).equals(rows), table
    assert [path.name for path in desk.folder.iterdir() if path.name.startswith(".")] == []


def test_nothing_in_gives_empty_tables(spark: SparkSession, desk: Tables, tmp_path: Path) -> None:
    for folder in ("journal", "rig"):
        (tmp_path / folder).mkdir()
    sources = Sources(tmp_path / "journal", tmp_path / "rig", desk.sources.rules)
    write_tables(spark, sources, tmp_path / "tables", [].append)
    for table in TABLES:
        found = pq.read_table(tmp_path / "tables" / table)
        assert (found.num_rows, found.column_names) == (0, columns(table))
