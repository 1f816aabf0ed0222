"""The continuous run: the journal to bronze, and bronze to silver, quarantine and alerts.

The journal is read once. What bronze gets is read from there by those that need it, as a stream of
its table (``table_source``). Every query keeps its place in a checkpoint and commits each of its
batches under the batch's number (``delta``), so whatever is killed, at any moment, loses and
doubles nothing: Spark repeats a batch whose end it did not note, and the table knows it already.
"""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from motemq_pipeline import silver, table_source
from motemq_pipeline.alerts.settings import AlertSettings
from motemq_pipeline.alerts.stream import alert_stream, publish
from motemq_pipeline.config import RunConfig
from motemq_pipeline.delta import Backlog, Table
from motemq_pipeline.errors import PipelineError, StoreUnavailable
from motemq_pipeline.failures import why
from motemq_pipeline.parquet_files import Target, collected, writing
from motemq_pipeline.refresh import ROLLUPS
from motemq_pipeline.registry import load_registry
from motemq_pipeline.restarts import Restarts
from motemq_pipeline.schemas import TABLES, shaped
from motemq_pipeline.source_options import source_options
from motemq_pipeline.status import BRONZE, newest, newest_planned, query_id
from pyspark_motemq.offsets import Offsets
from pyspark_motemq.source import DefaultSource

_BRONZE = (Target("bronze_messages"),)
_ALERTS = (Target("alerts"),)
_Begun = tuple[DataFrame, Callable[[DataFrame, int], None]]
_OF_SINK = ("brokers", "tokenFile", "caFile")
_OTHERS_WAIT = "5s"


@dataclass(frozen=True, slots=True)
class Stream:
    """One query: the tables it feeds; its rows, and what adds a batch of them to the tables.

    ``timed``: time alone makes batches of it, so Spark never finds that it has all there is.
    ``scans``: how often it reads each of its rows, so how often Spark counts it.
    """

    name: str
    targets: tuple[Target, ...]
    begin: Callable[[], _Begun]
    least_trigger_s: float = 0.0
    timed: bool = False
    scans: int = 1


