"""What somebody waits for, in a file that the event loop itself writes (docs/journal.md, Stage).

An answer at ``journal.ack = written`` promises that the kernel has what it is for. If the thread
that writes segments had to say so, each answer would wait for two threads to wake up. So the loop
hands to the kernel what is waited for, and the thread puts it into segments when a group is due,
as if there were no stage. Only a start after a kill reads it.

The file has two areas, for the group that the thread writes and the one after it. It is written
over and over, so its room on the disk and its pages in memory are there.
"""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

from host_broker.net.journal.assembly import Assembler, message_lengths
from host_broker.net.journal.checksum import crc32
from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    LENGTH_BYTES,
    Block,
    is_whole,
    take_block,
    take_column,
)
from host_broker.net.journal.segment import Partition
from host_broker.net.storage.message_store import NO_CHANGES, Changes, Entry, MessageStore
from host_broker.outputs import Buffer, Record
from host_broker.settings import JournalSettings

_log = logging.getLogger(__name__)

STAGE_FILE = "staged"
AREA_BYTES = 8 * 1024 * 1024  # some milliseconds of all that a loop can take
_AREAS = 2
MOST_AT_ONCE = 512 * 1024  # more is better written by the thread: the loop would wait too long
_FEW_PARTS = 64  # of one call; more are joined
_SLOW_S = 0.005  # a disk that makes the loop wait this long …
_REST_S = 1.0  # … is not written to by the loop for a while

_MAGIC = b"MOTESTAG"
_VERSION = 2
_READ = (1, 2)  # version 1 had no queues
_HEADER = Struct("<8sHHIQII16s16s")  # CRC behind it
_CRC = Struct("<I")
AREA_HEADER_LENGTH = _HEADER.size + _CRC.size
_RETAINED_MAGIC, _QUEUED_MAGIC = b"MRET", b"MQUE"
_PIECE = Struct("<4sIII")  # magic, length of all, CRC of what is behind it, mark
_PIECE_BEHIND_CRC = 12
_ENTRY = Struct("<HII")  # lengths of topic or place, packet, properties
_FORGOTTEN = 2**32 - 1  # for the length of the packet of what is there no more
# Of a block: times, connections, counts, lengths of clients, protocols, encodings.
_COLUMNS = (("Q", 8), ("I", 4), ("I", 4), ("H", 2), ("B", 1), ("B", 1))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Area:
    """Half of a stage: what of one group is waited for, in order."""

    def __init__(self, stage: "Stage", offset: int) -> None:
        self.numbers: list[int] = []  # of each partition: of the message after those that are here
        self._stage = stage
        self._offset = offset
        self._mark = 0
        self._used = 0

    def begin(self, sequence: int, numbers: list[int]) -> None:
        """Have it empty for a group whose partitions go on with ``numbers``."""
        self.numbers = numbers
        self._mark = 0
        self._used = 0
        self._sequence = sequence

    def add(self, assembler: Assembler, retained: Changes, queued: Changes = NO_CHANGES) -> bool:
        """Hand to the kernel what turns brought; False if it has no room, or the disk none.

        Of what ``assembler`` has it is that which is not staged yet. All of it is there, or
        nothing: of a call that was cut short, recovery reads no part.
        """
        numbers = self.numbers.copy()
        mark = self._mark
        parts: list[Buffer] = []
        if not self._used:
            head = self._stage.header(self._sequence, len(numbers))
            (mark,) = _CRC.unpack_from(head, _HEADER.size)
            parts.append(head)
        parts += assembler.unstaged(numbers, mark)
        if retained:
            parts.append(_pack_changes(_RETAINED_MAGIC, retained, mark))
        if queued:
            parts.append(_pack_changes(_QUEUED_MAGIC, queued, mark))
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        if self._used + size > AREA_BYTES:
            return False
        if not self._stage.write(parts, size, self._offset + self._used):
            return False
        self._mark = mark
        self._used += size
        self.numbers = numbers
        assembler.staged()
        return True

    def clear(self) -> None:
        """All of it is where it belongs: a start must not read it any more."""
        if self._used:
            self._stage.wipe(self._offset)


