"""Gold: tables that are made from silver and from the rig's files, kept up to date.

Every table notes in its own log up to which version of silver, or of ``gold_streams``, it was made,
so a refresh that was killed goes on where it was. What is past costs nothing: roll-ups get what is
new by the rows that they have, and ``gold_streams`` is made again for the streams of which
something came. Where that is not known any more, because the log of silver was cleared, they are
made from all of silver; so are roll-ups of another version of MoteMQ.

That goes also for days whose readings are no longer kept (``keep``). Where all is made again, the
rows of such days and streams stay, unless there are more readings for one now.
"""

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import gold, rig, rollups, windows
from motemq_pipeline.about import write_about
from motemq_pipeline.delta import Conflict, Table
from motemq_pipeline.parquet_files import File, Target, collected, sharing, writing
from motemq_pipeline.readings import WINDOW
from motemq_pipeline.rules import Registry
from motemq_pipeline.sequence_numbers import stream_states
from motemq_pipeline.storage import HISTORY_S, Storage

# In the order in which they need each other.
FROM_RIG: Final = (
    "rig_events",
    "rig_samples",
    "gold_checks",
    "gold_rtt",
    "gold_latency",
    "gold_flakes",
    "gold_regressions",
)
FROM_SILVER: Final = (
    "gold_sensor_rollup",
    "gold_rollup_minute",
    "gold_rollup_hour",
    "gold_numbers",
    "gold_streams",
    "gold_board_health",
    "gold_fleet",
)
SILVER: Final = "silver_telemetry"
_STREAMS: Final = "gold_streams"
_MINUTES: Final = "gold_rollup_minute"
_HOURS: Final = "gold_rollup_hour"
_NUMBERS: Final = "gold_numbers"
ROLLUPS: Final = FROM_SILVER[:4]  # in the order in which they get what is new
_FROM_STREAMS: Final = FROM_SILVER[5:]
_MOST_BEHIND: Final = 50  # versions without rows, after which a table notes that it has seen them
# Statistics of times are in milliseconds, and of files that delta-rs compacted they are cut off.
_CUT_OFF_US: Final = 999
# Windows that began so long before the newest reading hardly get any more; who changes the others
# is not to write those again.
_SETTLES_US: Final = 300 * 10**6
# Of more new readings it is not told one by one which windows they are of: the driver holds that.
_MOST_TOUCHED: Final = 2_000_000
_AS_LARGE_AS: Final = 10  # readings is a row with its sketch
FILE_BYTES: Final = 16 * 1024 * 1024  # of a roll-up's file, in memory
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Progress = Callable[[str, int, float], None]  # a table that was made, its rows, seconds


@dataclass(frozen=True, slots=True)
class _News:
    """What a table has not seen of its source, silver or ``gold_streams``."""

    version: int  # of the source
    app: str  # under which the table notes that version
    seen: int | None  # the version it has noted
    files: list[File] | None  # with new rows; None: nobody knows


