"""The continuous run: the journal to bronze, silver and quarantine, batch after batch, for good.

Every query keeps its place in a checkpoint and adds each of its batches to a table under the
batch's number (``adding.add``), so whatever is killed, at any moment, loses and doubles nothing:
Spark repeats a batch whose end it did not note, and the table knows the batch already. Spark's own
file sink can do the same, but its tables cannot be compacted, and only Spark can read them.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from motemq_pipeline import adding, silver, store
from motemq_pipeline.adding import Target
from motemq_pipeline.alerts.outlet import publish
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.stream import alert_stream
from motemq_pipeline.config import RunConfig
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.parquet_files import collected, writing
from motemq_pipeline.registry import load_registry
from motemq_pipeline.restarts import Restarts
from motemq_pipeline.source_options import source_options
from motemq_pipeline.status import newest

_BRONZE = (Target("bronze_messages"),)
_Begun = tuple[DataFrame, Callable[[DataFrame, int], None]]
_OF_SINK = ("brokers", "tokenFile", "caFile")


@dataclass(frozen=True, slots=True)
class Stream:
    """One query: the tables it feeds; its rows, and what adds a batch of them to the tables."""

    name: str
    tables: tuple[str, ...]
    begin: Callable[[], _Begun]
    least_trigger_s: float = 0.0


class Streams:
    """All queries of one run. ``token``: a file with the brokers' token, None without."""

    def __init__(self, spark: SparkSession, config: RunConfig, token: Path | None) -> None:
        self._spark = spark
        self._config = config
        self._token = token
        self._rules = load_registry(config.registry)
        self._streams = [
            Stream("bronze", _names(_BRONZE), self._bronze),
            Stream("silver", _names(silver.TARGETS), self._silver, 1.0),
        ]
        if config.alerts is not None:
            alerts = AlertSettings.read(config.alerts)
            self._streams.append(
                # It runs at every trigger, because time raises alerts.
                Stream("alerts", ("alerts",), lambda: (self._alerts(alerts), self._alert), 1.0)
            )
        self._once = False
        self._restarts = {stream.name: Restarts() for stream in self._streams}
        self.queries: dict[str, StreamingQuery] = {}

    def start(self, once: bool) -> None:
        """Start every query; with ``once`` they end when they have what is there now.

        Raises ``PipelineError`` if tables and checkpoint do not belong together.
        """
        self._once = once
        for stream in self._streams:
            check_owner(stream, self._config.tables, self._config.checkpoint)
        for table in store.TABLES:
            store.create(table, self._config.tables)
            store.show(table, self._config.tables)  # what a run that was killed did not
        for stream in self._streams:
            self.queries[stream.name] = self._started(stream)

    def running(self) -> bool:
        """Whether any query runs, or will. Raises what ended one for good.

        One that failed for a reason that may pass is started again, after a pause (``Restarts``).
        """
        some = False
        for stream in self._streams:
            # Each is looked at once: one that fails after the look is seen by the next call.
            query = self.queries[stream.name]
            if query.isActive:
                some = True
                continue
            if (failure := query.exception()) is None:
                continue
            some = True
            restarts, now = self._restarts[stream.name], time.monotonic()
            done = newest(self._config.checkpoint, stream.name)
            if not restarts.failed(str(failure), done, now):
                raise failure
            if restarts.due(now):
                self.queries[stream.name] = self._started(stream)
        return some

    @property
    def restarts(self) -> dict[str, int]:
        """How often each query was started again."""
        return {name: each.count for name, each in self._restarts.items()}

    def stop(self) -> None:
        """Stop every query; a batch that is under way is repeated by the next run."""
        for query in self.queries.values():
            query.stop()

    def _started(self, stream: Stream) -> StreamingQuery:
        tables, checkpoint = self._config.tables, self._config.checkpoint / stream.name
        rows, add_batch = stream.begin()

        def add(batch: DataFrame, number: int) -> None:
            own(stream, tables, checkpoint)
            add_batch(batch, number)

        writer = (
            rows.writeStream.queryName(stream.name)
            .option("checkpointLocation", str(checkpoint))
            .foreachBatch(add)
        )
        if self._once:
            return writer.trigger(availableNow=True).start()
        milliseconds = round(max(self._config.trigger_s, stream.least_trigger_s) * 1000)
        return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()

    def _messages(self, reader: str) -> DataFrame:
        stream = self._spark.readStream.format("motemq")
        for name, value in source_options(self._config.source, self._token, reader).items():
            stream = stream.option(name, value)
        return stream.load()

    def _bronze(self) -> _Begun:
        return self._staged(self._messages("bronze"), _BRONZE)

    def _silver(self) -> _Begun:
        rows = silver.decoded(self._messages("silver"), self._rules)
        return self._staged(silver.telemetry_and_quarantine(rows), silver.TARGETS)

    def _staged(self, rows: DataFrame, targets: Sequence[Target]) -> _Begun:
        """Return a stream of files that were written, and what makes those of a batch the tables'.

        So a batch is one job of Spark, which is planned with the query and not by itself.
        """
        folder = self._config.tables
        parts = [target.part(adding.staging(target.table, folder)) for target in targets]

        def add(batch: DataFrame, number: int) -> None:
            if not all(store.has(target.table, folder, number) for target in targets):
                for target, files in zip(targets, collected(batch, parts), strict=True):
                    adding.add(target.table, files, folder, number)

        return writing(rows, parts), add

    def _alerts(self, settings: AlertSettings) -> DataFrame:
        messages = self._messages("alerts")
        readings = silver.telemetry(silver.decoded(messages, self._rules))
        return alert_stream(readings, self._rules, settings, messages)

    def _alert(self, batch: DataFrame, number: int) -> None:
        source = self._config.source
        batch.persist()  # state is not asked twice
        try:
            if source.brokers:
                options = source_options(replace(source, brokers=source.brokers[:1]), self._token)
                place = {"checkpointLocation": str(self._config.checkpoint / "alerts")}
                kept = {name: options[name] for name in _OF_SINK if name in options}
                publish(batch, number, {**kept, **place})
            adding.append("alerts", batch, self._config.tables, number)
        finally:
            batch.unpersist()