class Stage:
    """The file, for one run of the broker. Nothing of an earlier run is in it any more."""

    def __init__(self, journal: Path, identity: uuid.UUID, run: int) -> None:
        """Make the file, with all the room that it will have. Raises ``OSError``."""
        self._identity = identity
        self._run = run
        self._boot = _boot_id()
        self._sequence = 0
        self._rests_until = 0.0  # by the monotonic clock; 0: it does not rest
        path = journal / STAGE_FILE
        unborn = path.with_suffix(".new")
        self._file = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(self._file, 0, _AREAS * AREA_BYTES)
            unborn.rename(path)
        except OSError:
            os.close(self._file)
            with contextlib.suppress(OSError):
                unborn.unlink()
            raise
        self._free = [Area(self, number * AREA_BYTES) for number in range(_AREAS)]

    def begin(self, numbers: list[int]) -> Area | None:
        """Return an area for the next group; None if none is free."""
        if not self._free or (self._rests_until and self._rests()):
            return None
        area = self._free.pop()
        self._sequence += 1
        area.begin(self._sequence, numbers)
        return area

    def free(self, area: Area) -> None:
        """Take back an area that was cleared."""
        self._free.append(area)

    def takes(self, size: int) -> bool:
        """Whether so many bytes are worth a try."""
        return size <= MOST_AT_ONCE and not (self._rests_until and self._rests())

    def _rests(self) -> bool:
        """Whether what the disk was slow with, or refused, is a short while ago."""
        if time.monotonic() < self._rests_until:
            return True
        self._rests_until = 0.0
        return False

    def header(self, sequence: int, partitions: int) -> bytes:
        """Return the first bytes of an area."""
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            0,
            partitions,
            sequence,
            self._run,
            0,
            self._identity.bytes,
            self._boot,
        )
        return head + _CRC.pack(crc32(head))

    def write(self, parts: list[Buffer], size: int, offset: int) -> bool:
        """Hand parts of ``size`` bytes in all to the kernel; False if it does not take them."""
        began = time.monotonic()
        try:
            if len(parts) == 1:
                written = os.pwrite(self._file, parts[0], offset)
            else:
                written = os.pwritev(self._file, parts, offset) if len(parts) <= _FEW_PARTS else 0
            if written < size:
                _write_all(self._file, b"".join(parts)[written:], offset + written)
        except OSError as error:
            _log.warning("journal: the stage cannot be written for now: %s", error.strerror)
            self._rests_until = began + _REST_S
            return False
        ended = time.monotonic()
        if ended - began > _SLOW_S:
            self._rests_until = ended + _REST_S
        return True

    def wipe(self, offset: int) -> None:
        """Have an area begin with zeros. Raises ``OSError``."""
        _write_all(self._file, bytes(AREA_HEADER_LENGTH), offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class StagedRecord:
    """A record, when it was read, and the number of its first message in its partition."""

    partition: int
    first: int
    time_ns: int
    record: Record


@dataclass(slots=True)
class Staged:
    """What an area has, in the order in which it came.

    ``is_of_this_boot``: the machine has not been started since, so its kernel has lost nothing.
    """

    sequence: int
    run: int
    is_of_this_boot: bool
    records: list[StagedRecord] = field(default_factory=list)
    retained: dict[bytes, Entry | None] = field(default_factory=dict)
    queued: dict[bytes, Entry | None] = field(default_factory=dict)


def read(journal: Path, identity: uuid.UUID) -> list[Staged]:
    """Return what the stage of a journal has, in the order in which it came; [] if there is none.

    Raises ``OSError``.
    """
    try:
        with (journal / STAGE_FILE).open("rb") as file:
            data = memoryview(file.read(_AREAS * AREA_BYTES))
    except FileNotFoundError:
        return []
    areas = [data[start : start + AREA_BYTES] for start in range(0, len(data), AREA_BYTES)]
    found = [read_area(area, identity, _boot_id()) for area in areas]
    return sorted((each for each in found if each is not None), key=lambda each: each.sequence)


def recover(
    journal: Path,
    identity: uuid.UUID,
    settings: JournalSettings,
    store: MessageStore | None = None,
) -> int:
    """Put what a killed broker has left in its stage where it belongs; returns the new messages.

    It may itself be killed at any instant, and begun again. Raises ``JournalError``,
    ``MessageStoreError``, ``OSError``.
    """
    partitions: dict[tuple[int, int], Partition] = {}  # by run and number
    ends: dict[tuple[int, int], int] = {}  # of what segments had before
    messages = 0
    for staged in read(journal, identity):
        added = 0
        for each in staged.records:
            key = staged.run, each.partition
            if key not in partitions:
                partitions[key] = Partition(journal, each.partition, identity, staged.run, settings)
                ends[key] = partitions[key].next
            if each.first >= ends[key]:
                partitions[key].append(each.time_ns, each.record)
                added += each.record.count
        for partition in partitions.values():
            partition.flush()
        messages += added
        # What another start of the machine has left may be older than the store is, unless
        # segments lack some of it.
        changes = staged.retained or staged.queued
        if store is not None and changes and (added or staged.is_of_this_boot):
            store.write(staged.retained, staged.queued)
    for partition in partitions.values():
        partition.close()
    if messages:
        # Not a warning: nothing is lost, and nobody has to do anything.
        _log.info("journal: %d staged messages of a killed broker are in segments now", messages)
    return messages


def missing(journal: Path, identity: uuid.UUID, nexts: Mapping[int, int]) -> int:
    """Return how many staged messages are not in segments, which end before ``nexts``.

    Raises ``OSError``.
    """
    return sum(
        each.record.count
        for staged in read(journal, identity)
        for each in staged.records
        if each.first >= nexts.get(each.partition, 0)
    )


def read_area(data: memoryview, identity: uuid.UUID, boot: bytes) -> Staged | None:
    """Return what the bytes of an area say, up to the first that do not; None if it is empty."""
    if len(data) < AREA_HEADER_LENGTH or data[:8] != _MAGIC:
        return None
    (mark,) = _CRC.unpack_from(data, _HEADER.size)
    _, version, _, partitions, sequence, run, _, journal, when = _HEADER.unpack_from(data)
    if mark != crc32(data[: _HEADER.size]):
        return None  # it was being written
    if version not in _READ or journal != identity.bytes:
        _log.warning("journal: the stage is of another journal, or version: it is not read")
        return None
    staged = Staged(sequence, run, any(when) and when == boot)
    numbers: dict[int, int] = {}
    at = AREA_HEADER_LENGTH
    with contextlib.suppress(ValueError):  # the end, or what a loss of power has left
        while at + _PIECE.size <= len(data):
            magic = data[at : at + 4]
            if magic == _RETAINED_MAGIC:
                at = _read_changes(data, at, mark, staged.retained)
            elif magic == _QUEUED_MAGIC:
                at = _read_changes(data, at, mark, staged.queued)
            else:
                at = _read_block(data, at, mark, numbers, partitions, staged.records)
    return staged


def _read_block(
    data: memoryview,
    at: int,
    mark: int,
    numbers: dict[int, int],
    partitions: int,
    records: list[StagedRecord],
) -> int:
    """Add the records of the block at ``at``; returns its end. ValueError if there is none."""
    block = take_block(data, at) if at + BLOCK_HEADER_LENGTH <= len(data) else None
    if block is None or block.flags or not is_whole(data, at, block):
        raise ValueError
    partition = (block.segment - mark) % 2**32
    if partition >= partitions or numbers.get(partition, block.first) != block.first:
        raise ValueError  # left over from earlier
    first = block.first
    for time_ns, record in records_of(data, at, block):
        records.append(StagedRecord(partition, first, time_ns, record))
        first += record.count
    numbers[partition] = block.next
    return at + block.length


def records_of(data: memoryview, at: int, block: Block) -> list[tuple[int, Record]]:
    """Return the records of a whole block at ``at``, each with the time of its read.

    Raises ValueError if its columns contradict each other.
    """
    position = at + BLOCK_HEADER_LENGTH
    columns: list[Sequence[int]] = []
    for typecode, width in _COLUMNS:
        columns.append(take_column(typecode, data, position, block.records))
        position += width * block.records
    times, connections, counts, client_lengths, protocols, encodings = columns
    lengths = take_column("I", data, position, block.messages)
    position += LENGTH_BYTES * block.messages
    body = at + block.bodies
    if (sum(counts), sum(client_lengths), sum(lengths)) != (
        block.messages,
        block.clients_length,
        at + block.length - body,
    ):
        raise ValueError
    found: list[tuple[int, Record]] = []
    message = 0
    for number in range(block.records):
        client = bytes(data[position : position + client_lengths[number]]).decode()
        position += client_lengths[number]
        count = counts[number]
        end = body + sum(lengths[message : message + count])
        record = Record(
            connections[number],
            protocols[number],
            client,
            count,
            bytes(data[body:end]),
            encodings[number],
        )
        message_lengths(record)
        found.append((times[number], record))
        message += count
        body = end
    return found


def _pack_changes(magic: bytes, changes: Changes, mark: int) -> bytes:
    entries: list[bytes] = []
    for key, entry in changes.items():
        if entry is None:
            entries += (_ENTRY.pack(len(key), _FORGOTTEN, 0), key)
        else:
            packet, properties = entry
            entries += (_ENTRY.pack(len(key), len(packet), len(properties)), key)
            entries += (packet, properties)
    covered = _CRC.pack(mark) + b"".join(entries)
    length = _PIECE.size + len(covered) - _CRC.size
    return _PIECE.pack(magic, length, crc32(covered), mark) + covered[_CRC.size :]


def _read_changes(data: memoryview, at: int, mark: int, changes: dict[bytes, Entry | None]) -> int:
    """Add the changes at ``at``; returns their end. ValueError if they are not whole."""
    _, size, crc, marked = _PIECE.unpack_from(data, at)
    end: int = at + size
    if marked != mark or size < _PIECE.size or end > len(data):
        raise ValueError
    with data[at + _PIECE_BEHIND_CRC : end] as covered:
        if crc32(covered) != crc:
            raise ValueError
    position = at + _PIECE.size
    found: dict[bytes, Entry | None] = {}
    while position < end:
        if end - position < _ENTRY.size:
            raise ValueError
        key_length, packet_length, properties_length = _ENTRY.unpack_from(data, position)
        forgotten = packet_length == _FORGOTTEN
        position += _ENTRY.size
        parts = []
        for length in (key_length, 0 if forgotten else packet_length, properties_length):
            parts.append(bytes(data[position : position + length]))
            position += length
        if position > end:
            raise ValueError
        key, packet, properties = parts
        found[key] = None if forgotten else (packet, properties)
    changes.update(found)
    return end


def _write_all(file: int, data: bytes, offset: int) -> None:
    written = os.pwrite(file, data, offset)
    while written < len(data):
        written += os.pwrite(file, data[written:], offset + written)


def _boot_id() -> bytes:
    """Return which start of the machine this is; zeros if it does not say."""
    try:
        return uuid.UUID(_BOOT_ID.read_text().strip()).bytes
    except (OSError, ValueError):
        return bytes(16)