class Refresh:
    """Keeps gold up to date in ``place``. ``rig``: a folder of a rig's results, or None.

    ``keep_s``: of tables whose old days are deleted; None: what was deleted is to be forgotten.
    """

    def __init__(
        self,
        spark: SparkSession,
        place: Storage,
        rules: Registry,
        rig: Path | None,
        history_s: float = HISTORY_S,
        keep_s: Mapping[str, float] | None = None,
    ) -> None:
        self._keep_s = keep_s
        self._spark = spark
        self._of_readings = rollups.batches_by_rows(spark)  # for all that roll-ups are made of
        self._place = place
        self._rules = rules
        self._rig = rig
        self._history_s = history_s
        self._tables: dict[str, Table] = {}
        self._rig_seen: tuple[tuple[str, int], ...] | None = None

    def everything(self, progress: Progress) -> None:
        """Make all tables from all there is."""
        for name in FROM_RIG[:2]:
            self._replaced(name, progress)
        self._rolled_up_anew(self._table(SILVER).handle().version(), progress)
        for name in (_STREAMS, *_FROM_STREAMS, *FROM_RIG[2:]):
            self._replaced(name, progress)
        write_about(self._spark, self._place)

    def follow(self) -> bool:
        """Make again what is out of date; False if nothing was, or another program was at it."""
        rig_files = self._rig_files()
        again = rig_files != self._rig_seen and (bool(rig_files) or self._has_rig())
        if again:
            for name in FROM_RIG:
                self._replaced(name)
        try:
            changed = [self._roll_up(), self._follow_streams()]
        except Conflict:
            return False  # a compaction by hand
        for name in _FROM_STREAMS:
            news = self._news(name)
            if news.seen != news.version or (again and name == "gold_fleet"):
                self._replaced(name)
                changed.append(True)
        if any(changed) or again:
            write_about(self._spark, self._place)
        self._rig_seen = rig_files
        return again or any(changed)

    def _has_rig(self) -> bool:
        """Whether the tables know of a rig, or are yet to be made."""
        tables = [self._table(name) for name in FROM_RIG]
        return not all(table.exists() and not table.files() for table in tables)

    def _follow_streams(self) -> bool:
        """Bring the streams up to date with silver; False if there was nothing new."""
        news = self._news(_STREAMS)
        if news.files is None:
            self._replaced(_STREAMS, version=news.version)
            return True
        table = self._table(_STREAMS)
        if not news.files:
            if news.version - (news.seen or 0) > _MOST_BEHIND:
                table.change([], [], news.app, news.version)
            return False
        return self._streams_again(table, news, news.files)

    def _roll_up(self) -> bool:
        """Bring the roll-ups up to date with silver; False if there was nothing new.

        Each gets what is new by a commit of its own, the numbers last: by them it is told what is
        new. So if some have got it when this is killed, the others get just that the next time.
        """
        silver = self._table(SILVER)
        app, version = _app(silver), silver.handle().version()
        seen = {name: self._seen(name, app) for name in ROLLUPS}
        since = seen[_NUMBERS]
        # -1: of a table that has noted nothing
        ahead = {-1 if at is None else at for at in seen.values() if at != since}
        at_odds = len(ahead) > 1 or any(at < (since or 0) for at in ahead)
        if since is None or at_odds or not all(self._table(name).is_ours() for name in ROLLUPS):
            self._rolled_up_anew(version)
            return True
        if ahead:
            (version,) = ahead
        new = silver.added(since, version)
        if new is None:
            self._rolled_up_anew(silver.handle().version())
            return True
        left = [name for name in ROLLUPS if seen[name] == since]
        if not new:
            if version - since > _MOST_BEHIND or ahead:
                for name in left:
                    self._table(name).change([], [], app, version, since)
            return False
        self._roll_up_new(new, left, app, since, version)
        return True

    def _roll_up_new(
        self, new: list[File], left: Sequence[str], app: str, since: int, version: int
    ) -> None:
        """Make the rows of ``new`` files, those since a version, part of what is ``left``."""
        hours = self._touched_hours(new)
        many, ranges = sum(file.rows for file in new), len(hours) > 1
        numbers = self._table(_NUMBERS)
        known = overlapping(numbers.files(), "hour", rollups.all_between(hours), rollups.HOUR)
        counted = rollups.counted(
            self._table(SILVER).read(self._of_readings, new),
            numbers.read(self._of_readings, known).where(rollups.within(F.col("hour"), hours))
            if known
            else None,
            many,
            ranges,
        ).persist()
        try:
            touched = rollups.touched(counted, simulated=many <= _MOST_TOUCHED)
            replaced = {name: self._replaced_by(name, touched) for name in left}
            rows_before = sum(file.rows for files in replaced.values() for file in files)
            many += _AS_LARGE_AS * rows_before
            rows = self._with_before(counted, replaced)
            made = self._made_of(rollups.together(rows, many, ranges), left, is_counted=True)
        finally:
            counted.unpersist()
        for name in left:
            self._table(name).change(made[name], replaced[name], app, version, since)

    def _replaced_by(self, name: str, touched: pa.Table) -> list[File]:
        """Return the files of a roll-up that have rows of windows which get readings."""
        if name == _NUMBERS:
            return []
        hours = _different(touched, "hour")
        if name == _HOURS:
            return overlapping(self._table(name).files(), "window_start", hours, rollups.HOUR)
        if name == _MINUTES:
            minutes = _different(touched, "minute")
            return overlapping(self._table(name).files(), "window_start", minutes, rollups.MINUTE)
        table = self._table(name)
        files = overlapping(table.files(), "hour", hours, rollups.HOUR)
        if WINDOW not in touched.column_names:
            return files
        return list(windows.files_with(table.storage, files, touched))

    def _with_before(
        self, readings: DataFrame, replaced: Mapping[str, Sequence[File]]
    ) -> DataFrame:
        """Return readings, and the rows of roll-ups that they come to."""
        for name, files in replaced.items():
            if files:
                there = self._table(name).read(self._of_readings, files)
                readings = readings.unionByName(rollups.before(there, name), True)
        return readings

    def _made_of(
        self,
        rows: DataFrame,
        names: Sequence[str],
        is_counted: bool,
        settled_us: int | None = None,
    ) -> dict[str, list[File]]:
        """Write roll-ups, what is settled apart from what is not; return the files."""
        targets = [Target(name, file_bytes=FILE_BYTES) for name in names for _ in range(2)]
        made = rollups.making(names, is_counted, settled_us)
        files = collected(sharing(rows, self._place, targets, made), self._place, targets)
        return {name: files[2 * at] + files[2 * at + 1] for at, name in enumerate(names)}

    def _rolled_up_anew(self, version: int, progress: Progress | None = None) -> None:
        """Make the roll-ups of all of silver, as it was at a version.

        Of days whose readings are no longer kept, the rows that were there stay.
        """
        began = time.monotonic()
        silver = self._table(SILVER)
        files = silver.files(at=version)
        oldest = self._oldest_day()
        past: dict[str, list[File]] = {}
        if oldest is not None:
            past = {name: self._past(name, oldest) for name in ROLLUPS}
        numbers = past.pop(_NUMBERS, [])
        many = sum(file.rows for files in (files, *past.values()) for file in files)
        readings = rollups.readings(silver.read(self._of_readings, files))
        rows = self._with_before(readings, past)
        rows = rollups.together(rows, many, ranges=not _of_an_hour(files))
        newest = max((file.high.get("event_time", 0) for file in files), default=0)
        made = self._made_of(rows, ROLLUPS, is_counted=False, settled_us=newest - _SETTLES_US)
        if numbers:
            kept = self._table(_NUMBERS).read(self._spark, numbers)
            made[_NUMBERS] += self._written(_NUMBERS, self._writing(_NUMBERS, kept))
        for name in ROLLUPS:
            self._table(name).replace(made[name], _app(silver), version)
            if progress is not None:
                seconds = time.monotonic() - began if name == _NUMBERS else 0.0
                progress(name, sum(file.rows for file in made[name]), seconds)

    def _oldest_day(self) -> date | None:
        """Return the oldest day of which silver has all its readings; None: of all of them.

        Days that were deleted are gone, also if they would be kept by now.
        """
        if self._keep_s is None:
            return None
        gone, keep_s = self._table(SILVER).expired(), self._keep_s.get(SILVER)
        by_now = None if keep_s is None else oldest_day(keep_s, datetime.now(UTC))
        return max((day for day in (gone, by_now) if day is not None), default=None)

    def _past(self, name: str, oldest: date) -> list[File]:
        """Return the files of a roll-up, if it is there, that have days before ``oldest``."""
        table = self._table(name)
        files = table.files() if table.exists() else []
        return [file for file in files if file.day is not None and file.day < oldest]

    def _touched_hours(self, new: list[File]) -> list[datetime]:
        """Return the hours in which readings happened; a file of one hour is not looked at."""
        found: set[datetime] = set()
        unclear = []
        for file in new:
            low, high = (_hour(bounds.get("event_time")) for bounds in (file.low, file.high))
            if low is not None and low == high:
                found.add(low)
            else:
                unclear.append(file)
        if unclear:
            found.update(rollups.touched_hours(self._table(SILVER).read(self._spark, unclear)))
        return sorted(found)

    def _streams_again(self, table: Table, news: _News, new: list[File]) -> bool:
        low = min((file.low.get("connection", 0) for file in new), default=0)
        high = max((file.high.get("connection", 2**63) for file in new), default=0)
        replaced = [
            file
            for file in table.files()
            if file.low.get("connection", low) <= high and file.high.get("connection", high) >= low
        ]
        previous = table.read(self._spark, replaced)
        silver = self._table(SILVER).read(self._spark, new)
        rows = stream_states(silver, previous).persist()
        try:
            key = ["board", "connection"]
            kept = previous.join(F.broadcast(rows.select(*key)), key, "left_anti")
            written = self._writing(table.name, rows.unionByName(kept))
            files = self._written(table.name, written)
        finally:
            rows.unpersist()
        return table.change(files, replaced, news.app, news.version)

    def _replaced(
        self, name: str, progress: Progress | None = None, version: int | None = None
    ) -> None:
        """Make a table from all there is."""
        began = time.monotonic()
        table = self._table(name)
        app = ""
        if name == _STREAMS or name in _FROM_STREAMS:
            news = self._news(name)
            app, version = news.app, version if version is not None else news.version
        # Without a rig there is nothing to ask Spark for, which takes it seconds.
        nothing = name in FROM_RIG and not self._rig_files()
        files = (
            []
            if nothing
            else self._written(name, self._writing(name, self._made(name, version or 0)))
        )
        table.replace(files, app, version or 0)
        if progress is not None:
            progress(name, sum(file.rows for file in files), time.monotonic() - began)

    def _made(self, name: str, version: int) -> DataFrame:
        if name == _STREAMS:
            silver = self._table(SILVER)
            states = stream_states(silver.read(self._spark, silver.files(at=version)))
            return states if self._oldest_day() is None else self._with_past(states)
        if name in ("rig_events", "rig_samples"):
            return rig.good(rig.read_lines(self._spark, self._rig, name), name)
        return self._from_tables(name)

    def _with_past(self, states: DataFrame) -> DataFrame:
        """Return states of streams, and those there were, where fewer messages are left now."""
        table = self._table(_STREAMS)
        if not table.is_ours():
            return states
        row, is_new = F.struct(*states.columns), "is_new"
        both = states.withColumn(is_new, F.lit(True)).unionByName(
            table.read(self._spark).withColumn(is_new, F.lit(False))
        )
        fullest = F.max_by(row, F.struct("messages", is_new)).alias("row")
        return both.groupBy("board", "connection").agg(fullest).select("row.*")

    def _from_tables(self, name: str) -> DataFrame:
        def rows(of: str) -> DataFrame:
            return self._table(of).read(self._spark)

        makers: dict[str, Callable[[], DataFrame]] = {
            "gold_board_health": lambda: gold.board_health(rows(_STREAMS)),
            "gold_fleet": lambda: gold.fleet(
                rows("gold_board_health"), rows(_STREAMS), rows("rig_events"), self._rules
            ),
            "gold_checks": lambda: rig.checks(rows("rig_events")),
            "gold_rtt": lambda: rig.rtt(rows("rig_samples")),
            "gold_latency": lambda: rig.latency(rows("rig_samples")),
            "gold_flakes": lambda: rig.flakes(rows("gold_checks")),
            "gold_regressions": lambda: rig.regressions(rows("gold_rtt")),
        }
        return makers[name]()

    def _news(self, name: str) -> _News:
        source = self._table(_STREAMS if name in _FROM_STREAMS else SILVER)
        app = _app(source)
        version = source.handle().version()
        seen = self._seen(name, app)
        files = None if seen is None else source.added(seen, version)
        return _News(version, app, seen, files)

    def _seen(self, name: str, app: str) -> int | None:
        """Return the version of its source that a table has noted, None if it has none."""
        table = self._table(name)
        return table.handle().transaction_version(app) if table.exists() else None

    def _writing(self, name: str, rows: DataFrame) -> DataFrame:
        return writing(rows, self._place, [Target(name)])

    def _written(self, name: str, written: DataFrame) -> list[File]:
        (files,) = collected(written, self._place, [Target(name)])
        return files

    def _table(self, name: str) -> Table:
        if name not in self._tables:
            self._tables[name] = Table(self._place, name, self._history_s)
        return self._tables[name]

    def _rig_files(self) -> tuple[tuple[str, int], ...]:
        return tuple(
            (str(file), file.stat().st_size)
            for name in FROM_RIG[:2]
            for file in rig.files(self._rig, name)
        )


