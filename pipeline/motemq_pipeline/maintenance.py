"""What a run does beside its streams, in a thread: gold, compaction, and forgetting."""

import math
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import SparkSession

from motemq_pipeline.config import RunConfig
from motemq_pipeline.delta import Table
from motemq_pipeline.errors import StoreUnavailable
from motemq_pipeline.refresh import SILVER, Refresh, oldest_day, seen_by_gold
from motemq_pipeline.registry import load_registry
from motemq_pipeline.restarts import Restarts
from motemq_pipeline.schemas import DATED_BY, TABLES
from motemq_pipeline.status import begun_at, finished
from motemq_pipeline.table_source import ALL_TAKEN

_LOOK_S: Final = 0.5
_WAIT_S: Final = 0.1
_END_S: Final = 60.0
_WORTH_COMPACTING: Final = 32  # small files of a table
_SMALL_BYTES: Final = 16 * 1024 * 1024
_CLEAR_EVERY_S: Final = 300.0
_SILVER_QUERY: Final = "silver"
_ALERTS: Final = "alerts"
_GOLD: Final = "gold"
_THEN: Final = {
    _ALERTS: "they go on behind what is no longer kept",
    _GOLD: "it is made again from all of silver",
}
_ORPHANS_AFTER_S: Final = 86_400.0  # of files that no commit mentions; no batch takes so long


class Maintenance:
    """Starts with the block and ends with it, in the middle of its work if need be.

    ``once``: the run is to end, so gold is made by ``finish`` alone, and nobody waits for a store
    that does not answer.
    """

    def __init__(self, spark: SparkSession, config: RunConfig, once: bool) -> None:
        self._spark = spark
        self._config = config
        rules = load_registry(config.registry)
        self._gold = Refresh(
            spark, config.place, rules, config.rig, config.history_s, config.keep_s
        )
        self._once = once
        self._restarts = Restarts(patient=not once)
        self._rounds = 0
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self.given_up: tuple[str, ...] = ()  # what ``clear`` says
        self._thread = threading.Thread(target=self._work, name="maintenance", daemon=True)

    def __enter__(self) -> "Maintenance":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        deadline = time.monotonic() + _END_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            # Again and again: it may just be about to begin one.
            self._spark.sparkContext.cancelAllJobs()
            self._thread.join(0.2)

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Make everything that is out of date, now; raises what went wrong."""
        self._ended.set()
        self._thread.join()
        self.check()
        while True:
            try:
                self._gold.follow()
                return
            except Exception as error:
                if not self._may_pass(error):
                    raise
                while not self._restarts.due(time.monotonic()):
                    time.sleep(_WAIT_S)

    def _work(self) -> None:
        config = self._config
        began = time.monotonic()
        gold_at = math.inf if self._once else began + config.gold_every_s
        compact_at = began + config.compact_every_s
        clear_at = began + _CLEAR_EVERY_S
        gold_was_made = False
        waiting = False
        while not self._ended.wait(_LOOK_S):
            if waiting and not self._restarts.due(time.monotonic()):
                continue
            waiting = False
            try:
                now = time.monotonic()
                if now >= gold_at:
                    self._gold.follow()
                    ended = time.monotonic()
                    # By no more than a fifth of the time, so that the streams have the machine.
                    # What the first time takes says nothing: Spark loads its code meanwhile.
                    pause_s = 4 * (ended - now) if gold_was_made else 0.0
                    gold_at = ended + max(config.gold_every_s, pause_s)
                    gold_was_made = True
                if now >= compact_at:
                    compact_small(config)
                    compact_at = time.monotonic() + config.compact_every_s
                if now >= clear_at:
                    self.given_up = tuple(dict.fromkeys((*self.given_up, *clear(config))))
                    clear_at = time.monotonic() + _CLEAR_EVERY_S
                self._rounds += 1
            except Exception as error:  # the main thread tells of it
                if self._ended.is_set():  # at the end jobs are cancelled
                    return
                if not self._may_pass(error):
                    self._failure = error
                    return
                waiting = True

    def _may_pass(self, error: Exception) -> bool:
        unavailable = isinstance(error, StoreUnavailable)  # which is known by its name
        text = f"{StoreUnavailable.__name__}: {error}" if unavailable else str(error)
        return self._restarts.failed(text, self._rounds, time.monotonic())


def compact_small(config: RunConfig) -> None:
    """Put files together where many are small, so that a row is written again a few times only."""
    for name in TABLES:
        table = Table(config.place, name, config.history_s)
        small = min(_SMALL_BYTES, table.most_bytes // 4)
        if sum(file.size < small for file in table.files()) >= _WORTH_COMPACTING:
            table.compact()


def clear(config: RunConfig) -> list[str]:
    """Delete the rows that are older than their table's ``keep``, and files that nobody needs.

    Returns, in sentences, for whom something is no longer kept that he has not read.
    """
    now = datetime.now(UTC)
    given_up = []
    for name in TABLES:
        table = Table(config.place, name, config.history_s)
        keep_s = config.keep_s.get(name)
        if keep_s is not None and name in DATED_BY:
            table.expire(oldest_day(keep_s, now))
        # What stays this time must not become too old before it is looked at again.
        due = now - timedelta(seconds=table.log_s - _CLEAR_EVERY_S)
        late = {reader: at for reader, at in _unread(config, table).items() if at <= due}
        # Silver waits for nobody, and is nothing without all of bronze.
        oldest = now - timedelta(seconds=config.keep_unread_s)
        if any(reader == _SILVER_QUERY or at > oldest for reader, at in late.items()):
            continue
        given_up += [
            f"{reader}: unread in {name} since {at:%Y-%m-%dT%H:%M:%SZ}, longer than [tables] "
            f"keep_unread; {_THEN[reader]}"
            for reader, at in late.items()
        ]
        table.vacuum(_ORPHANS_AFTER_S)
    return given_up


def _unread(config: RunConfig, table: Table) -> dict[str, datetime]:
    """Return who has yet to read something of a table, and since when it is there.

    These are streams of bronze, alerts for one while their broker is away, and gold, where it is
    made rarely. Without the log of what came meanwhile the former could not go on, and the latter
    would begin anew.
    """
    found: dict[str, datetime | None] = {}
    if table.name == "bronze_messages":
        for query in (_SILVER_QUERY, *(() if config.alerts is None else (_ALERTS,))):
            ends = finished(config.checkpoint, query)
            if ends and all(end["taken"] == ALL_TAKEN for end in ends):
                found[query] = table.unread_since(min(end["version"] for end in ends))
            else:  # it reads what there was when it began
                found[query] = begun_at(config.checkpoint, query)
    elif table.name == SILVER:
        seen = seen_by_gold(config.place, table)
        found[_GOLD] = table.unread_since(min(seen, default=table.handle().version()))
    return {reader: at for reader, at in found.items() if at is not None}