class Streams:
    """All queries of one run. ``token``: a file with the brokers' token, None without."""

    def __init__(self, spark: SparkSession, config: RunConfig, token: Path | None) -> None:
        self._spark = spark
        self._config = config
        self._token = token
        self._rules = load_registry(config.registry)
        self._streams = [
            Stream(BRONZE, _BRONZE, self._bronze),
            Stream("silver", silver.TARGETS, self._silver, 1.0),
        ]
        if config.alerts is not None:
            alerts = AlertSettings.read(config.alerts)
            self._streams.append(
                Stream(
                    "alerts",
                    _ALERTS,
                    lambda: (self._alerts(alerts), self._alert),
                    1.0,
                    # It runs at every trigger, because time raises alerts.
                    timed=True,
                    # Last wills are looked for by themselves.
                    scans=2 if alerts.presence else 1,
                )
            )
        self._once = False
        self._restarts: dict[str, Restarts] = {}
        self._tables: dict[str, Table] = {}
        self.queries: dict[str, StreamingQuery] = {}
        self.failures: dict[str, str] = {}  # why a query that was started again had failed

    def start(self, once: bool) -> None:
        """Start every query; with ``once`` they end when they have what is there now.

        Raises ``PipelineError`` if tables and checkpoint do not belong together.
        """
        self._once = once
        self._restarts = {stream.name: Restarts(patient=not once) for stream in self._streams}
        for name in TABLES:
            # Roll-ups of another version are made again of silver (``refresh``).
            if name not in ROLLUPS or not self._table(name).exists():
                self._table(name).create()
        for stream in self._streams:
            check_owner(stream, self._config)
        # With ``once``, what reads bronze begins when bronze has all.
        for stream in self._streams[: 1 if once else None]:
            self.queries[stream.name] = self._started(stream)

    def running(self) -> bool:
        """Whether any query runs, or will. Raises what ended one for good.

        One that failed for a reason that may pass is started again, after a pause (``Restarts``).
        """
        some = False
        for stream in self._streams:
            query = self.queries.get(stream.name)
            if query is None:
                if some:
                    return True  # it waits for those before it
                query = self.queries[stream.name] = self._started(stream)
            # Each is looked at once: one that fails after the look is seen by the next call.
            if query.isActive:
                if self._once and stream.timed and self._has_all(query):
                    query.stop()
                some = True
                continue
            if (failure := query.exception()) is None:
                continue
            some = True
            restarts, now = self._restarts[stream.name], time.monotonic()
            done = newest(self._config.checkpoint, stream.name)
            if not restarts.failed(str(failure), done, now):
                raise failure
            self.failures[stream.name] = why(failure)
            if restarts.due(now):
                with contextlib.suppress(StoreUnavailable):  # then it has failed as before
                    self.queries[stream.name] = self._started(stream)
        return some

    def _has_all(self, query: StreamingQuery) -> bool:
        """Whether a batch with the last of what bronze has is finished."""
        progress = query.lastProgress
        if progress is None or not progress.sources:
            return False
        backlog = Backlog(self._table("bronze_messages"))
        ends = [json.loads(source.endOffset or "null") for source in progress.sources]
        return not any(backlog.rows(end) for end in ends)

    @property
    def scans(self) -> dict[str, int]:
        """How often each query reads its rows."""
        return {stream.name: stream.scans for stream in self._streams}

    @property
    def restarts(self) -> dict[str, int]:
        """How often each query was started again."""
        return {name: each.count for name, each in self._restarts.items()}

    def stop(self) -> None:
        """Stop every query; a batch that is under way is repeated by the next run."""
        for query in self.queries.values():
            query.stop()

    def _started(self, stream: Stream) -> StreamingQuery:
        checkpoint = self._config.checkpoint / stream.name
        if stream.targets == _BRONZE:
            self._forget_planned_batch()
        rows, add_batch = stream.begin()
        owned = False

        def add(batch: DataFrame, number: int) -> None:
            nonlocal owned
            if not owned:
                query = query_id(checkpoint)
                for target in stream.targets:
                    self._table(target.table).own(query)
                owned = True
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

    def _forget_planned_batch(self) -> None:
        """Let Spark plan anew the batch that it noted and of which nothing is in the table.

        Otherwise messages of a broker that has died since would hold up those of all others. The
        query does not run, so nobody adds that batch meanwhile. The first one stays if it alone
        knows where the query begins, because that was a time; it has no messages.
        """
        checkpoint = self._config.checkpoint / BRONZE
        done, planned = newest(checkpoint.parent, BRONZE), newest_planned(checkpoint.parent, BRONZE)
        if planned is None or (done is not None and planned <= done):
            return
        if done is None and Offsets("starting", self._config.source.starting).moves:
            return
        (target,) = _BRONZE
        if not self._table(target.table).has(query_id(checkpoint), planned):
            for name in (str(planned), f".{planned}.crc"):
                (checkpoint / "offsets" / name).unlink(missing_ok=True)

    def _bronze(self) -> _Begun:
        source = self._config.source
        know_source(self._spark)
        stream = self._spark.readStream.format("motemq")
        for name, value in source_options(source, self._token, BRONZE).items():
            stream = stream.option(name, value)
        if len(source.brokers) > 1 and not self._once:
            # One that dies in the middle of a batch delays the others for so long.
            stream = stream.option("brokerTimeout", _OTHERS_WAIT)
        return self._written(BRONZE, shaped(stream.load(), "bronze_messages"), _BRONZE)

    def _silver(self) -> _Begun:
        rows = silver.decoded(self._messages(), self._rules)
        return self._written("silver", rows, silver.TARGETS)

    def _messages(self, fail_on_data_loss: bool = True) -> DataFrame:
        bronze = self._config.place.within("bronze_messages")
        max_rows = self._config.source.max_rows
        return table_source.stream(
            self._spark, bronze, "bronze_messages", max_rows, fail_on_data_loss
        )

    def _written(self, name: str, rows: DataFrame, targets: Sequence[Target]) -> _Begun:
        """Return a stream of files that were written, and what makes those of a batch the tables'.

        So a batch is one job of Spark, which is planned with the query and not by itself.
        """
        place = self._config.place
        tables = [self._table(target.table) for target in targets]

        def add(batch: DataFrame, number: int) -> None:
            query = query_id(self._config.checkpoint / name)
            if not all(table.has(query, number) for table in tables):
                for table, files in zip(tables, collected(batch, place, targets), strict=True):
                    if files:
                        table.add(files, query, number)

        return writing(rows, place, targets), add

    def _alerts(self, settings: AlertSettings) -> DataFrame:
        # What nobody could be told of for ``[tables] keep_unread`` is cleared away.
        messages = self._messages(fail_on_data_loss=False)
        readings = silver.telemetry(silver.decoded(messages, self._rules))
        return alert_stream(readings, self._rules, settings, messages)

    def _alert(self, batch: DataFrame, number: int) -> None:
        source, place = self._config.source, self._config.place
        table = self._table("alerts")
        query = query_id(self._config.checkpoint / "alerts")
        batch.persist()  # state is not asked twice
        try:
            if source.brokers:
                first = source.model_copy(update={"brokers": source.brokers[:1]})
                options = source_options(first, self._token)
                checkpoint = {"checkpointLocation": str(self._config.checkpoint / "alerts")}
                kept = {name: options[name] for name in _OF_SINK if name in options}
                publish(batch, number, {**kept, **checkpoint})
            if not table.has(query, number):
                (files,) = collected(writing(batch, place, _ALERTS), place, _ALERTS)
                if files:
                    table.add(files, query, number)
        finally:
            batch.unpersist()

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(self._config.place, name, self._config.history_s)
        return self._tables[name]


def know_source(spark: SparkSession) -> None:
    """See to it that Spark knows the format ``motemq``.

    It looks for sources in Python once, in a worker, and goes on without them where that one did
    not start within ten seconds, as on a busy machine.
    """
    try:
        spark.dataSource.register(DefaultSource)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":  # it has found it
            raise


def check_owner(stream: Stream, config: RunConfig) -> None:
    """Refuse tables that another checkpoint feeds, or a checkpoint that feeds other tables.

    Batch numbers mean nothing elsewhere: messages would be lost without a word.
    Raises ``PipelineError``.
    """
    place, checkpoint = config.place, config.checkpoint
    ours = query_id(checkpoint / stream.name)
    tables = [Table(place, target.table) for target in stream.targets]
    known = {owner for table in tables if (owner := table.owner())}
    if known - {ours}:
        raise PipelineError(
            f"the tables in {place.uri} are fed from another checkpoint than {checkpoint}; name "
            "that one ([tables] checkpoint), or choose another place for the tables"
        )
    if ours and not known and any((checkpoint / stream.name / "commits").glob("[0-9]*")):
        raise PipelineError(
            f"the checkpoint {checkpoint} feeds other tables than {place.uri}, and these would "
            "begin in the middle; name its own tables ([tables] folder), or choose another "
            "checkpoint"
        )
    if not known and any(table.count() for table in tables):
        raise PipelineError(
            f"the tables in {place.uri} were written by 'motemq pipeline backfill'; choose another "
            "place for a continuous run"
        )