def oldest_day(keep_s: float, now: datetime) -> date:
    """Return the oldest day of which a table has its rows that keeps them for so long."""
    return (now - timedelta(seconds=keep_s)).date()


def seen_by_gold(place: Storage, silver: Table) -> list[int]:
    """Return the versions of silver up to which the tables that are made of it have seen it."""
    app = _app(silver)
    tables = [Table(place, name) for name in (*ROLLUPS, _STREAMS)]
    noted = [table.handle().transaction_version(app) for table in tables if table.exists()]
    return [version for version in noted if version is not None]


def _app(source: Table) -> str:
    """Return under which name tables note up to which version of ``source`` they have seen it."""
    return f"refresh {source.handle().metadata().id}"


def _hour(us: int | None) -> datetime | None:
    if us is None:
        return None
    at = _EPOCH + timedelta(microseconds=us)
    return at.replace(minute=0, second=0, microsecond=0)


def _of_an_hour(files: Sequence[File]) -> bool:
    """Whether all rows of files are of one hour, by their bounds."""
    bounds = [_hour(side.get("event_time")) for file in files for side in (file.low, file.high)]
    return None not in bounds and len(set(bounds)) < 2


def _different(touched: pa.Table, name: str) -> list[datetime]:
    found = sorted(set(touched.column(name).to_pylist()))
    return [_EPOCH + timedelta(microseconds=us) for us in found]


def overlapping(
    files: Sequence[File], column: str, spans: Sequence[datetime], length: timedelta
) -> list[File]:
    """Return the files that may have rows of ``spans``, by their bounds.

    These are as long as ``length``, and in order.
    """
    if not spans:
        return []
    starts = [(span - _EPOCH) // timedelta(microseconds=1) for span in spans]
    length_us = length // timedelta(microseconds=1)
    found = []
    for file in files:
        low, high = file.low.get(column), file.high.get(column)
        if low is not None and high is not None:
            # The first that ends after the file's first row must begin before its last.
            at = bisect.bisect_right(starts, low - length_us)
            if at == len(starts) or starts[at] > high + _CUT_OFF_US:
                continue
        found.append(file)
    return found