def _names(targets: Sequence[Target]) -> tuple[str, ...]:
    return tuple(target.table for target in targets)


def check_owner(stream: Stream, tables: Path, checkpoint: Path) -> None:
    """Refuse tables that another checkpoint feeds, or a checkpoint that feeds other tables.

    Batch numbers mean nothing elsewhere: messages would be lost without a word.
    Raises ``PipelineError``.
    """
    ours, known = _checkpoint_id(checkpoint / stream.name), _owner(stream.name, tables)
    if known and known != ours:
        raise PipelineError(
            f"the tables in {tables} are fed from another checkpoint than {checkpoint}; name that "
            "one ([tables] checkpoint), or choose another folder for the tables"
        )
    if ours and not known and any((checkpoint / stream.name / "commits").glob("[0-9]*")):
        raise PipelineError(
            f"the checkpoint {checkpoint} feeds other tables than {tables}, and these would begin "
            "in the middle; name its own tables ([tables] folder), or choose another checkpoint"
        )
    if not known and any(store.pieces(table, tables)[0] for table in stream.tables):
        raise PipelineError(
            f"the tables in {tables} were written by 'motemq pipeline backfill'; choose another "
            "folder for a continuous run"
        )


def own(stream: Stream, tables: Path, checkpoint: Path) -> None:
    """Note, before the first rows, which checkpoint feeds the tables."""
    ours = _checkpoint_id(checkpoint)
    if _owner(stream.name, tables) != ours:
        (tables / store.OWNERS).mkdir(exist_ok=True)
        fresh = tables / store.OWNERS / f".{stream.name}.new"
        fresh.write_text(ours + "\n")
        os.replace(fresh, tables / store.OWNERS / stream.name)


def refuse_fed(tables: Path) -> None:
    """Refuse tables that a continuous run feeds: it would go on in the middle of others."""
    if store.is_fed(tables):
        raise PipelineError(
            f"the tables in {tables} are those of 'motemq pipeline run'; choose another folder"
        )


def _owner(stream: str, tables: Path) -> str:
    try:
        return (tables / store.OWNERS / stream).read_text().strip()
    except FileNotFoundError:
        return ""


def _checkpoint_id(checkpoint: Path) -> str:
    try:
        found: str = json.loads((checkpoint / "metadata").read_text())["id"]
    except FileNotFoundError:
        return ""
    return found
