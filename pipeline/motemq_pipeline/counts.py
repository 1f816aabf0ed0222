"""A board's counts: its numbers from 0 on, over connections and restarts.

A board that lost its connection goes on counting by the next one; a board that was restarted
begins anew at 0. Which of the two a stream does, its numbers tell (``Count.goes_on``). So what was
lost between two connections is seen, and nothing that came by another one is called lost.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from motemq_pipeline.sequence_numbers import Numbers, any_known
from pyspark_motemq.workers import settle

# Numbers that a board sends again because nobody said that they had come: more than the 100 that
# MicroMsg2 has under way.
FEW_RESENT: Final = 128
# More than that are taken for such only if they are no more than what came before them, which else
# were lost: of a board that begins anew the first are lost, and those are few. It is as many as our
# client holds that reconnects (``host_broker.client``), and more than fit into a board's ring.
MOST_RESENT: Final = 1000
# Numbers that may be lost before the first that came of a count. Where more are missing, the board
# is older than the tables, and nothing is known of them.
MOST_LOST_FIRST: Final = 1000
_COUNTED: Final = (
    "board string, counts long, numbers long, gaps long, duplicates long, complete boolean"
)
_COUNTED_ARROW: Final = pa.schema(
    [
        ("board", pa.string()),
        ("counts", pa.int64()),
        ("numbers", pa.int64()),
        ("gaps", pa.int64()),
        ("duplicates", pa.int64()),
        ("complete", pa.bool_()),
    ]
)
_LARGEST: Final = 2**63 - 1  # that a table holds
_OF_STREAMS: Final = ("connection", "numbered", "first", "expected", "missing", "complete")


@dataclass(slots=True)
class Count:
    """Numbers of a board from one of its starts on. ``lowest`` is the first that came."""

    lowest: int
    numbers: Numbers
    complete: bool | None = None

    @classmethod
    def beginning(cls, lowest: int) -> "Count":
        """Return a count of which the first number that came is ``lowest``."""
        first = 0 if lowest <= MOST_LOST_FIRST else lowest
        return cls(lowest, Numbers(first, first))

    def goes_on(self, stream: Numbers) -> bool:
        """Return whether a later stream is of this count; else the board has begun anew."""
        following, lowest = self.numbers.expected, stream.first or 0
        if _leaps_to(stream, following):
            return True
        again = following - lowest
        if lowest and again <= max(FEW_RESENT, min(lowest, MOST_RESENT)):
            return True
        # What was missing: not only before the first, which a board that begins anew may lose, too.
        return lowest > self.lowest and any(
            first <= lowest <= last for first, last in self.numbers.missing
        )


def _leaps_to(stream: Numbers, number: int) -> bool:
    """Return whether a stream has a few numbers, and then, after many that it has not, this one."""
    for first, last in stream.missing:
        if last + 1 == number:
            before = sum(high - low + 1 for low, high in stream.arrived() if high < first)
            return last - first + 1 > before
    return False


@dataclass(slots=True)
class Counts:
    """The counts of a board, from its streams in order of their beginning."""

    all: list[Count] = field(default_factory=list)
    arrivals: int = 0  # with a number
    unnumbered: list[bool | None] = field(default_factory=list)  # streams: whether complete

    def take(self, stream: Numbers, arrivals: int, complete: bool | None) -> None:
        """Note a stream. ``arrivals``: how many of its messages had a number."""
        if stream.first is None:
            self.unnumbered.append(complete)
            return
        if not self.all or not self.all[-1].goes_on(stream):
            self.all.append(Count.beginning(stream.first))
        count = self.all[-1]
        count.numbers.take(stream.arrived())
        count.numbers.given_up += stream.given_up
        count.complete = any_known((count.complete, complete))
        self.arrivals += arrivals

    @property
    def numbers(self) -> int:
        """How many numbers the board has given, as far as they are known."""
        return sum(each.numbers.expected - (each.numbers.first or 0) for each in self.all)

    @property
    def gaps(self) -> int:
        """How many of them never arrived."""
        return sum(each.numbers.gaps for each in self.all)

    @property
    def complete(self) -> bool | None:
        """Whether each count had its end message; None if nothing is known of any."""
        known = [each.complete for each in self.all if each.complete is not None]
        known += [each for each in self.unnumbered if each is not None]
        return all(known) if known else None


def board_counts(streams: DataFrame) -> DataFrame:
    """Return a row for each board of ``gold_streams``: how often it began to count, and what of it.

    ``counts``, ``numbers``, ``gaps`` and ``duplicates`` are null of a board that numbers nothing.
    """
    return (
        streams.repartition("board")
        .sortWithinPartitions("board", "first_at", "connection")
        .select("board", *_OF_STREAMS)
        .mapInArrow(_counted, _COUNTED)
    )


def _counted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    settle()
    streams = (row for batch in batches for row in batch.to_pylist())
    rows = [_of_board(board, of_it) for board, of_it in groupby(streams, lambda row: row["board"])]
    yield pa.RecordBatch.from_pylist(rows, schema=_COUNTED_ARROW)


def _of_board(board: str, streams: Iterable[dict[str, Any]]) -> dict[str, Any]:
    counts = Counts()
    for row in streams:
        numbers = Numbers()
        if row["first"] is not None:
            numbers = Numbers.from_text(row["first"], row["expected"], row["missing"])
        counts.take(numbers, row["numbered"], row["complete"])
    known = bool(counts.all)
    different = counts.numbers - counts.gaps
    return {
        "board": board,
        "counts": len(counts.all) if known else None,
        "numbers": min(counts.numbers, _LARGEST) if known else None,
        "gaps": min(counts.gaps, _LARGEST) if known else None,
        "duplicates": counts.arrivals - different if known else None,
        "complete": counts.complete,
    }
