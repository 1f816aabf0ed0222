"""The journal: the event loop hands over what a turn brought, a thread writes it in groups.

What is written is the journal's records, and after them what changed with them of retained messages
and durable queues, so that neither is ever newer than the journal. ``append`` gives each turn a
position; ``written`` and ``synced`` say up to which position all is in segments, which is in the
kernel, and on the disk. What somebody waits for is staged until then (``stage``), so that nobody
waits for the thread.

Policy: while the disk is full, or no file can be opened, everything waits and is tried again:
``full`` holds the publishers. A journal that cannot be written for any other reason stops the
broker. Going on without it would deliver messages that the tables never see, and nobody would
notice before the data is needed.
"""

import asyncio
import contextlib
import errno
import logging
import queue
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVarTuple, Unpack

from host_broker.bus.queue import is_message
from host_broker.net.journal.assembly import Assembled, Assembler
from host_broker.net.journal.groups import Groups
from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.reader import JournalReader
from host_broker.net.journal.retention import READ_BY_ALL, AgeClock, Kept, sweep
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import BLOCK_BYTES, Partition
from host_broker.net.journal.snapshot import Snapshot, take_snapshot
from host_broker.net.journal.stage import (
    STAGE_FILE,
    Area,
    Stage,
    recover,
)
from host_broker.net.storage.files import sync
from host_broker.net.storage.message_store import (
    NO_CHANGES,
    Changes,
    Entry,
    MessageStore,
    MessageStoreError,
)
from host_broker.net.time_slice import USUAL_S, ask_for_time_slice
from host_broker.outputs import Record
from host_broker.settings import JournalSettings

_log = logging.getLogger(__name__)

_Ts = TypeVarTuple("_Ts")

Level = Literal["kept", "written", "synced"]

_GROUP_BYTES = 1024 * 1024  # a group this large is written at once, not after flush_s
_PORTION_BYTES = 1024 * 1024  # of a group, written at once
_SWEEP_S = 10.0  # how often it is looked for segments that have to go
_RECORD_OVERHEAD = 64  # what a record costs beyond its body, for the limit on what may wait
_TRY_AGAIN_S = 1.0  # while the disk is full
_DELETIONS_SAID = 5  # of one time
# Linux: goes on while the machine sleeps.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# What passes when something else gives way.
_FOR_NOW = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)


@dataclass(slots=True)
class _Group:
    """What one promise is kept for: records, and then what is retained and queued since.

    The thread takes its blocks out: what is written is not in memory any longer.
    """

    assembler: Assembler
    retained: dict[bytes, Entry | None] = field(default_factory=dict)
    queued: dict[bytes, Entry | None] = field(default_factory=dict)
    position: int = 0  # of its last turn
    cost: int = 0  # of what the loop was not told yet to be written
    sync: bool = False
    area: Area | None = None  # of the stage
    unstaged_messages: int = 0
    unstaged_retained: dict[bytes, Entry | None] = field(default_factory=dict)
    unstaged_queued: dict[bytes, Entry | None] = field(default_factory=dict)
    unstaged_cost: int = 0

    @property
    def is_staged(self) -> bool:
        """Whether all of it is."""
        unstaged = self.unstaged_messages or self.unstaged_retained or self.unstaged_queued
        return self.area is not None and not unstaged


@dataclass(slots=True, eq=False)
class _Wanted:
    """Somebody waits for a snapshot."""

    taken: "asyncio.Future[Snapshot]"

    def give(self, snapshot: Snapshot) -> None:
        """Have it given, in the loop; nobody may wait any more."""
        if self.taken.done():
            snapshot.close()
        else:
            self.taken.set_result(snapshot)

    def failed(self, error: Exception) -> None:
        """It could not be taken."""
        if not self.taken.done():
            self.taken.set_exception(error)


