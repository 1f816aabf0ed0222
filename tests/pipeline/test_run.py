"""The continuous run as a process: killed, stopped, asked; and what its tables hold then."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.ports import port_for_later
from host_broker.client import connect
from motemq_pipeline import restarts, streams
from motemq_pipeline.about import read_about
from motemq_pipeline.cli import command
from motemq_pipeline.config import RunConfig, load_config
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.run import run
from motemq_pipeline.status import BRONZE, RunStatus, only_run, read_status
from motemq_pipeline.storage import Storage
from motemq_pipeline.streams import Streams
from pyspark_motemq.journal import PARTITIONS
from pyspark_motemq.remote import Broker, Brokers
from tests.host_broker.net.broker_process import broker
from tests.pipeline.conftest import Tables, rows_of
from tests.pipeline.desk import MESSAGES, Sender, reading, write_journal, write_rig, write_segment

_END_S = 400.0
pytestmark = pytest.mark.timeout(900)  # two Sparks, on a machine that may have much else to do
_BROKER = ("--listen", "auto://127.0.0.1:0", "--set", "journal.flush_s=0.001")


def _config(folder: Path, source: str, gold_every: str = "1s") -> Path:
    file = folder / "run.toml"
    file.write_text(
        f'[source]\n{source}\n[tables]\nfolder = "tables"\nrig = "rig"\n'
        f'[run]\ngold_every = "{gold_every}"\n'
    )
    return file


def _once(spark: SparkSession, config: RunConfig) -> RunStatus:
    told: list[RunStatus] = []
    run(spark, config, True, told.append, lambda: False)
    return told[-1]


def _keys(place: Storage | Path, table: str = "bronze_messages") -> list[tuple[int, int]]:
    number = "seq" if table == "bronze_messages" else "message_seq"
    rows = rows_of(place.uri if isinstance(place, Storage) else place, table)
    return sorted((row["partition"], row[number]) for row in rows)


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    """A run of the desk's journal that was brought up to date once."""
    folder = tmp_path_factory.mktemp("run")
    write_journal(folder / "journal")
    write_rig(folder / "rig")
    config = load_config(_config(folder, 'journal = "journal"'))
    status = _once(spark, config)
    assert {query.name: query.rows for query in status.queries}["bronze"] == MESSAGES
    return config


def test_a_run_makes_the_tables_of_a_backfill(desk: Tables, here: RunConfig) -> None:
    for table in ("bronze_messages", "silver_telemetry"):
        assert _keys(here.place, table) == sorted(
            (row["partition"], row["seq" if table == "bronze_messages" else "message_seq"])
            for row in desk.rows(table)
        )
    for table in ("gold_sensor_rollup", "gold_board_health", "gold_checks", "gold_rtt"):
        assert rows_of(here.place.uri, table) == desk.rows(table)


