"""Gold: tables that are made from silver and from the rig's files, kept up to date.

Every table notes in its own log up to which version of silver, or of ``gold_streams``, it was made,
so a refresh that was killed goes on where it was. What is past costs nothing: roll-ups are made
again for the hours in which something new happened, each of all its readings, and ``gold_streams``
for the streams of which something came. Where that is not known any more, because the log of silver
was cleared, they are made from all of silver.

Where the readings of a day are no longer kept (``keep``), those that come late add rows to the
roll-ups of that day, and take none away.
"""

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from motemq_pipeline import gold, rig, rollups, windows
from motemq_pipeline.about import write_about
from motemq_pipeline.delta import Conflict, Table
from motemq_pipeline.parquet_files import File, Making, Target, collected, writing
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import DATED_BY, shaped
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
    "gold_streams",
    "gold_board_health",
    "gold_fleet",
)
SILVER: Final = "silver_telemetry"
_STREAMS: Final = "gold_streams"
_MINUTES: Final = "gold_rollup_minute"
_HOURS: Final = "gold_rollup_hour"
_FROM_STREAMS: Final = FROM_SILVER[4:]
_SIMULATED: Final = "gold_sensor_rollup"
_ROLLUPS: Final = (_SIMULATED, _MINUTES, _HOURS)
_MOST_BEHIND: Final = 50  # versions without rows, after which a table notes that it has seen them
# Statistics of times are in milliseconds, and of files that delta-rs compacted they are cut off.
_CUT_OFF_US: Final = 999
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

    ``keep_s``: of tables whose old days are deleted.
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
        self._keep_s = dict(keep_s or {})
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
        for name in (*FROM_SILVER, *FROM_RIG[2:]):
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
            changed = [self._follow(name) for name in FROM_SILVER[:4]]
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

    def _follow(self, name: str) -> bool:
        """Bring a table up to date with silver; False if there was nothing new."""
        news = self._news(name)
        table = self._table(name)
        if news.files is None:
            self._replaced(name, version=news.version)
            return True
        if not news.files:
            if news.version - (news.seen or 0) > _MOST_BEHIND:
                table.change([], [], news.app, news.version)
            return False
        if name == _STREAMS:
            return self._streams_again(table, news, news.files)
        return self._hours_again(table, news, news.files)

    def _hours_again(self, table: Table, news: _News, new: list[File]) -> bool:
        column = DATED_BY[table.name]
        hours = self._touched_hours(new)
        replaced = overlapping(table.files(), column, rollups.all_between(hours))
        written = self._writing_rollup(table.name, hours, news.version, replaced)
        if replaced:
            before = table.read(self._of_readings, replaced)
            kept = before.where(~rollups.within(F.col(column), hours))
            written = written.union(self._writing(table.name, kept))
        files = self._written(table.name, written)
        return table.change(files, replaced, news.app, news.version)

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

    def _writing_rollup(
        self,
        name: str,
        hours: Sequence[datetime] | None,
        version: int,
        before: Sequence[File],
    ) -> DataFrame:
        """Return what writes a roll-up of some hours, or of all.

        ``before``: the files of the table that have these hours, for the days whose readings are no
        longer kept.
        """
        source = self._table(_source_of(name))
        files = source.files(at=version if source.name == SILVER else None)
        if hours is not None:
            files = overlapping(files, DATED_BY[source.name], rollups.all_between(hours))
        keep_s = self._keep_s.get(source.name)
        oldest = date.min if keep_s is None else oldest_day(keep_s, datetime.now(UTC))
        past, _ = _by_day(before, oldest)
        if not past:
            return self._writing(name, *self._rollup_of(name, files, hours))
        late, files = _by_day(files, oldest)
        rows, made = self._rollup_of(name, late, hours)
        old = self._read_hours(name, past, hours)
        if made is not None:
            rows = rows.mapInArrow(made, shaped(old, name).schema)
        written = self._writing(name, rollups.fullest(rows, old, name))
        if files:
            written = written.union(self._writing(name, *self._rollup_of(name, files, hours)))
        return written

    def _rollup_of(
        self, name: str, files: Sequence[File], hours: Sequence[datetime] | None
    ) -> tuple[DataFrame, Making | None]:
        """Return what a roll-up is made of, and how, if it is not the roll-up yet."""
        rows = self._read_hours(_source_of(name), files, hours)
        if name == _HOURS:
            return rollups.by_hour(rows), None
        many = sum(file.rows for file in files)
        ranges = hours is None or len(hours) > 1
        if name == _MINUTES:
            return rollups.by_minute(rows, many, ranges), None
        return rollups.together(rows, many, ranges), windows.by_simulated_time

    def _read_hours(
        self, name: str, files: Sequence[File], hours: Sequence[datetime] | None
    ) -> DataFrame:
        """Return rows of some hours, or of all, of files of a table."""
        rows = self._table(name).read(self._of_readings, files)
        return rows if hours is None else rows.where(rollups.within(F.col(DATED_BY[name]), hours))

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
        if name in FROM_SILVER:
            news = self._news(name)
            app, version = news.app, version if version is not None else news.version
        # Without a rig there is nothing to ask Spark for, which takes it seconds.
        nothing = name in FROM_RIG and not self._rig_files()
        files = [] if nothing else self._written(name, self._writing_all(name, version or 0))
        table.replace(files, app, version or 0)
        if progress is not None:
            progress(name, sum(file.rows for file in files), time.monotonic() - began)

    def _writing_all(self, name: str, version: int) -> DataFrame:
        """Return what writes a table of all there is."""
        if name in _ROLLUPS:
            table = self._table(name)
            before = table.files() if table.is_ours() else []
            return self._writing_rollup(name, None, version, before)
        return self._writing(name, self._made(name, version))

    def _made(self, name: str, version: int) -> DataFrame:
        if name == _STREAMS:
            silver = self._table(SILVER)
            return stream_states(silver.read(self._spark, silver.files(at=version)))
        if name in ("rig_events", "rig_samples"):
            return rig.good(rig.read_lines(self._spark, self._rig, name), name)
        return self._from_tables(name)

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
        if name == _HOURS:
            # Made of minutes, it has seen no more than these: silver may have got rows since.
            of_minutes = self._seen(_MINUTES, app)
            version = version if of_minutes is None else of_minutes
        seen = self._seen(name, app)
        files = None if seen is None else source.added(seen, version)
        return _News(version, app, seen, files)

    def _seen(self, name: str, app: str) -> int | None:
        """Return the version of its source that a table has noted, None if it has none."""
        table = self._table(name)
        return table.handle().transaction_version(app) if table.exists() else None

    def _writing(self, name: str, rows: DataFrame, made: Making | None = None) -> DataFrame:
        return writing(rows, self._place, [Target(name)], made)

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
    tables = [Table(place, name) for name in FROM_SILVER[:4]]
    noted = [table.handle().transaction_version(app) for table in tables if table.exists()]
    return [version for version in noted if version is not None]


