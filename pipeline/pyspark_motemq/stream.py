"""What Spark calls for ``spark.readStream.format("motemq")``: offsets are message numbers."""

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

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

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.journal import PARTITIONS, PartitionState
from pyspark_motemq.offsets import Offset, Position
from pyspark_motemq.options import Options
from pyspark_motemq.tasks import Range, read_task, tasks_of

_log = logging.getLogger(__name__)
# Of the latest offset in Spark's report:
UNREACHABLE: Final = "unreachable"  # by broker: why
LOST: Final = "lost"  # what was passed over, in sentences
_MOST_LOST: Final = 20  # sentences, the latest
# Where a query begins that has yet to find that out. Spark notes where a batch ends, not where the
# first one begins, and asks for that again when it repeats it: "latest" would be later by then.
_BEGINNING: Final[Offset] = {"starting": "now"}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is added to the journal, each message once."""

    def __init__(self, options: Options) -> None:
        self._options = options
        if options.ending_offsets:
            raise JournalError(
                "a stream has no endingOffsets and no endingTimestamp; one that ends when it has "
                "what is there is started with trigger(availableNow=True)"
            )
        self._journal = options.journal()
        self._target: dict[int, PartitionState] | None = None  # of AvailableNow
        self._waiting_since: float | None = None  # fewer messages than a batch must have
        self._unreachable: set[int] = set()  # brokers that did not answer last time
        self._passed_over: list[str] = []  # what was lost, without failOnDataLoss
        if options.group and not options.brokers:
            self._journal.acknowledge(options.group, {})

    def initialOffset(self) -> Offset:
        """Return where a new query begins (``startingOffsets``; latest unless said otherwise).

        What moves is found out by the first batch, which has no rows and ends there. One broker
        must answer; another one begins, when it comes, where it was told to, or with its oldest
        message.
        """
        offsets = self._options.starting("latest")
        if offsets.moves:
            return dict(_BEGINNING)
        found = self._starting(self._reachable_or_all(), time.time_ns())
        later = {
            number: at
            for number, at in offsets.numbers.items()
            if number // PARTITIONS in self._unreachable
        }
        return self._position({**later, **found})

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """Return up to where the next batch goes, by what one batch may have.

        A broker that was away when a query began whose beginning moves enters with a batch that has
        none of its messages, and ends where it would have begun then. So the offsets alone tell
        what was read.
        """
        if start == _BEGINNING:
            now_ns = time.time_ns()
            found = self._starting(self._target or self._reachable_or_all(), now_ns)
            return self._position(found, Position({}, {}, now_ns))
        partitions = self._target or self._reachable()
        position = self._checked(start)
        entered: dict[int, int] = {}
        if position.begun_ns is not None and (entering := position.entering(partitions)):
            new = {number: partitions[number] for number in entering}
            partitions = {at: state for at, state in partitions.items() if at not in entering}
            entered = self._starting(new, position.begun_ns, afterwards=True)
        begin = self._begin(position, partitions)
        if isinstance(limit, ReadAllAvailable):
            end = {number: state.next for number, state in partitions.items()}
        else:
            limits = self._options.limits
            if self._target is not None or self._waited_long(begin, partitions):
                limits = limits.without_minimum()
            end = limits.end(begin, partitions)
        return self._position({**position.numbers, **end, **entered}, position)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits; ``latestOffset`` applies all of them."""
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
        self._target = self._journal.partitions()

    def reportLatestOffset(self) -> Offset | None:
        """Return where the journal is now, for Spark's report of how far behind a query is.

        ``unreachable`` says why the brokers do not answer of which there are no numbers; ``lost``,
        which messages this reader has passed over because they are no longer there.
        """
        partitions = self._reachable()
        found = self._position({number: state.next for number, state in partitions.items()})
        if unreachable := self._journal.unreachable():
            names = self._options.names()
            found[UNREACHABLE] = {names[number]: why for number, why in unreachable.items()}
        if self._passed_over:
            found[LOST] = list(self._passed_over)
        return found

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return the tasks of a batch; raises ``JournalError`` if some of it is no longer there."""
        if start == _BEGINNING:
            return []
        position, following = Position.read(start), Position.read(end)
        entering = position.entering(following.numbers)
        numbers = [each for each in following.numbers.items() if each[0] not in entering]
        partitions = self._those_of(
            {at // PARTITIONS for at, until in numbers if position.numbers.get(at, 0) < until}
        )
        found: list[Range] = []
        self._check(position)
        self._check(following)
        begin = {**position.numbers, **self._begin(position, partitions)}
        for number, until in numbers:
            first = begin.get(number, 0)
            if number not in partitions or until > partitions[number].next:
                if first < until:
                    self._lost(number, first, until)
                continue
            if first < until:
                found.append((number, first, until))
        return tasks_of(self._journal, found, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one task; raises ``JournalError``."""
        return read_task(partition)

    def commit(self, end: Offset) -> None:
        """Tell the broker what the group has read: this batch is in the tables."""
        if self._options.group:
            self._journal.acknowledge(self._options.group, dict(Position.read(end).numbers))

    def stop(self) -> None:
        """Nothing is open between calls."""

    def _starting(
        self, partitions: dict[int, PartitionState], begun_ns: int, afterwards: bool = False
    ) -> dict[int, int]:
        """Return where a query that began at ``begun_ns`` begins.

        ``afterwards``: that has passed. Raises ``JournalError`` if there is no such message yet.
        """
        offsets = self._options.starting("latest")
        found = offsets.resolve(self._journal, partitions, begun_ns, afterwards)
        for number, state in partitions.items():
            if found[number] > state.next:
                words = self._options.beyond(number, found[number], state.next)
                if self._options.fail_on_data_loss:
                    raise JournalError(words)
                _log.warning("motemq: %s", words)
                found[number] = state.next
        return found

    def _position(self, numbers: dict[int, int], before: Position | None = None) -> Offset:
        """Return a position; of who does not answer, the journal is that of ``before``."""
        if before is None:
            return Position(numbers, self._journal.identities()).written()
        journals = {**before.journals, **self._journal.identities()}
        found = Position(numbers, journals, before.begun_ns)
        if found.seen >= self._options.names().keys():
            found = replace(found, begun_ns=None)
        return found.written()

    def _checked(self, offset: Offset) -> Position:
        """Return a position; raises ``JournalError`` if it is of another journal."""
        position = Position.read(offset)
        self._check(position)
        return position

    def _check(self, position: Position) -> None:
        position.check(self._journal.identities(), self._options.names())

    def _reachable(self) -> dict[int, PartitionState]:
        """Return the partitions of the brokers that answer; says so when one stops or begins to."""
        found = self._journal.reachable()
        unreachable = self._journal.unreachable()
        for number in unreachable.keys() - self._unreachable:
            _log.warning("motemq: %s; the others are read on", unreachable[number])
        for number in self._unreachable - unreachable.keys():
            _log.warning("motemq: %s answers again", self._options.names()[number])
        self._unreachable = set(unreachable)
        return found

    def _reachable_or_all(self) -> dict[int, PartitionState]:
        """Return the partitions of the brokers that answer; if none does, wait for all."""
        found = self._reachable()
        if self._unreachable and len(self._unreachable) == len(self._options.brokers):
            return self._journal.partitions()
        return found

    def _those_of(self, needed: set[int]) -> dict[int, PartitionState]:
        """Return partitions, those of ``needed`` journals among them; raises ``JournalError``."""
        found = self._reachable()
        if missing := needed & self._unreachable:
            found = {**found, **self._journal.partitions(missing)}
        return found

    def _waited_long(self, begin: dict[int, int], partitions: dict[int, PartitionState]) -> bool:
        """Whether messages wait for the minimum of a batch for ``maxTriggerDelay`` already."""
        limits, now = self._options.limits, time.monotonic()
        waiting = sum(state.next - begin[number] for number, state in partitions.items())
        if not 0 < waiting < limits.min_rows:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < limits.max_delay_s:
            return False
        self._waiting_since = None
        return True

    def _begin(self, position: Position, partitions: dict[int, PartitionState]) -> dict[int, int]:
        """Return where each partition goes on; a new one begins with its first message.

        Of a journal that this query has not seen before it is the oldest that there is.
        """
        found = {}
        for number, state in partitions.items():
            at = position.numbers.get(number, 0)
            if at > state.next:
                if position.journals and number // PARTITIONS not in position.journals:
                    self._fail(self._options.beyond(number, at, state.next))  # never read
                else:
                    self._rewound(number, at, state.next)
                at = state.next
            elif at < state.first and (
                number in position.numbers or number // PARTITIONS in position.journals
            ):
                self._lost(number, at, state.first)
            found[number] = max(at, state.first)
        return found

    def _rewound(self, partition: int, read: int, following: int) -> None:
        self._fail(
            f"this query has read {self._options.name(partition)} up to message {read - 1}, but "
            f"its next message is {following}: the journal was rewound to an older state, or begun "
            "anew"
        )

    def _lost(self, partition: int, first: int, end: int) -> None:
        self._fail(
            f"messages {first} to {end - 1} of {self._options.name(partition)} are not in the "
            "journal: it was trimmed (journal.max_age_s, journal.max_bytes, journal.trim_read) or "
            "begun anew"
        )

    def _fail(self, text: str) -> None:
        if self._options.fail_on_data_loss:
            raise JournalError(
                text + "; read on without them by option failOnDataLoss=false (in the file of a "
                "pipeline: [source] fail_on_data_loss = false), or begin with a new checkpoint"
            )
        if text not in self._passed_over:
            _log.warning("motemq: %s", text)
            self._passed_over = [*self._passed_over, text][-_MOST_LOST:]
