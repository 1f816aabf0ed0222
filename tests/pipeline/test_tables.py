"""Tables from a desk whose every fault is known."""

import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import motemq_pipeline
from motemq_pipeline import silver, windows
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.job import Sources, write_tables
from motemq_pipeline.registry import load_registry
from motemq_pipeline.schemas import TABLES, VERSIONS, arrow_schema, columns
from motemq_pipeline.storage import Storage
from pyspark_motemq.columns import spark_schema
from tests.pipeline.conftest import Tables, rolled_up
from tests.pipeline.desk import (
    MESSAGES,
    NO_WILL,
    ODD_BOARD,
    REFUSED,
    START_NS,
    Sender,
    write_segment,
)

_DOCS = Path(__file__).parents[2] / "docs" / "tables.md"


def test_every_table_is_written_with_its_documented_columns(
    spark: SparkSession, desk: Tables
) -> None:
    assert [written.table for written in desk.progress] == [n for n in TABLES if n != "alerts"]
    for written in desk.progress:
        assert written.rows == len(desk.rows(written.table))
    for name, ddl in TABLES.items():
        found = motemq_pipeline.table(spark, desk.folder, name).schema
        assert found.simpleString() == StructType.fromDDL(ddl).simpleString()
        arrow = DeltaTable(str(desk.folder / name)).to_pyarrow_dataset().schema
        assert arrow == arrow_schema(name)


