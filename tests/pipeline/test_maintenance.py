"""What a run clears away: nothing that its own streams, or gold, have yet to read."""

import itertools
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import maintenance, parquet_files, refresh, restarts
from motemq_pipeline.config import RunConfig, load_config
from motemq_pipeline.delta import Table
from motemq_pipeline.maintenance import Maintenance, clear
from motemq_pipeline.refresh import Refresh
from motemq_pipeline.run import run
from motemq_pipeline.status import finished
from motemq_pipeline.storage import Storage
from motemq_pipeline.streams import Streams
from tests.pipeline.conftest import rows_of
from tests.pipeline.desk import Sender, reading, write_segment

pytestmark = pytest.mark.timeout(900)


def _once(spark: SparkSession, config: RunConfig) -> None:
    run(spark, config, True, lambda status: None, lambda: False)


def _short_history(folder: Path, monkeypatch: pytest.MonkeyPatch) -> RunConfig:
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    file = folder / "run.toml"
    file.write_text('[source]\njournal = "journal"\n[tables]\nfolder = "tables"\nhistory = "1s"\n')
    return load_config(file)


def _age(place: Storage, table: str) -> list[Path]:
    """Let all entries of a log be of an hour ago; return them."""
    folder = place.within(table).folder
    assert folder is not None
    entries = sorted((folder / "_delta_log").glob("*.json"))
    at = time.time() - 3600
    for entry in entries:
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            if "commitInfo" in line:
                line["commitInfo"]["timestamp"] = int(1000 * at)
        entry.write_text("\n".join(map(json.dumps, lines)))
    for file in (folder / "_delta_log").glob("0*"):  # and checkpoints
        os.utime(file, (at, at))
    return entries


def _write(journal: Path, partition: int) -> None:
    path = "telemetry/b/temperature"
    messages = [(path, reading("b", 10 * partition + n, "temperature", n)) for n in range(10)]
    write_segment(journal, partition, [(Sender(1, 1), messages)])


