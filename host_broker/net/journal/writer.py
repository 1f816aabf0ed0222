"""The journal: the event loop hands records over, a thread writes them in groups.

Policy: a journal that cannot be written stops the broker. Going on without it would deliver
messages that the tables never see, and nobody would notice before the data is needed.
"""

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from host_broker.net.journal.groups import Groups
from host_broker.net.journal.library import Library
from host_broker.net.journal.retention import sweep
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings

_log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Group = list[tuple[int, list[Record]]]  # (time of the read, its records)
_Waiting = asyncio.Future[None]  # somebody who waits for what was handed over before

_GROUP_BYTES = 1024 * 1024  # a group this large is written at once, not after flush_s
_SWEEP_S = 10.0  # how often it is looked for segments that have to go
_RECORD_OVERHEAD = 64  # what a record costs beyond its body, for the limit on what may wait


class Journal:
    """Writes docs/journal.md from an event loop without ever making it wait.

    ``append`` costs a list append. ``lost`` is called once, on the loop, with the ``JournalError``
    that ended the journal; ``drained`` when ``full`` has become False again. ``library`` and
    ``groups`` are for those who read it.
    """

    def __init__(self, folder: Path, settings: JournalSettings) -> None:
        """Find where every partition goes on.

        Raises ``JournalError`` if the journal in ``folder`` is corrupt or cannot be written.
        """
        self.library = Library(folder)
        self.groups = Groups(folder)
        self._folder = folder
        self._settings = settings
        try:
            run = random.randrange(1, 2**31)
            self._partitions = [
                Partition(folder, number, run, settings) for number in range(settings.partitions)
            ]
        except OSError as error:
            raise _refused(folder, error) from error
        self._group: _Group = []
        self._group_bytes = 0
        self._pending_bytes = 0
        self._handed_over: queue.SimpleQueue[tuple[_Group, int] | _Waiting | None]
        self._handed_over = queue.SimpleQueue()
        self._timer: asyncio.TimerHandle | None = None
        self._failure: JournalError | None = None
        self.full = False

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[JournalError], None],
        drained: Callable[[], None],
    ) -> None:
        """Start the writing thread; ``append`` may be called from ``loop`` only."""
        self._loop = loop
        self._lost = lost
        self._drained = drained
        self._thread = threading.Thread(target=self._write_groups, name="journal", daemon=True)
        self._thread.start()

    def append(self, time_ns: int, records: list[Record]) -> None:
        """Take the records of one read (ns since 1970 UTC); they are on file within flush_s."""
        cost = 0
        for record in records:
            cost += len(record.body) + _RECORD_OVERHEAD
        self._group.append((time_ns, records))
        self._group_bytes += cost
        self._pending_bytes += cost
        if self._pending_bytes > self._settings.max_pending_bytes:
            self.full = True
        if self._group_bytes >= _GROUP_BYTES:
            self._hand_over()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._settings.flush_s, self._hand_over)

    async def on_file(self, deadline_s: float) -> None:
        """Wait until all that was appended until now is on file; writes it at once.

        Raises ``TimeoutError`` if that takes longer than ``deadline_s``.
        """
        self._hand_over()
        waiting: _Waiting = self._loop.create_future()
        self._handed_over.put(waiting)
        await asyncio.wait_for(waiting, deadline_s)

    async def close(self, deadline_s: float) -> None:
        """Write everything out and end the thread.

        Raises ``JournalError`` if that failed, earlier or now, or took longer than ``deadline_s``.
        """
        self._hand_over()
        self._handed_over.put(None)
        await asyncio.to_thread(self._thread.join, deadline_s)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive():
            raise JournalError(
                f"the journal in {self._folder} was not written out within {deadline_s:g} s: "
                "the disk does not answer; the last messages may be missing"
            )

    def _hand_over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._group:
            self._handed_over.put((self._group, self._group_bytes))
            self._group = []
            self._group_bytes = 0

    def _written(self, cost: int) -> None:
        self._pending_bytes -= cost
        if self.full and self._pending_bytes <= self._settings.max_pending_bytes // 2:
            self.full = False
            self._drained()

    # ---- the thread ----

    def _write_groups(self) -> None:
        try:
            swept = self._sweep()
            while True:
                try:
                    handed_over = self._handed_over.get(timeout=_SWEEP_S)
                except queue.Empty:
                    swept = self._sweep()
                    continue
                if handed_over is None:
                    break
                if isinstance(handed_over, asyncio.Future):
                    self._call_on_loop(_answer, handed_over)
                    continue
                group, cost = handed_over
                self._write(group)
                self._call_on_loop(self._written, cost)
                if time.monotonic() - swept > _SWEEP_S:
                    swept = self._sweep()
            for partition in self._partitions:
                partition.close()
        except OSError as error:
            self._failure = _refused(self._folder, error)
        except Exception as error:  # a bug; it must end the broker too, not only this thread
            self._failure = JournalError(f"the journal's thread failed: {error!r}")
            self._failure.__cause__ = error
        if self._failure is not None:
            self._call_on_loop(self._lost, self._failure)

    def _write(self, group: _Group) -> None:
        partitions = self._partitions
        for time_ns, records in group:
            for record in records:
                partitions[record.connection % len(partitions)].append(time_ns, record)
        for partition in partitions:
            partition.flush()

    def _sweep(self) -> float:
        """Delete the segments that have to go; returns when this was."""
        settings = self._settings
        try:
            read_by_all = self.groups.read_by_all() if settings.trim_read else {}
            gone = sweep(self._folder, settings.max_bytes, settings.max_age_s, read_by_all)
        except OSError as error:
            # Nothing is lost by keeping them for now; a full disk stops the broker by itself.
            _log.warning("old segments of the journal could not be deleted: %s", error)
        else:
            if gone:
                size = sum(segment.size for segment in gone)
                _log.info("journal: %d old segments (%d bytes) were deleted", len(gone), size)
        return time.monotonic()

    def _call_on_loop(self, function: Callable[[_T], None], argument: _T) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, argument)


def _answer(waiting: _Waiting) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _refused(folder: Path, error: OSError) -> JournalError:
    return JournalError(
        f"cannot write the journal in {folder}: {error.strerror or error}; messages can no longer "
        "be kept, so the broker does not go on; mend the disk and start it again"
    )