def test_alerts_of_what_is_there_are_told_once_and_that_is_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark gives a query with timers batches for ever, however little there is to read."""
    (tmp_path / "rules.toml").write_text(
        '[[rule]]\npath = "lab/{board}/{sensor}"\nis = "telemetry"\nencoding = "number"\n'
        "[rule.sensors.pressure]\nmax = 1100\n"
    )
    file = tmp_path / "run.toml"
    file.write_text(
        '[source]\njournal = "journal"\n[tables]\nfolder = "tables"\nregistry = "rules.toml"\n'
        "[alerts]\n"
    )
    config = load_config(file)
    for first in (0, 2):  # the second time it goes on in the middle
        readings = [(f"lab/north{first}/pressure", value) for value in (b"1000", b"1200")]
        write_segment(tmp_path / "journal", 0, [(Sender(1, 1), readings)], first)
        status = _once(spark, config)
        # Wills and readings are read by themselves, but a message is one message.
        assert {query.name: query.rows for query in status.queries} == dict.fromkeys(
            ("bronze", "silver", "alerts"), 2
        )
        found = [row["board"] for row in rows_of(config.place.uri, "alerts")]
        assert sorted(found) == [f"north{each}" for each in range(0, first + 1, 2)]


def test_what_the_journal_has_deleted_ends_a_run_by_name_or_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    text = '[source]\njournal = "journal"\n{}\n[tables]\nfolder = "tables"\n'
    file = tmp_path / "run.toml"
    file.write_text(text.format(""))
    sent = [("home/north/t", b"1")]
    write_segment(journal, 0, [(Sender(1, 1), sent)])
    _once(spark, load_config(file))
    write_segment(journal, 0, [(Sender(1, 1), sent)], 7)
    write_segment(journal, 1, [(Sender(2, 1), sent)], 5)  # of which nothing was read
    (journal / "p0000" / f"{0:020}.mjl").unlink()
    mend = r"fail_on_data_loss = false"
    with pytest.raises(PySparkException, match=rf"messages \d to \d of partition \d .*{mend}"):
        _once(spark, load_config(file))
    file.write_text(text.format("fail_on_data_loss = false"))
    status = _once(spark, load_config(file))
    told = sorted(status.given_up)
    assert [each[: len("bronze: messages 0 to 0 of partition 0")] for each in told] == [
        "bronze: messages 0 to 4 of partition 1",
        "bronze: messages 1 to 6 of partition 0",
    ]
    assert read_status(tmp_path / "tables" / ".checkpoint").given_up == status.given_up
    assert _keys(tmp_path / "tables") == [(0, 0), (0, 7), (1, 5)]


def test_tables_and_checkpoints_that_do_not_belong_together_are_refused(
    spark: SparkSession, here: RunConfig, desk: Tables, tmp_path: Path
) -> None:
    def refused(told: str, tables: Path, checkpoint: Path) -> None:
        text = f'journal = "journal"\n[tables]\nfolder = "{tables}"\ncheckpoint = "{checkpoint}"\n'
        file = tmp_path / "other.toml"
        file.write_text("[source]\n" + text)
        with pytest.raises(PipelineError, match=told):
            _once(spark, load_config(file))

    assert here.place.folder is not None
    refused("are fed from another checkpoint", here.place.folder, tmp_path / "new")
    refused("feeds other tables", tmp_path / "elsewhere", here.checkpoint)
    copy = tmp_path / "copy"
    shutil.copytree(desk.folder, copy)
    refused("written by 'motemq pipeline backfill'", copy, tmp_path / "new")
    with (
        only_run(here.checkpoint),
        pytest.raises(
            PipelineError, match=f"^process {os.getpid()} is running with the checkpoint"
        ),
    ):
        _once(spark, here)


def test_what_came_since_is_added_once_whatever_was_noted(
    spark: SparkSession, here: RunConfig
) -> None:
    """Spark is made to believe that it never finished its last batch, as after a kill."""
    journal = here.source.journal
    assert journal is not None
    before = _keys(here.place)
    more = [
        ("telemetry/vpico-9/temperature", reading("vpico-9", n, "temperature", 1)) for n in (0, 1)
    ]
    write_segment(journal, 7, [(Sender(9, 1), more)])
    _once(spark, here)
    after = sorted([*before, (7, 0), (7, 1)])
    assert _keys(here.place) == after
    for query in ("bronze", "silver"):
        commits = here.checkpoint / query / "commits"
        newest = max((entry for entry in commits.glob("[0-9]*")), key=lambda each: int(each.name))
        newest.unlink()
        (commits / f".{newest.name}.crc").unlink(missing_ok=True)
    # Its rows are in the tables all the same: nothing is behind.
    queries = _status(here.file)[1]["queries"]
    assert isinstance(queries, list)
    assert [each["behind"] for each in queries] == [0, 0]
    _once(spark, here)
    assert _keys(here.place) == after
    assert len(_keys(here.place, "silver_telemetry")) == len(
        set(_keys(here.place, "silver_telemetry"))
    )


def test_a_failure_of_spark_that_passes_ends_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    write_journal(tmp_path / "journal")
    config = load_config(_config(tmp_path, 'journal = "journal"'))
    left = {"bronze_messages": 2, "silver_telemetry": 1, "gold_streams": 2}
    really = Table._committed

    def stumbling(table: Table, *more: object) -> bool:
        left[table.name] = left.get(table.name, 0) - 1
        if left[table.name] >= 0:
            raise RuntimeError("Task serialization failed: threads that stumbled")
        return really(table, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Table, "_committed", stumbling)
    status = _once(spark, config)
    assert {query.name: query.restarts for query in status.queries} == {"bronze": 2, "silver": 1}
    assert all("threads that stumbled" in query.failure for query in status.queries)
    keys = _keys(config.place)
    assert len(keys) == MESSAGES == len(set(keys))
    assert max(left.values()) < 0

    write_segment(tmp_path / "journal", 7, [(Sender(9, 1), [("a/b", b"")])])
    left["bronze_messages"] = 1000
    with pytest.raises(PySparkException, match="threads that stumbled"):
        _once(spark, config)
    assert left["bronze_messages"] == 1000 - restarts.IN_A_ROW


class _TwoBrokers:
    """Two brokers, each started again at its port, and the queries that read both."""

    def __init__(self, spark: SparkSession, folder: Path, running: ExitStack) -> None:
        self.ports = {name: port_for_later() for name in ("one", "other")}
        self.urls = [f"http://127.0.0.1:{port}" for port in self.ports.values()]
        self.config = load_config(_config(folder, f"brokers = {self.urls}", gold_every="1h"))
        self.table = Table(self.config.place, "bronze_messages")
        self.queries = Streams(spark, self.config, None)
        self._folder = folder
        self._running = running
        running.callback(self.queries.stop)

    def start(self, name: str) -> ExitStack:
        """Return what ends the broker."""
        alive = self._running.enter_context(ExitStack())
        listen = ("--listen", f"auto://127.0.0.1:{self.ports[name]}")
        alive.enter_context(broker("--data", str(self._folder / name), *listen, *_BROKER[2:]))
        return alive

    def read(self, rows: int) -> None:
        """Return when so many are in the table."""
        deadline = time.monotonic() + _END_S
        while self.table.count() < rows:
            assert self.queries.running()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def journalled(self, messages: int) -> None:
        """Return when both together have so many."""
        asked = Brokers([Broker(url) for url in self.urls])
        deadline = time.monotonic() + _END_S
        while sum(state.next for state in asked.partitions().values()) < messages:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_broker_that_dies_with_a_batch_under_way_holds_up_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages are in the plan that Spark has noted; what the others get comes without them."""
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    monkeypatch.setattr(streams, "_OTHERS_WAIT", "100ms")
    really = Table._committed
    kill, published = threading.Event(), threading.Event()

    with ExitStack() as running:
        both = _TwoBrokers(spark, tmp_path, running)
        both.start("one")
        other = both.start("other")

        def stumbling(of: Table, *more: object) -> bool:
            if of.name == both.table.name and kill.is_set():
                assert published.wait(_END_S)
                other.close()
                kill.clear()
                raise RuntimeError("Task serialization failed: threads that stumbled")
            return really(of, *more)  # type: ignore[arg-type]

        monkeypatch.setattr(Table, "_committed", stumbling)
        both.queries.start(once=False)
        for port in both.ports.values():
            _publish(port, range(5))
        both.read(10)
        kill.set()
        _publish(both.ports["other"], range(5, 8))  # planned, read, and not in the table
        published.set()
        while kill.is_set():
            assert both.queries.running()
            time.sleep(0.01)
        _publish(both.ports["one"], range(5, 9))
        both.read(14)
        assert both.queries.restarts[BRONZE] >= 1
        both.start("other")
        both.read(17)
    keys = _keys(both.config.place)
    assert len(keys) == 17 == len(set(keys))


