"""What Spark calls for ``spark.readStream.format("motemq")``: offsets are message numbers."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from pyspark_motemq.columns import batches
from pyspark_motemq.options import Options
from pyspark_motemq.records import JournalError, take_records
from pyspark_motemq.shelf import Share, Shelf
from pyspark_motemq.topics import matching

_log = logging.getLogger(__name__)
_Offset = dict[str, int]


@dataclass
class SharePartition(InputPartition):
    """One task's share of the journal, and which topics of it."""

    share: Share
    topics: str  # a regular expression; empty: all


def read_share(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of one task; raises ``JournalError``."""
    if not isinstance(partition, SharePartition):
        return  # Spark reads an empty journal as one partition without a value
    for data, stretch in partition.share.pieces():
        for batch in batches(data, take_records(data, stretch), stretch):
            yield matching(batch, partition.topics) if partition.topics else batch


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is added to the journal, each message once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._feed = options.feed()
        self._target: dict[int, Shelf] | None = None  # of AvailableNow
        if options.group and not options.brokers:
            self._feed.has_read(options.group, {})

    def initialOffset(self) -> _Offset:
        """Return where a new query begins (``startingOffsets``; latest unless said otherwise)."""
        shelves = self._feed.shelves()
        starting = self._options.starting("latest").resolve(self._feed, shelves, time.time_ns())
        return _written(starting)

    def latestOffset(self, start: _Offset, limit: ReadLimit) -> _Offset:
        """Return up to where the next batch goes, by what one batch may have."""
        shelves = self._target or self._feed.shelves()
        begin = self._begin(_read(start), shelves)
        if isinstance(limit, ReadAllAvailable):
            return _written({**_read(start), **{n: shelf.next for n, shelf in shelves.items()}})
        limits = self._options.limits
        if self._target is not None:
            limits = limits.without_minimum()
        return _written({**_read(start), **limits.end(begin, shelves)})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits; ``latestOffset`` heeds all of them."""
        limits = self._options.limits
        if limits.max_rows:
            return ReadMaxRows(limits.max_rows)
        if limits.max_bytes:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_rows:
            return ReadMinRows(limits.min_rows)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no further than what is there now."""
        self._target = self._feed.shelves()

    def reportLatestOffset(self) -> _Offset | None:
        """Return where the journal is now, for Spark's report of how far behind a query is."""
        return _written({number: shelf.next for number, shelf in self._feed.shelves().items()})

    def partitions(self, start: _Offset, end: _Offset) -> list[InputPartition]:
        """Return the tasks of a batch; raises ``JournalError`` if some of it is no longer there."""
        shelves = self._feed.shelves()
        found: list[InputPartition] = []
        begin = {**_read(start), **self._begin(_read(start), shelves)}
        for number, until in _read(end).items():
            first = begin.get(number, 0)
            if number not in shelves or until > shelves[number].next:
                if first < until:
                    self._lost(number, first, until)
                continue
            if first < until:
                shares = self._feed.shares(number, first, until)
                found += [SharePartition(share, self._options.topics) for share in shares]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task; raises ``JournalError``."""
        return read_share(partition)

    def commit(self, end: _Offset) -> None:
        """Tell the broker what the group has read: this batch is in the tables."""
        if self._options.group:
            self._feed.has_read(self._options.group, _read(end))

    def stop(self) -> None:
        """Nothing is open between calls."""

    def _begin(self, start: dict[int, int], shelves: dict[int, Shelf]) -> dict[int, int]:
        """Return where each partition goes on; a new one begins with its oldest message."""
        found = {}
        for number, shelf in shelves.items():
            at = start.get(number, 0)
            if at > shelf.next:
                self._lost(number, shelf.next, at)
                at = shelf.next
            elif at < shelf.first and number in start:
                self._lost(number, at, shelf.first)
            found[number] = max(at, shelf.first)
        return found

    def _lost(self, partition: int, first: int, end: int) -> None:
        text = (
            f"messages {first} to {end - 1} of partition {partition} are not in the journal: it "
            "was trimmed (journal.max_age_s, journal.max_bytes, journal.trim_read) or begun anew"
        )
        if self._options.fail_on_data_loss:
            raise JournalError(
                text + "; read on without them by option failOnDataLoss=false, or begin with a "
                "new checkpoint"
            )
        _log.warning("motemq: %s", text)


def _read(offset: _Offset) -> dict[int, int]:
    return {int(number): at for number, at in offset.items()}


def _written(offset: dict[int, int]) -> _Offset:
    return {str(number): offset[number] for number in sorted(offset)}
