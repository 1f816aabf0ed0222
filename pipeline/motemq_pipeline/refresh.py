"""Tables that are made from others, made again when those changed."""

import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from motemq_pipeline import adding, job, store
from motemq_pipeline.config import RunConfig
from motemq_pipeline.registry import load_registry
from motemq_pipeline.rollups import WINDOWS, refreshed, touched_hours

_RIG_FILES = ("events.jsonl", "samples.jsonl")


class Refresh:
    """Follows silver and the rig's files: at most every ``gold_every_s``, and by no more than
    a fifth of the time, so that the streams have the machine."""

    def __init__(self, spark: SparkSession, config: RunConfig) -> None:
        self._spark = spark
        self._config = config
        self._rules = load_registry(config.registry)
        self._rig_seen: tuple[tuple[str, int], ...] = ()
        self._silver_seen: int | None = None  # a run makes everything once
        self._next = time.monotonic() + config.gold_every_s

    def follow(self, at_once: bool = False) -> None:
        """Make again what is out of date, if it is time. Raises what Spark raises."""
        if not at_once and time.monotonic() < self._next:
            return
        began = time.monotonic()
        rig = self._rig_files() if self._config.rig is not None else ()
        silver = self._silver()
        again: tuple[str, ...] = ()
        if rig != self._rig_seen:
            again += (*job.FROM_RIG, "gold_fleet")
        if silver != self._silver_seen:
            again += job.FROM_SILVER
        for table in dict.fromkeys(again):
            adding.write(table, self._made(table), self._config.tables)
        if again:
            self._rig_seen, self._silver_seen = rig, silver
            job.write_about(self._spark, self._config.tables)
        now = time.monotonic()
        self._next = now + max(self._config.gold_every_s, 4 * (now - began))

    def _made(self, table: str) -> DataFrame:
        tables, seen = self._config.tables, self._silver_seen
        if table not in WINDOWS or seen is None:
            config = self._config
            return job.builders(self._spark, tables, self._rules, config.rig)[table]()
        # Only the hours in which something happened since.
        added = store.read(self._spark, "silver_telemetry", tables, after=seen)
        previous = store.read(self._spark, table, tables)
        silver = store.read(self._spark, "silver_telemetry", tables)
        return refreshed(previous, silver, touched_hours(added), table)

    def _silver(self) -> int | None:
        """Return the number of the last batch."""
        live, _ = store.pieces("silver_telemetry", self._config.tables)
        return live[-1].high if live else None

    def _rig_files(self) -> tuple[tuple[str, int], ...]:
        folder = self._config.rig or Path()
        return tuple(
            (str(file), file.stat().st_size)
            for name in _RIG_FILES
            for file in sorted(folder.rglob(name))
        )
