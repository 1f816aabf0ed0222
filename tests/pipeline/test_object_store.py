"""Tables on an object store: run, killed, repeated, compacted, cleared and asked there."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.cluster.object_store import ObjectStore, object_store
from motemq_pipeline import restarts
from motemq_pipeline.config import load_config
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError, StoreUnavailable
from motemq_pipeline.run import run
from motemq_pipeline.sql import by_duckdb
from motemq_pipeline.status import RunStatus
from motemq_pipeline.storage import Storage
from tests.pipeline.desk import Sender, reading, write_segment

pytestmark = pytest.mark.timeout(900)
_END_S = 400.0
_MESSAGES = 1500


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def place(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Storage:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return Storage.at(f"s3://tables/{tmp_path.name}")


def test_a_store_that_keeps_tables_is_left_as_it_was(place: Storage, store: ObjectStore) -> None:
    before = store.files("")
    place.prove()
    assert store.files("") == before


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("AWS_SECRET_ACCESS_KEY", "wrong", "SignatureDoesNotMatch"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "cannot keep tables"),
    ],
)
def test_what_a_store_says_is_told_in_one_line(
    place: Storage, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(PipelineError, match=told) as caught:
        Storage.at(place.uri, {"max_retries": "0"}).prove()
    assert "\n" not in str(caught.value)
    assert "not-so-secret" not in str(caught.value)


def _messages() -> list[tuple[str, bytes]]:
    return [
        ("telemetry/b/temperature", reading("b", n, "temperature", n)) for n in range(_MESSAGES)
    ]


def _rows(place: Storage, table: str) -> int:
    ((rows,),) = by_duckdb(f"select count(*) from {table}", place)[1]
    return int(rows)


def test_a_run_that_is_killed_has_each_message_once(
    store: ObjectStore, place: Storage, tmp_path: Path
) -> None:
    senders = [(Sender(1, 1), [message]) for message in _messages()]
    write_segment(tmp_path / "journal", 0, senders)
    config = tmp_path / "run.toml"
    config.write_text(
        f'[source]\njournal = "journal"\nmax_rows = 300\n'
        f'[tables]\nfolder = "{place.uri}"\ncheckpoint = "checkpoint"\n'
    )
    argv = [sys.executable, "-m", "motemq", "pipeline", "run", str(config), "--quiet"]
    bronze = Table(place, "bronze_messages")
    with subprocess.Popen(argv, start_new_session=True) as killed:
        try:
            deadline = time.monotonic() + _END_S
            while not (bronze.exists() and 0 < bronze.count() < _MESSAGES):
                assert killed.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)  # each look is several requests to the store
        finally:
            os.killpg(killed.pid, signal.SIGKILL)
    before = bronze.count()
    assert before < _MESSAGES
    done = subprocess.run([*argv, "--once"], capture_output=True, text=True, timeout=_END_S)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("bronze_messages", "silver_telemetry"):
        number = "seq" if name == "bronze_messages" else "message_seq"
        found = by_duckdb(f"select {number} from {name} order by 1", place)[1]
        assert [row[0] for row in found] == list(range(_MESSAGES))
    assert _rows(place, "gold_streams") == 1
    # What the killed batch left behind is of no table; clearing takes it, and nothing else.
    orphan = f"tables/{tmp_path.name}/bronze_messages/date=2026-01-01/orphan.parquet"
    with store.filesystem().open_output_stream(orphan) as file:
        file.write(b"half a file")
    files, compacted = bronze.compact()
    assert (files >= _MESSAGES // 300, compacted) == (True, 1)
    bronze.vacuum(86_400.0)
    assert orphan in store.files(tmp_path.name)
    options = dict(place.options)
    table = DeltaTable(bronze.storage.uri, storage_options=options)
    table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    data = {
        name for name in store.files(f"{tmp_path.name}/bronze_messages") if "_delta_log" not in name
    }
    assert len(data) == 1
    assert orphan not in data
    assert _rows(place, "bronze_messages") == _MESSAGES


def test_a_store_that_does_not_answer_is_waited_for(
    spark: SparkSession,
    store: ObjectStore,
    place: Storage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    file = tmp_path / "run.toml"
    options = '{ max_retries = "1", retry_timeout = "1s", timeout = "10s" }'
    file.write_text(
        f'[source]\njournal = "journal"\n[tables]\nfolder = "{place.uri}"\n'
        f'checkpoint = "checkpoint"\noptions = {options}\n[run]\ngold_every = "1h"\n'
    )
    messages = _messages()[:20]
    write_segment(tmp_path / "journal", 0, [(Sender(1, 1), messages[:10])])
    config = load_config(file)
    bronze, deadline = Table(place, "bronze_messages"), time.monotonic() + _END_S
    stage = "before"

    def told(status: RunStatus) -> None:
        """Stop the store in the middle, and let it go on when a query has failed of that."""
        nonlocal stage
        assert time.monotonic() < deadline, (stage, status)
        for query in status.queries:
            if stage == "before" and query.name == "bronze" and query.rows == 10:
                store.pause()
                stage = "away"
                write_segment(tmp_path / "journal", 1, [(Sender(2, 1), messages[10:])])
            elif stage == "away" and query.restarts:
                store.resume()
                stage = "again"

    try:
        run(spark, config, False, told, lambda: stage == "again" and bronze.count() == 20)
    finally:
        store.resume()
    assert _rows(place, "bronze_messages") == 20


def test_without_an_answer_there_is_one_line(place: Storage, store: ObjectStore) -> None:
    away = Storage.at(place.uri, {"max_retries": "0", "timeout": "1s"})
    Table(place, "alerts").create()
    table = Table(away, "alerts")
    store.pause()
    try:
        for ask in (table.count, table.exists, lambda: table.added(0, 1)):
            with pytest.raises(StoreUnavailable, match="operation timed out") as caught:
                ask()
            assert "\n" not in str(caught.value)
    finally:
        store.resume()
    assert Table(place, "alerts").count() == 0