def _app(source: Table) -> str:
    """Return under which name tables note up to which version of ``source`` they have seen it."""
    return f"refresh {source.handle().metadata().id}"


def _source_of(name: str) -> str:
    """Return of which table a roll-up is made."""
    return _MINUTES if name == _HOURS else SILVER


def _by_day(files: Sequence[File], oldest: date) -> tuple[list[File], list[File]]:
    """Return the files of days before ``oldest``, and the others; no file has rows of both."""
    past = [file for file in files if file.day is not None and file.day < oldest]
    return past, [file for file in files if file.day is None or file.day >= oldest]


def _hour(us: int | None) -> datetime | None:
    if us is None:
        return None
    at = _EPOCH + timedelta(microseconds=us)
    return at.replace(minute=0, second=0, microsecond=0)


def overlapping(files: Sequence[File], column: str, hours: Sequence[datetime]) -> list[File]:
    """Return the files that may have rows of ``hours``, which are in order, by their bounds."""
    if not hours:
        return []
    starts = [(hour - _EPOCH) // timedelta(microseconds=1) for hour in hours]
    length = rollups.HOUR // timedelta(microseconds=1)
    found = []
    for file in files:
        low, high = file.low.get(column), file.high.get(column)
        if low is not None and high is not None:
            # The first hour that ends after the file's first row must begin before its last.
            at = bisect.bisect_right(starts, low - length)
            if at == len(starts) or starts[at] > high + _CUT_OFF_US:
                continue
        found.append(file)
    return found