@pytest.mark.parametrize("died", ["planned", "before"])
def test_a_broker_that_is_away_when_tables_begin_holds_up_no_other(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died: str
) -> None:
    """It died with its messages in the plan of the first batch, or before that was planned."""
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    monkeypatch.setattr(streams, "_OTHERS_WAIT", "100ms")
    really = Table.change
    fallen = threading.Event()

    with ExitStack() as running:
        both = _TwoBrokers(spark, tmp_path, running)
        both.start("one")
        other = both.start("other")
        for port in both.ports.values():
            _publish(port, range(5))
        both.journalled(10)

        def stumbling(of: Table, *more: object) -> bool:
            if of.name == both.table.name and not fallen.is_set():
                other.close()
                fallen.set()
                raise RuntimeError("Task serialization failed: threads that stumbled")
            return really(of, *more)  # type: ignore[arg-type]

        monkeypatch.setattr(Table, "change", stumbling)
        if died == "before":
            other.close()
            fallen.set()
        both.queries.start(once=False)
        both.read(5)
        assert fallen.is_set()
        _publish(both.ports["one"], range(5, 9))
        both.read(9)
        place = both.config.place
        assert {partition // PARTITIONS for partition, _ in _keys(place)} == {0}
        both.start("other")
        both.read(14)
    keys = _keys(place)
    assert len(keys) == 14 == len(set(keys))


def test_status_of_what_no_run_has_used_says_that_one_may_have_just_begun(tmp_path: Path) -> None:
    """Spark takes seconds to start, and before that a run has written nothing."""
    told = "no run has used the checkpoint .* yet; one that has just begun does so when its Spark"
    with pytest.raises(PipelineError, match=told):
        read_status(tmp_path)


def test_a_failure_without_words_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark has such: what it asserts of a session that somebody ended."""
    (tmp_path / "journal").mkdir()
    config = load_config(_config(tmp_path, 'journal = "journal"'))

    def start(streams: Streams, once: bool) -> None:
        raise AssertionError

    monkeypatch.setattr(Streams, "start", start)
    with pytest.raises(AssertionError):
        run(cast(SparkSession, None), config, True, lambda status: None, lambda: False)
    assert read_status(config.checkpoint).state == "failed: AssertionError"


def test_status_says_why_a_journal_was_refused(spark: SparkSession, tmp_path: Path) -> None:
    messages = [("a/b", b"1")] * 5
    write_segment(tmp_path / "journal", 0, [(Sender(1, 1), messages)])
    config = load_config(_config(tmp_path, 'journal = "journal"'))
    _once(spark, config)
    write_segment(tmp_path / "journal", 0, [(Sender(1, 1), messages[:3])])  # an older copy
    with pytest.raises(PySparkException):
        _once(spark, config)
    state = read_status(config.checkpoint).state
    assert state.startswith("failed: this query has read partition 0 of the journal folder"), state
    assert "but its next message is 3" in state


class _FailingOnceSeen:
    """A query that was active when it was looked at, and has failed a moment later."""

    def __init__(self, query: StreamingQuery, fail: threading.Event) -> None:
        self._query = query
        self._fail = fail

    @property
    def isActive(self) -> bool:
        active = bool(self._query.isActive)
        self._fail.set()
        with suppress(PySparkException):
            self._query.awaitTermination(_END_S)
        return active

    def __getattr__(self, name: str) -> object:
        return getattr(self._query, name)


def test_a_query_that_fails_just_after_it_was_looked_at_does_not_end_the_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    write_journal(tmp_path / "journal")
    config = load_config(_config(tmp_path, 'journal = "journal"'))
    fail = threading.Event()
    really = Table.change

    def change(table: Table, *more: object) -> bool:
        if table.name == "bronze_messages" and not failed:
            fail.wait(_END_S)
            failed.append(table.name)
            raise RuntimeError("Task serialization failed: threads that stumbled")
        return really(table, *more)  # type: ignore[arg-type]

    failed: list[str] = []
    monkeypatch.setattr(Table, "change", change)
    queries = Streams(spark, config, None)
    try:
        queries.start(once=True)
        bronze = _FailingOnceSeen(queries.queries["bronze"], fail)
        queries.queries["bronze"] = bronze  # type: ignore[assignment]
        assert queries.running()
        assert failed
        while queries.running():
            time.sleep(0.05)
    finally:
        fail.set()
        queries.stop()
    assert queries.restarts == {"bronze": 1, "silver": 0}
    assert len(_keys(config.place)) == MESSAGES


@contextmanager
def _running(config: Path, *more: str) -> Iterator["subprocess.Popen[str]"]:
    argv = [sys.executable, "-m", "motemq", "pipeline", "run", str(config), *more]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def _publish(port: int, numbers: range) -> None:
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for number in numbers:
            client.publish(
                "telemetry/b/temperature", reading("b", number, "temperature", number / 10)
            )
        client.sync()


def _until(tables: Path, rows: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + _END_S
    while True:
        assert process.poll() is None, process.communicate()
        try:
            if Table(Storage.at(tables), "bronze_messages").count() >= rows:
                return
        except PipelineError:
            pass  # not there yet
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _status(config: Path) -> tuple[int, dict[str, object]]:
    done = CliRunner().invoke(command, ["status", str(config), "--json"])
    found: dict[str, object] = json.loads(done.output)
    return done.exit_code, found


def test_status_says_when_gold_was_last_made(here: RunConfig) -> None:
    made = read_about(here.place)["written_at"]
    _, status = _status(here.file)
    assert status["gold_made_at"] == made
    said = CliRunner().invoke(command, ["status", str(here.file)]).output
    assert f"\n  gold       last made {made}\n" in said


def test_kill_9_ctrl_c_and_status(tmp_path: Path) -> None:
    """Killed while it writes, run again, stopped by Ctrl-C: every message once, and it is told."""
    with broker("--data", str(tmp_path / "data"), *_BROKER) as process:
        port = process.ports["auto"]
        # The echoes by which the publisher waits are no rows.
        source = f'brokers = "127.0.0.1:{port}"\n'
        config = _config(tmp_path, f"{source}max_rows = 250", gold_every="1h")
        tables = tmp_path / "tables"
        _publish(port, range(1000))
        with _running(config, "--quiet") as killed:
            _until(tables, 250, killed)
            os.killpg(killed.pid, signal.SIGKILL)
            assert killed.wait(_END_S) == -signal.SIGKILL
        code, status = _status(config)
        assert code == 1
        assert str(status["state"]).startswith("ended without a word")
        assert _keys(tables) == sorted(set(_keys(tables)))
        _config(tmp_path, source, gold_every="1h")  # one batch takes the rest
        _publish(port, range(1000, 1200))
        with _running(config) as again:
            _until(tables, 1200, again)
            code, status = _status(config)
            assert (code, status["state"]) == (0, "running")
            again.send_signal(signal.SIGINT)
            out, err = again.communicate(timeout=_END_S)
            assert (again.returncode, err) == (0, "")
            assert out.splitlines()[-1].startswith("pipeline: ended; messages in this run: bronze")
        assert len(_keys(tables)) == 1200 == len(set(_keys(tables)))
        _publish(port, range(1200, 1250))
        code, status = _status(config)
        assert (code, status["state"]) == (1, "ended")
        queries = status["queries"]
        assert isinstance(queries, list)
        behind = {each["name"]: each["behind"] for each in queries}["bronze"]
        assert 50 <= behind <= 50 + 2  # echoes are in the journal, too
    assert read_status(tables / ".checkpoint").state == "ended"
