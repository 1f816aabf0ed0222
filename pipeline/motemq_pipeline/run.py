"""``motemq pipeline run``: the streams, the maintenance beside them, and what is told of both."""

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from motemq_pipeline.config import RunConfig
from motemq_pipeline.delta import Backlog, Table
from motemq_pipeline.errors import PipelineError
from motemq_pipeline.failures import why
from motemq_pipeline.maintenance import Maintenance
from motemq_pipeline.source_options import token_file
from motemq_pipeline.status import BRONZE, QueryStatus, RunStatus, now, only_run, write_status
from motemq_pipeline.streams import Streams
from pyspark_motemq.stream import LOST, UNREACHABLE

_LOOK_S = 0.5
_STATUS_S = 1.0
_RATE_S = 10.0


def run(
    spark: SparkSession,
    config: RunConfig,
    once: bool,
    tell: Callable[[RunStatus], None],
    ended: Callable[[], bool],
) -> None:
    """Keep the tables up to date until ``ended()``, or with ``once`` until all is in them.

    ``tell`` is told every second how it goes. Whoever calls has had the place of the tables prove
    itself (``Storage.prove``), which needs no Spark. Raises ``PipelineError`` for what a person can
    mend, and ``PySparkException`` when a query fails.
    """
    with only_run(config.checkpoint), token_file(config) as token:
        streams = Streams(spark, config, token)
        watch = _Watch(config, tell)
        state = "ended"
        try:
            streams.start(once)
            with Maintenance(spark, config, once) as maintenance:
                while streams.running() and not ended():
                    watch.look(streams, maintenance.given_up)
                    maintenance.check()
                    time.sleep(_LOOK_S)
                if once and not ended():
                    maintenance.finish()
                streams.stop()
        except Exception as error:
            state = f"failed: {why(error)}"
            raise
        finally:
            streams.stop()
            watch.last(streams, state)


class _Watch:
    """What the queries say of themselves, every second, to the person and to ``status``."""

    def __init__(self, config: RunConfig, tell: Callable[[RunStatus], None]) -> None:
        self._checkpoint = config.checkpoint
        self._backlog = Backlog(Table(config.place, "bronze_messages"))
        self._unreachable: dict[str, str] = {}
        self._given_up: tuple[str, ...] = ()
        self._bronze: int | None = None  # messages that bronze is behind
        self._tell = tell
        self._status = RunStatus(os.getpid(), "running", now(), now(), ())
        self._seen: dict[str, QueryStatus] = {}
        self._history: dict[str, deque[tuple[float, int]]] = {}
        self._next = 0.0

    def look(self, streams: Streams, given_up: tuple[str, ...]) -> None:
        """Tell, once a second."""
        self._note(given_up)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _STATUS_S
            self._say(streams, "running")

    def _note(self, given_up: Iterable[str]) -> None:
        self._given_up = tuple(dict.fromkeys((*self._given_up, *given_up)))

    def last(self, streams: Streams, state: str) -> None:
        """Tell how it ended."""
        self._say(streams, state)

    def _say(self, streams: Streams, state: str) -> None:
        restarts, scans = streams.restarts, streams.scans
        for name, query in streams.queries.items():
            found = self._of(name, query, scans[name])
            failure = streams.failures.get(name, "")
            self._seen[name] = replace(found, restarts=restarts[name], failure=failure)
        queries_now = tuple(self._seen.values())
        self._status = replace(
            self._status,
            state=state,
            updated_at=now(),
            queries=queries_now,
            unreachable=self._unreachable,
            given_up=self._given_up,
        )
        write_status(self._status, self._checkpoint)
        self._tell(self._status)

    def _of(self, name: str, query: StreamingQuery, scans: int) -> QueryStatus:
        before = self._seen.get(name) or QueryStatus(name, -1, 0, 0.0, 0, 0.0, None, "")
        found = before
        for progress in query.recentProgress:
            if progress.batchId > found.batch and progress.numInputRows:
                rows = progress.numInputRows // scans
                found = replace(
                    found,
                    batch=progress.batchId,
                    batch_rows=rows,
                    batch_s=progress.batchDuration / 1000,
                    rows=found.rows + rows,
                    finished_at=progress.timestamp,
                )
        history = self._history.setdefault(name, deque())
        history.append((time.monotonic(), found.rows))
        while history[-1][0] - history[0][0] > _RATE_S:
            history.popleft()
        seconds = history[-1][0] - history[0][0]
        rate = (history[-1][1] - history[0][1]) / seconds if seconds else 0.0
        return replace(found, rows_per_s=round(rate, 1), behind=self._behind(name, query))

    def _behind(self, name: str, query: StreamingQuery) -> int | None:
        """Return how many messages of the journal are not in what the query writes."""
        last = query.lastProgress
        if last is None or not last.sources:
            return None
        source = last.sources[0]
        done = _offset(source.endOffset)
        if name == BRONZE:
            newest = _offset(source.latestOffset)
            self._unreachable = (newest or {}).get(UNREACHABLE, {})
            self._note(f"{name}: {what}" for what in (newest or {}).get(LOST, ()))
            if newest is None or done is None:
                return None
            numbers = {key: at for key, at in newest.items() if key.isdecimal()}  # not their ids
            self._bronze = sum(max(0, at - done.get(part, 0)) for part, at in numbers.items())
            return self._bronze
        try:
            return (self._bronze or 0) + self._backlog.rows(done)
        except PipelineError:  # an object store that does not answer now
            return None


def _offset(text: str | None) -> dict[str, Any] | None:
    found = json.loads(text) if text and text != "null" and text != "None" else None
    return found if isinstance(found, dict) else None
