"""Where the messages of a segment are: a sparse index, kept beside a segment that is closed."""

import bisect
import os
import uuid
from array import array
from pathlib import Path
from struct import Struct

from host_broker.net.journal.checksum import crc32
from host_broker.net.journal.format import HEADER_LENGTH, pack_column, take_column

INDEX_SUFFIX = ".mji"

_APART_BYTES = 64 * 1024  # about so far are the blocks apart that it knows
_MAGIC = b"MOTEINDX"
_VERSION = 2
# Version, length of the mark, partition, UUID, first, next, bytes of the segment, end of its last
# whole block, latest time, entries, run of the broker.
_HEADER = Struct("<8sHHI16sQQQQQII")
_CRC = Struct("<I")


class SegmentIndex:
    """What is known of a segment: its header's facts, and the places of some of its blocks.

    ``tail``: the number after its last message, and where its last whole block ends. ``mark``: its
    newest client name that is a number's (``mark``), "" if it has none. One thread may ``add``
    while others read: what they see is there.
    """

    __slots__ = (
        "first",
        "journal",
        "latest_ns",
        "mark",
        "numbers",
        "offsets",
        "partition",
        "path",
        "run",
        "tail",
        "times_ns",
    )

    def __init__(
        self, path: Path, journal: uuid.UUID, partition: int, first: int, run: int
    ) -> None:
        self.path = path
        self.journal = journal
        self.partition = partition
        self.first = first
        self.run = run
        self.numbers = array("Q")
        self.offsets = array("Q")
        self.times_ns = array("Q")  # the latest up to the next one: clocks jump
        self.tail = first, HEADER_LENGTH
        self.latest_ns = 0
        self.mark = ""

    def add(self, length: int, messages: int, latest_ns: int, mark: str = "") -> None:
        """Take the block that begins at ``end``."""
        offsets = self.offsets
        following, end = self.tail
        if not offsets or end - offsets[-1] >= _APART_BYTES:
            self.numbers.append(following)
            self.times_ns.append(latest_ns)
            offsets.append(end)
        elif latest_ns > self.times_ns[-1]:
            self.times_ns[-1] = latest_ns
        if latest_ns > self.latest_ns:
            self.latest_ns = latest_ns
        if mark:
            self.mark = mark
        self.tail = following + messages, end + length

    @property
    def next(self) -> int:
        """The number after its last message."""
        return self.tail[0]

    @property
    def end(self) -> int:
        """Where its last whole block ends."""
        return self.tail[1]

    def near(self, number: int) -> int:
        """Return the place of a block, the last known one that does not begin after ``number``."""
        if not self.numbers:
            return HEADER_LENGTH
        return int(self.offsets[max(0, bisect.bisect_right(self.numbers, number) - 1)])

    def boundary(self, offset: int) -> int:
        """Return the last known place of a block that is not after ``offset``."""
        if not self.offsets:
            return HEADER_LENGTH
        return int(self.offsets[max(0, bisect.bisect_right(self.offsets, offset) - 1)])

    def since(self, time_ns: int) -> int:
        """Return the first known place behind which a block has a time of ``time_ns`` or later."""
        for number in range(len(self.offsets)):
            if self.times_ns[number] >= time_ns:
                return int(self.offsets[number])
        return self.end

    def save(self, size: int) -> None:
        """Write it beside its segment, a file of ``size`` bytes. Raises ``OSError``."""
        mark = self.mark.encode()
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            len(mark),
            self.partition,
            self.journal.bytes,
            self.first,
            self.next,
            size,
            self.end,
            self.latest_ns,
            len(self.numbers),
            self.run,
        )
        columns = [pack_column(each) for each in (self.numbers, self.offsets, self.times_ns)]
        data = b"".join([head, mark, *columns])
        path = index_path(self.path)
        fresh = path.with_suffix(path.suffix + ".new")
        fresh.write_bytes(data + _CRC.pack(crc32(data)))
        os.replace(fresh, path)


def index_path(segment: Path) -> Path:
    """Return where the index of a segment is."""
    return segment.with_suffix(INDEX_SUFFIX)


def load(segment: Path, size: int | None) -> SegmentIndex | None:
    """Return the index kept beside a segment of ``size`` bytes; None if there is no right one.

    ``size`` None: whatever size the segment has now, it had these messages once. Raises ``OSError``
    for what is not just its absence.
    """
    try:
        data = index_path(segment).read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size + _CRC.size:
        return None
    covered = memoryview(data)[: -_CRC.size]
    if _CRC.unpack_from(data, len(covered))[0] != crc32(covered):
        return None
    (
        magic,
        version,
        mark_length,
        partition,
        journal,
        first,
        following,
        of_size,
        end,
        latest_ns,
        count,
        run,
    ) = _HEADER.unpack_from(data)
    columns_at = _HEADER.size + mark_length
    if (
        (magic, version) != (_MAGIC, _VERSION)
        or size not in (of_size, None)
        or first != int(segment.stem)
        or partition != int(segment.parent.name[1:])
        or len(covered) != columns_at + 24 * count
    ):
        return None
    index = SegmentIndex(segment, uuid.UUID(bytes=journal), partition, first, run)
    index.mark = data[_HEADER.size : columns_at].decode()
    index.tail, index.latest_ns = (following, end), latest_ns
    index.numbers, index.offsets, index.times_ns = (
        take_column("Q", covered, columns_at + 8 * count * number, count) for number in range(3)
    )
    return index