class Journal:
    """Writes docs/journal.md, and what is retained, without ever making the event loop wait.

    ``append`` fills columns, it waits for nothing. ``appended``, ``written``, ``synced``: positions
    of what was taken, and of what segments have in the kernel, and on the disk, as far as the loop
    knows. ``kept``: the position up to which all is where ``journal.ack`` says, so that answers may
    go out. ``full``: more waits to be written than may. ``reader`` and ``groups`` are for those who
    read it.

    The thread wakes the loop when it has written a group for which somebody waits. Of any other one
    the loop learns when it comes here the next time: to be woken for each would cost it, and who
    publishes meanwhile, more than all else that the journal does.
    """

    def __init__(
        self, folder: Path, settings: JournalSettings, store: MessageStore | None = None
    ) -> None:
        """Find where every partition goes on, after what a killed broker has left in the stage.

        ``store`` is for retained messages and queues; what it has is right only afterwards. Raises
        ``JournalError`` if the journal in ``folder`` is corrupt or cannot be written.
        """
        self.appended = self.written = self.synced = self.kept = 0
        self.full = False
        self.deleted_segments = self.deleted_bytes = 0  # since the start; the thread's
        self.waits_for_room = 0  # how often the disk was full
        self._folder = folder
        self._settings = settings
        self._store = store
        try:
            run = random.randrange(1, 2**31)
            identity = identity_of(folder)
            recover(folder, identity, settings, store)
            self._partitions = [
                Partition(folder, number, identity, run, settings)
                for number in range(settings.partitions)
            ]
            self._stage = self._new_stage(identity, run)
            for made in (folder, folder.parent, folder.parent.parent):
                sync(made)
        except OSError as error:
            raise _refused(folder, error) from error
        self.reader = JournalReader(folder, identity, self._partitions)
        self.groups = Groups(folder)
        self._group = self._new_group()
        self._staged = 0  # the position up to which all is in segments, or staged
        self._pending_bytes = 0
        self._writing: _Group | None = None  # what is with the thread
        self._done: deque[_Group] = deque()  # written, and the loop has not looked
        self._awaited = False  # the loop is to be woken when the next one is
        self._hurried = False  # the next one follows at once
        self._waiting: list[tuple[int, Level, asyncio.Future[None]]] = []
        self._handed_over: queue.SimpleQueue[_Group | _Wanted | None] = queue.SimpleQueue()
        self._snapshots = 0  # that are being read: nothing is deleted meanwhile
        self._blocks: dict[int, list[Assembled]] = {}  # the thread's: yet to be written
        self._ages = AgeClock()  # the thread's, too
        self._grown: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: JournalError | MessageStoreError | None = None

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[Exception], None],
        progressed: Callable[[], None],
    ) -> None:
        """Start the writing thread; everything else may be called from ``loop`` only.

        ``lost`` is called once with the error that ended the journal, ``progressed`` when ``kept``
        or ``full`` have changed for the better, at the latest when what ``hurry`` asked for is so.
        """
        self._loop = loop
        self._lost = lost
        self._progressed = progressed
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    @property
    def is_writing(self) -> bool:
        """Whether the thread runs: also after ``close``, if the disk did not answer."""
        return self._thread is not None and self._thread.is_alive()

    def change(self, settings: JournalSettings) -> None:
        """Have other limits from now on; what is not ``LIVE`` is as it was."""
        self._settings = settings

    def statistics(self) -> dict[str, object]:
        """Return what waits to be written, for people and their tools."""
        return {"full": self.full, "waiting_bytes": self.waiting_bytes}

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be written."""
        return self._pending_bytes - sum(group.cost for group in tuple(self._done))

    @property
    def nexts(self) -> list[int]:
        """The number of the next message of every partition, as far as segments have them."""
        return [partition.next for partition in self._partitions]

    def append(
        self,
        time_ns: int,
        records: list[Record],
        retained: Changes = NO_CHANGES,
        queued: Changes = NO_CHANGES,
    ) -> int:
        """Take what a turn brought (ns since 1970 UTC); returns its position.

        It is written within ``journal.flush_s``, sooner with ``hurry``.
        """
        if self._done:
            self._look()
        self.appended += 1
        if self._settings.ack == "memory":
            self.kept = self.appended
        if self._failure is not None:
            return self.appended  # which is never reached
        cost = messages = 0
        for record in records:
            cost += len(record.body) + _RECORD_OVERHEAD
            messages += record.count
        if queued:
            cost += sum(map(_cost, queued.values()))
        group = self._group
        if records:
            try:
                group.assembler.add(time_ns, records)
            except ValueError as error:
                self._refuse(error)
                return self.appended
        group.position = self.appended
        group.cost += cost
        if retained:
            group.retained.update(retained)
        if queued:
            _put_together(group.queued, queued)
        if self._stage is not None:
            group.unstaged_cost += cost
            group.unstaged_messages += messages
            if retained:
                group.unstaged_retained.update(retained)
            if queued:
                _put_together(group.unstaged_queued, queued)
        self._pending_bytes += cost
        if self._pending_bytes > self._settings.max_pending_bytes:
            self.full = True
            self._await()
        if group.cost >= _GROUP_BYTES:
            if group.area is not None:
                self.keep_now()  # who waited for what was before it waits for this, too
            self._hand_over()
        elif self._timer is None and not self._hurried:
            self._timer = self._loop.call_later(self._settings.flush_s, self._due)
        return self.appended

    def keep_now(self) -> bool:
        """Have all that was appended kept at once, if it can be; returns whether it is.

        It can be staged if ``journal.ack`` is ``written``, it is not too much, and all before it
        is staged or in segments. If not, ``hurry``.
        """
        if self._done:
            self._look()
        if self.kept >= self.appended:
            return True
        group, stage = self._group, self._stage
        if stage is None or self._failure is not None or not stage.takes(group.unstaged_cost):
            return False
        if group.area is None:
            if self._writing is None:
                numbers = [partition.next for partition in self._partitions]
            elif self._writing.area is not None and self._writing.is_staged:
                numbers = self._writing.area.numbers
            else:
                return False
            group.area = stage.begin(numbers)
        if group.area is None or not group.area.add(
            group.assembler, group.unstaged_retained, group.unstaged_queued
        ):
            return False
        group.unstaged_cost = group.unstaged_messages = 0
        group.unstaged_retained, group.unstaged_queued = {}, {}
        self._staged = self.kept = self.appended
        return True

    def hurry(self) -> None:
        """Write what was taken as soon as the thread is free: somebody waits for it."""
        self._hand_over()
        self._await()

    def _hand_over(self) -> None:
        """Give the group to the thread, as soon as that is free."""
        if self._done:
            self._look()
        if self._writing is not None:
            self._hurried = self._group.position > 0
            if self._hurried:
                self._await()
        elif self._group.position:
            self._hurried = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            group, self._group = self._group, self._new_group()
            group.sync |= self._settings.ack == "synced"
            self._writing = group
            self._awaited = self.full or bool(self._waiting) or self._grown is not None
            self._handed_over.put(group)

    def _await(self) -> None:
        """Have the thread tell when it has written what it has: somebody waits for it."""
        self._awaited = True
        if self._done:  # it may have been so before
            self._look()

    def _look(self) -> None:
        """Take note of what the thread has written since the last time."""
        while self._done:
            self._reached(self._done.popleft())

    async def reach(self, position: int, deadline_s: float, level: Level = "kept") -> None:
        """Wait until everything up to ``position`` is kept, or ``written`` or ``synced``, whatever
        ``journal.ack`` says.

        Raises ``TimeoutError`` if that takes longer than ``deadline_s``; ``JournalError`` or
        ``MessageStoreError`` if it never will be.
        """
        self._look()
        if self._reached_by(level) >= position or (level == "kept" and self.keep_now()):
            return
        if self._failure is not None:
            raise self._failure
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((position, level, waiting))
        if level == "synced":
            # What it waits for may be written already, or be with the thread.
            self._group.sync = True
            self._group.position = self.appended
        self.hurry()
        await asyncio.wait_for(waiting, deadline_s)

    async def close(self, deadline_s: float) -> None:
        """Write everything out and end the thread.

        Raises ``JournalError`` or ``MessageStoreError`` if that failed, earlier or now, or took
        longer than ``deadline_s``.
        """
        thread = self._thread
        if thread is None:  # it never started
            if self._stage is not None:
                self._stage.close()
            return
        self._closing.set()
        if self._timer is not None:
            self._timer.cancel()
        if self._group.position:
            self._group.sync |= self._settings.ack == "synced"
            self._handed_over.put(self._group)
            self._group = self._new_group()
        self._handed_over.put(None)
        await asyncio.to_thread(thread.join, deadline_s)
        self._look()
        if self._stage is not None and not thread.is_alive():
            self._stage.close()
            if self._failure is None:
                (self._folder / STAGE_FILE).unlink(missing_ok=True)  # nothing is in it
        if self._failure is not None:
            raise self._failure
        if thread.is_alive():
            raise JournalError(
                f"the journal in {self._folder} was not written out within {deadline_s:g} s: "
                "the disk does not answer; the last messages may be missing"
            )

    async def settle(self, deadline_s: float) -> None:
        """Have what was acknowledged in segments, where readers find it; errors as ``reach``."""
        self._look()
        if self._staged > self.written:
            await self.reach(self._staged, deadline_s, "written")

    @contextlib.asynccontextmanager
    async def snapshot(self, deadline_s: float) -> AsyncIterator[Snapshot]:
        """Give the journal as it is at one moment; while the block lasts nothing of it is deleted.

        All that was acknowledged before is in it, and what is retained is what its messages have
        made so. Errors as ``reach``.
        """
        await asyncio.sleep(0)  # the turn in which the last of it comes
        await self.reach(self.appended, deadline_s, "written")
        taken: asyncio.Future[Snapshot] = self._loop.create_future()
        self._snapshots += 1
        try:
            self._handed_over.put(_Wanted(taken))
            snapshot = await asyncio.wait_for(taken, deadline_s)
            try:
                yield snapshot
            finally:
                await asyncio.to_thread(snapshot.close)
        finally:
            self._snapshots -= 1

    def grown(self) -> "asyncio.Future[None]":
        """Return what is done when the journal has more than now, for those who wait for it.

        It is done at once if the thread has written more than the loop had heard of.
        """
        grown = self._grown
        if grown is None:
            grown = self._grown = self._loop.create_future()
            self._await()
        return grown

    def _handed_on(self, cost: int) -> None:
        """The kernel has another portion."""
        if self._grown is not None:
            self._grown.set_result(None)
            self._grown = None
        self._pending_bytes -= cost
        if self.full and self._pending_bytes <= self._settings.max_pending_bytes // 2:
            self.full = False
            self._progressed()

    def _reached(self, group: _Group) -> None:
        """The thread has written a group."""
        self.written = group.position
        if group.sync:
            self.synced = group.position
        if self._settings.ack != "memory":
            by_thread = self.written if self._settings.ack == "written" else self.synced
            self.kept = max(self.kept, by_thread)
        self._writing = None
        if group.area is not None and self._stage is not None:
            self._stage.free(group.area)
        if self._group.cost >= _GROUP_BYTES or (self._hurried and not self._is_enough_staged()):
            self._hand_over()
        self._handed_on(group.cost)
        self._progressed()
        if self._waiting:
            self._waiting = [each for each in self._waiting if not self._answered(*each)]

    def _is_enough_staged(self) -> bool:
        """Have the next group kept without the thread, if that is all that somebody waits for.

        Or each would wait for the one before: once a group was not staged, none would be.
        """
        if self._timer is None or any(level != "kept" for _, level, _ in self._waiting):
            return False  # it is due
        self._hurried = not self.keep_now()
        return not self._hurried

    def _due(self) -> None:
        """The group has waited for ``flush_s``."""
        self._timer = None
        self._hand_over()

    def _reached_by(self, level: Level) -> int:
        if level == "kept":
            return self.kept
        return self.written if level == "written" else self.synced

    def _answered(self, position: int, level: Level, waiting: "asyncio.Future[None]") -> bool:
        if waiting.done():
            return True  # it waits no longer
        if self._reached_by(level) < position:
            return False
        waiting.set_result(None)
        return True

    def _new_stage(self, identity: uuid.UUID, run: int) -> Stage | None:
        if self._settings.ack != "written":
            (self._folder / STAGE_FILE).unlink(missing_ok=True)  # it was recovered
            return None
        try:
            return Stage(self._folder, identity, run)
        except OSError as error:
            # The old one was recovered; what it says is not true any more after the next group.
            (self._folder / STAGE_FILE).unlink(missing_ok=True)
            _log.warning(
                "journal: there is no stage (%s): answers wait for the thread that writes",
                error.strerror,
            )
            return None

    def _new_group(self) -> _Group:
        return _Group(Assembler(len(self._partitions), BLOCK_BYTES))

    def _refuse(self, error: ValueError) -> None:
        """A record is none, which is a bug; it must end the broker, not only lose the record."""
        if self._failure is None:
            self._failure = JournalError(f"the journal was given what it cannot keep: {error}")
            self._failure.__cause__ = error
            self._ended(self._failure)

    def _ended(self, error: JournalError | MessageStoreError) -> None:
        for _, _, waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(error)
        self._lost(error)

    def _hold(self, error: OSError) -> None:
        """The thread cannot write for now; publishers wait until it can."""
        self.full = True
        self.waits_for_room += 1
        self._await()

    # ---- the thread ----

    def _work(self) -> None:
        failure: JournalError | MessageStoreError | None = None
        ask_for_time_slice(USUAL_S)  # or it had the event loop's
        try:
            swept = self._sweep()
            while True:
                try:
                    group = self._handed_over.get(timeout=_SWEEP_S)
                except queue.Empty:
                    swept = self._sweep()
                    continue
                if group is None:
                    break
                if isinstance(group, _Wanted):
                    self._give_snapshot(group)
                    continue
                self._write(group)
                self._done.append(group)
                if self._awaited:
                    self._call_on_loop(self._look)
                if time.monotonic() - swept > _SWEEP_S:
                    swept = self._sweep()
            for partition in self._partitions:
                partition.close()
        except OSError as error:
            failure = _refused(self._folder, error)
        except (JournalError, MessageStoreError) as error:
            failure = error
        except Exception as error:  # a bug; it must end the broker too, not only this thread
            failure = JournalError(f"the journal's thread failed: {error!r}")
            failure.__cause__ = error
        if failure is not None and self._failure is None:
            self._failure = failure
            self._call_on_loop(self._ended, failure)

    def _give_snapshot(self, wanted: "_Wanted") -> None:
        """Between two groups: what is retained is as new as what is in segments."""
        try:
            snapshot = take_snapshot(self._folder, self._partitions, self._store)
        except (OSError, MessageStoreError, JournalError) as error:
            self._call_on_loop(wanted.failed, error)
        else:
            self._call_on_loop(wanted.give, snapshot)

    def _write(self, group: _Group) -> None:
        """Write a group, however long that takes while the disk is full."""
        while portion := group.assembler.take(_PORTION_BYTES):
            for block in portion:
                self._blocks.setdefault(block.partition, []).append(block)
            self._persist(self._write_blocks, group)
            if group.assembler.messages:  # else all is reported at once
                cost = min(group.cost, sum(block.length for block in portion))
                group.cost -= cost
                self._call_on_loop(self._handed_on, cost)
        self._persist(self._finish, group)

    def _write_blocks(self, group: _Group) -> None:
        """Hand what is assembled to the kernel; what the disk refuses is there the next time."""
        for number, blocks in self._blocks.items():
            self._partitions[number].write(blocks)

    def _finish(self, group: _Group) -> None:
        """Do what comes after the records; what is done is not done again."""
        if group.sync:
            for partition in self._partitions:
                partition.sync()
        if self._store is not None:
            if group.retained or group.queued:
                self._store.write(group.retained, group.queued)
                group.retained, group.queued = {}, {}
            if group.sync:
                self._store.sync()
        if group.area is not None:
            group.area.clear()

    def _persist(self, step: Callable[[_Group], None], group: _Group) -> None:
        """Take a step, again and again while there is no room for what it writes."""
        began = 0.0
        while True:
            try:
                step(group)
                break
            except OSError as error:
                if error.errno not in _FOR_NOW:
                    raise
                self._wait_for_room(error, group, first=not began)
                began = began or time.monotonic()
        if began:
            _log.warning(
                "the journal in %s goes on after %.1f s", self._folder, time.monotonic() - began
            )

    def _wait_for_room(self, error: OSError, group: _Group, *, first: bool) -> None:
        if self._closing.is_set():
            lost, staged = self._unwritten(group)
            what = f"{lost} messages that were accepted are lost"
            if staged:
                what += f", {staged} are staged: the next start writes them"
            raise JournalError(
                f"the journal in {self._folder} could not be written before the end "
                f"({error.strerror}): {what}"
            )
        if first:
            _log.warning(
                "the journal in %s cannot be written for now (%s): publishers wait, and it is "
                "tried again every second",
                self._folder,
                error.strerror,
            )
            self._call_on_loop(self._hold, error)
        self._closing.wait(_TRY_AGAIN_S)

    def _unwritten(self, group: _Group) -> tuple[int, int]:
        """Return how many messages are in no segment: those that are lost, and the staged ones."""
        here = group.assembler.messages
        here += sum(block.messages for blocks in self._blocks.values() for block in blocks)
        unwritten = [(here, group)]
        while not self._handed_over.empty():
            other = self._handed_over.get()
            if isinstance(other, _Group):
                unwritten.append((other.assembler.messages, other))
        lost = 0
        for messages, each in unwritten:
            lost += min(messages, each.unstaged_messages) if each.area is not None else messages
        return lost, sum(messages for messages, _ in unwritten) - lost

    def _sweep(self) -> float:
        """Delete the segments that have to go; returns when this was."""
        if self._snapshots:
            return time.monotonic()
        settings = self._settings
        steady_ns = time.clock_gettime_ns(_STEADY)
        now_ns = self._ages.look(time.time_ns(), steady_ns, settings.max_age_s)
        gone: list[Kept] = []
        try:
            read_by_all = self.groups.read_by_all() if settings.trim_read else {}
            limits = settings.max_bytes, settings.max_age_s
            gone.extend(sweep(self._folder, *limits, read_by_all, now_ns))
        except OSError as error:
            # Nothing is lost by keeping them for now; a full disk makes everybody wait.
            _log.warning("old segments of the journal could not be deleted: %s", error)
        self.deleted_segments += len(gone)
        self.deleted_bytes += sum(segment.size for segment in gone)
        gone = [segment for segment in gone if segment.why != READ_BY_ALL]  # nobody misses those
        for segment in gone[:_DELETIONS_SAID]:
            _log.warning("journal: deleted: %s", segment)
        if more := gone[_DELETIONS_SAID:]:
            size = sum(segment.size for segment in more)
            text = "journal: deleted: %d more segments, %d bytes, for such reasons"
            _log.warning(text, len(more), size)
        return time.monotonic()

    def _call_on_loop(self, function: Callable[[Unpack[_Ts]], None], *arguments: *_Ts) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


def _cost(entry: Entry | None) -> int:
    return _RECORD_OVERHEAD + (len(entry[0]) + len(entry[1]) if entry is not None else 0)


def _put_together(before: dict[bytes, Entry | None], changes: Changes) -> None:
    """Add changes of queues. A message that came since, and is done with already, needs to be known
    to nobody: numbers are not used twice. The place of a queue itself is, and so is a name under
    which something is remembered."""
    for key, entry in changes.items():
        if entry is None and before.get(key) is not None and is_message(key):
            del before[key]
        else:
            before[key] = entry


def _refused(folder: Path, error: OSError) -> JournalError:
    return JournalError(
        f"cannot write the journal in {folder}: {error.strerror or error}; messages can no longer "
        "be kept, so the broker does not go on; mend the disk and start it again"
    )