def _stumble(spark: SparkSession, config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run, but for silver."""
    really = Table._committed

    def stumbling(table: Table, *more: object) -> bool:
        if table.name == "silver_telemetry":
            raise RuntimeError("Task serialization failed: threads that stumbled")
        return really(table, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch, pytest.raises(PySparkException, match="stumbled"):
        patch.setattr(Table, "_committed", stumbling)
        _once(spark, config)


def test_a_short_history_is_cleared_though_something_is_always_unread(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in any run that has something to do."""
    config = _short_history(tmp_path, monkeypatch)
    _write(tmp_path / "journal", 0)
    _once(spark, config)
    read = _age(config.place, "bronze_messages")
    _write(tmp_path / "journal", 1)
    _stumble(spark, config, monkeypatch)
    clear(config)
    assert not read[0].exists()
    _once(spark, config)
    assert Table(config.place, "silver_telemetry").count() == 20


def test_what_is_behind_for_longer_than_the_history_goes_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As alerts are while the broker that they are published at is away for hours."""
    config = _short_history(tmp_path, monkeypatch)
    _write(tmp_path / "journal", 0)
    _once(spark, config)
    _write(tmp_path / "journal", 1)
    _stumble(spark, config, monkeypatch)
    assert Table(config.place, "bronze_messages").count() == 20
    assert Table(config.place, "silver_telemetry").count() == 10
    for unread in _age(config.place, "bronze_messages"):
        assert unread.exists()
    clear(config)
    # Silver gets it, and gold does not until it has been cleared, too.
    with monkeypatch.context() as patch:
        patch.setattr(Refresh, "follow", lambda refresh: False)
        _once(spark, config)
    assert Table(config.place, "silver_telemetry").count() == 20
    _age(config.place, "silver_telemetry")
    entries = _age(config.place, "bronze_messages")
    clear(config)
    assert not entries[0].exists()  # nobody needs these any more
    seen: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(Refresh, "_replaced", lambda refresh, name, *more: seen.append(name))
        _once(spark, config)
    assert "gold_rollup_minute" not in seen  # it is not made anew, of all there is
    (hour,) = rows_of(config.place.uri, "gold_rollup_hour")
    assert hour["count"] == 20
    entries = _age(config.place, "silver_telemetry")
    clear(config)
    assert not entries[0].exists()


def test_alerts_that_nobody_takes_are_waited_for_no_longer_than_was_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the broker that they are published at never returns."""
    monkeypatch.setattr(restarts, "_PAUSE_S", 0.01)
    file = tmp_path / "run.toml"
    file.write_text(
        '[source]\njournal = "journal"\n[tables]\nfolder = "tables"\nhistory = "1s"\n[alerts]\n'
    )
    _write(tmp_path / "journal", 0)
    config = load_config(file)
    assert config.keep_unread_s == 7 * 86_400
    _once(spark, config)

    def away(*_: object) -> None:
        raise RuntimeError("Task serialization failed: nobody takes them")

    _write(tmp_path / "journal", 1)
    with monkeypatch.context() as patch, pytest.raises(PySparkException, match="nobody takes"):
        patch.setattr(Streams, "_alert", away)
        _once(spark, config)
    assert Table(config.place, "silver_telemetry").count() == 20
    _age(config.place, "silver_telemetry")
    entries = _age(config.place, "bronze_messages")
    assert clear(config) == []
    assert entries[-1].exists()
    alerts, gold = clear(replace(config, keep_unread_s=0.0))
    assert alerts.startswith("alerts: unread in bronze_messages since 20")
    assert gold.startswith("gold: unread in silver_telemetry since 20")
    assert not entries[0].exists()
    _write(tmp_path / "journal", 2)
    _once(spark, config)  # they go on
    (end, *_) = finished(config.checkpoint, "alerts")
    assert end["version"] >= Table(config.place, "bronze_messages").handle().version()


def test_streams_that_start_while_gold_is_made_have_not_its_settings(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.toml"
    file.write_text('[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n')
    _write(tmp_path / "journal", 0)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "one.txt").write_text("a line")
    name = "spark.sql.execution.arrow.maxBytesPerBatch"
    before = spark.conf.get(name)
    of_streams, of_gold = set(), set()
    really = parquet_files.collected

    def collected(written: DataFrame, *more: object) -> object:
        # A query takes the settings of its session when it is started.
        lines = spark.readStream.text(str(tmp_path / "lines"))
        query = lines.writeStream.foreachBatch(
            lambda batch, _: of_streams.add(batch.sparkSession.conf.get(name))
        )
        setting = written.sparkSession.conf.get(name)
        if setting not in of_gold:
            query.trigger(availableNow=True).start().awaitTermination()
            of_gold.add(setting)
        return really(written, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(refresh, "collected", collected)
    _once(spark, load_config(file))
    assert of_streams == {before}
    # What has few rows, which may be long, is limited by bytes.
    assert of_gold == {before, str(2**31 - 1)}


def test_what_gold_takes_the_first_time_delays_it_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made of nothing then, while Spark loads its code: who looks after it finds no rows."""
    clock = itertools.count()
    times: list[tuple[int, int]] = []  # when gold began to be made, and was
    is_made_thrice = threading.Event()

    class SlowGold:
        def __init__(self, *_: object) -> None:
            pass

        def follow(self) -> bool:
            begun = next(clock)
            for _ in range(1000):
                ended = next(clock)
            times.append((begun, ended))
            if len(times) == 3:
                is_made_thrice.set()
            return True

    class Time:
        monotonic = staticmethod(lambda: float(next(clock)))

    monkeypatch.setattr(maintenance, "Refresh", SlowGold)
    monkeypatch.setattr(maintenance, "time", Time)
    monkeypatch.setattr(maintenance, "_LOOK_S", 0.0)
    monkeypatch.setattr(maintenance, "clear", lambda _: [])
    file = tmp_path / "run.toml"
    file.write_text(
        '[source]\njournal = "journal"\n[tables]\nfolder = "tables"\n'
        '[run]\ngold_every = "50s"\ncompact_every = "30d"\n'
    )
    work = Maintenance(cast(SparkSession, None), load_config(file), once=False)
    work._thread.start()
    try:
        assert is_made_thrice.wait(60)
    finally:
        work._ended.set()
        work._thread.join(60)
    (_, first), (second, again), (third, _) = times[:3]
    assert 50 <= second - first < 100
    assert third - again >= 4000