def test_the_programs_of_others_that_docs_show_run(
    desk: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    (section,) = re.findall(r"^## With other programs\n(.*?)^## ", _DOCS.read_text(), re.S | re.M)
    (program,) = re.findall(r"^```python\n(.*?)^```", section, re.S | re.M)
    monkeypatch.chdir(desk.folder.parent)
    exec(program.replace("out/tables", desk.folder.name), {})


def test_docs_tables_names_every_column_and_version_of_every_table() -> None:
    documented: dict[str, str] = {}
    versions: dict[str, int] = {}
    for section in re.split(r"^## ", _DOCS.read_text(), flags=re.MULTILINE)[1:]:
        pairs = re.findall(r"^\| `(\w+)` \| (\w+) \|", section, flags=re.MULTILINE)
        if pairs:
            name, version = re.findall(r"^(\w+) \((\d+)\)$", section.splitlines()[0])[0]
            documented[name] = ", ".join(f"{column} {kind}" for column, kind in pairs)
            versions[name] = int(version)
    assert documented == TABLES
    assert versions == VERSIONS


# Columns by version: whoever changes a table's columns raises its version, and notes both here.
_KNOWN = {
    "bronze_messages": (3, "3193efdd"),
    "silver_telemetry": (4, "4689c02b"),
    "silver_quarantine": (2, "d249e4f6"),
    "rig_events": (1, "c38e9033"),
    "rig_samples": (2, "e0d7f4ba"),
    "gold_sensor_rollup": (3, "aee49716"),
    "gold_rollup_minute": (2, "3e0cf8ad"),
    "gold_rollup_hour": (2, "3e0cf8ad"),
    "gold_numbers": (1, "050685c1"),
    "gold_streams": (3, "4043979f"),
    "gold_board_health": (4, "05bdfeb5"),
    "gold_fleet": (3, "df7c0a29"),
    "gold_checks": (1, "33fe050d"),
    "gold_rtt": (2, "71914e32"),
    "gold_latency": (1, "c008d432"),
    "gold_flakes": (1, "394a4152"),
    "gold_regressions": (1, "9327fca7"),
    "alerts": (2, "83dab780"),
}


def test_a_tables_columns_do_not_change_without_its_version() -> None:
    found = {
        name: (VERSIONS[name], f"{zlib.crc32(ddl.encode()):08x}") for name, ddl in TABLES.items()
    }
    assert found == _KNOWN


def test_a_table_says_its_version(desk: Tables) -> None:
    for name, version in VERSIONS.items():
        said = DeltaTable(str(desk.folder / name)).metadata().configuration
        assert said["motemq.version"] == str(version), name


def test_bronze_is_what_the_source_gives_and_its_day() -> None:
    given = spark_schema().replace(" NOT NULL", "")  # a table does not say so
    assert TABLES["bronze_messages"] == f"{given}, date date"


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


def test_a_stream_ends_with_the_sensor_that_its_rule_names(
    spark: SparkSession, desk: Tables, tmp_path: Path
) -> None:
    last = [row for row in desk.rows("silver_telemetry") if row["last"]]
    assert {(row["board"], row["sensor"]) for row in last} == {
        ("vpico-1", "end"),
        ("vpico-2", "end"),
    }
    # A limit switch that somebody calls "end" is a sensor as all others, in gold, too.
    (tmp_path / "own.toml").write_text(
        '[[rule]]\npath = "gate/{board}/{sensor}"\nis = "telemetry"\nencoding = "number"\n'
    )
    write_segment(
        tmp_path, 0, [(Sender(1, 1), [("gate/north/end", b"1"), ("gate/north/end", b"0")])]
    )
    messages = spark.read.format("motemq").option("path", str(tmp_path)).load()
    readings = silver.telemetry(silver.decoded(messages, load_registry(tmp_path / "own.toml")))
    assert {(row["sensor"], row["last"]) for row in readings.collect()} == {("end", None)}
    (minute,) = rolled_up(readings, windows.MINUTES).collect()
    assert (minute["sensor"], minute["count"], minute["max"]) == ("end", 2, 1.0)


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
    missing = {row["board"]: row["missing"] for row in desk.rows("gold_streams")}
    assert missing == {"vpico-1": "10-11", "vpico-2": "", ODD_BOARD: ""}
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
    assert (pressure["p50"], pressure["p95"]) == (22.3, 22.9)
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
    before = {table: desk.rows(table) for table in TABLES}
    write_tables(spark, desk.sources, desk.place, desk.progress[:0].append)
    for table, rows in before.items():
        assert desk.rows(table) == rows, table
    assert {path.name for path in desk.folder.iterdir()} == {*TABLES, "about.json"}


def test_nothing_in_gives_empty_tables(spark: SparkSession, desk: Tables, tmp_path: Path) -> None:
    for folder in ("journal", "rig"):
        (tmp_path / folder).mkdir()
    sources = Sources(tmp_path / "journal", tmp_path / "rig", desk.sources.rules)
    write_tables(spark, sources, Storage.at(tmp_path / "tables"), [].append)
    for table in TABLES:
        found = DeltaTable(str(tmp_path / "tables" / table))
        frame = found.to_pandas()
        assert (len(frame), list(frame.columns)) == (0, columns(table))
        dataset = found.to_pyarrow_dataset()
        with duckdb.connect() as connection:
            connection.register("asked", dataset)
            assert connection.sql("select * from asked").columns == columns(table)
        assert polars.read_delta(str(tmp_path / "tables" / table)).columns == columns(table)


def test_tables_are_frames_in_a_notebook(spark: SparkSession, desk: Tables) -> None:
    once = motemq_pipeline.telemetry(spark, desk.folder)
    assert once.where("board = 'vpico-1'").count() == 59
    assert motemq_pipeline.telemetry(spark, str(desk.folder), copies=True).count() == 124
    assert motemq_pipeline.health(spark, desk.folder).count() == 3
    assert motemq_pipeline.rollup(spark, desk.folder, "hour").columns[:2] == ["board", "sensor"]
    assert motemq_pipeline.session().sparkContext is spark.sparkContext
    assert motemq_pipeline.read(desk.folder / "gold_fleet").count() == 3


def test_alerts_are_a_row_each_by_their_last_word(spark: SparkSession, tmp_path: Path) -> None:
    def at(second: int) -> datetime:
        return datetime(2026, 1, 31, 12, 0, second, tzinfo=UTC)

    said = [
        ("a:1", "range", at(1), None, 34.0, "too hot"),
        ("a:1", "range", at(1), at(9), 28.0, "in range again"),
        ("b:1", "silent", at(5), None, None, "says nothing"),
    ]
    names = ("alert", "kind", "raised_at", "cleared_at", "value", "message")
    more = {"sensor": "", "limit": None, "key": "", "date": date(2026, 1, 31)}
    rows = [{**dict(zip(names, row, strict=True)), **more, "board": row[0][0]} for row in said]
    table = pa.Table.from_pylist(rows, schema=arrow_schema("alerts"))
    made = Table(Storage.at(tmp_path), "alerts")
    made.create()
    write_deltalake(made.handle(), table, mode="append")
    found = motemq_pipeline.fleet_alerts(spark, tmp_path).sort("alert").collect()
    assert [(row.board, row.message, row.value, row.cleared_at is None) for row in found] == [
        ("a", "in range again", 28.0, False),
        ("b", "says nothing", None, True),
    ]
    still = motemq_pipeline.fleet_alerts(spark, tmp_path, open_only=True).collect()
    assert [row.alert for row in still] == ["b:1"]


def test_a_program_without_a_session_is_given_one(desk: Tables) -> None:
    code = "import sys, motemq_pipeline as mp; print(mp.read(sys.argv[1]).count())"
    argv = [sys.executable, "-c", code, str(desk.folder / "gold_fleet")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_a_notebook_is_told_what_is_wrong(
    spark: SparkSession, desk: Tables, tmp_path: Path
) -> None:
    def told(call: Callable[[], object]) -> str:
        with pytest.raises(PipelineError) as caught:
            call()
        return str(caught.value)

    assert "there is no table 'x'; there are bronze" in told(
        lambda: motemq_pipeline.table(spark, desk.folder, "x")
    )
    assert "'minute' or by 'hour', not by 'day'" in told(
        lambda: motemq_pipeline.rollup(spark, desk.folder, "day")
    )
    assert f"there is no table gold_fleet in {tmp_path}" in told(
        lambda: motemq_pipeline.health(spark, tmp_path)
    )
    DeltaTable.create(tmp_path / "silver_telemetry", arrow_schema("silver_telemetry"))
    assert "has version None, this MoteMQ reads version 4" in told(
        lambda: motemq_pipeline.telemetry(spark, tmp_path)
    )


def test_importing_the_package_imports_no_spark() -> None:
    code = "import sys, motemq_pipeline; sys.exit('pyspark.sql' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
