"""The bytes of a journal segment as blocks (docs/journal.md, format version 2); no files here."""

import struct
import uuid
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

try:
    from isal.isal_zlib import crc32  # twenty times as fast
except ImportError:  # an executor without it
    from zlib import crc32

Numbers = npt.NDArray[np.int64]
Bytes = bytes | memoryview

HEADER_LENGTH = 64
BLOCK_HEADER_LENGTH = 48
SELECTED, LOST = 1, 2  # flags of a block

_MAGIC = b"MOTEJRNL"
_VERSION = 2
_HEADER = struct.Struct("<8sHHIQQ16sIQI")
_HEADER_CRC_COVERS = 60
_BLOCK_MAGIC = b"MBLK"
_BEGIN = struct.Struct("<4sI")
_HEADER_TYPE = np.dtype(
    [
        ("_magic", "S4"),
        ("length", "<u4"),
        ("crc", "<u4"),
        ("flags", "<u2"),
        ("_zero", "<u2"),
        ("first", "<u8"),
        ("latest_ns", "<u8"),
        ("records", "<u4"),
        ("messages", "<u4"),
        ("clients_length", "<u4"),
        ("segment", "<u4"),
    ]
)
_NO_HEADER = np.empty((0, BLOCK_HEADER_LENGTH), np.uint8)
_BEHIND_CRC = 12
LONGEST_BLOCK = 32 * 1024 * 1024
_RECORD_BYTES = 20  # of columns


class JournalError(Exception):
    """A journal that cannot be read: the text names the file, the offset and the rule."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says of itself: ``crc`` is in each of its blocks, too."""

    journal: str
    run: int
    crc: int


@dataclass(frozen=True, slots=True)
class Slice:
    """Whole blocks of one segment: ``start`` to ``end`` of a file, or of an answer.

    ``until`` is the number at which they must end, None where only the end of the file tells: in
    the last segment of a partition, where a torn tail is ignored. ``run`` tells the broker's starts
    apart, ``segment`` is what its blocks say (None: not known). Of its messages ``low`` to ``high``
    - 1 are wanted (None: to the end).
    """

    file: str
    partition: int
    run: int
    segment: int | None
    start: int
    end: int
    first: int
    until: int | None
    low: int = 0
    high: int | None = None
    journal: str = ""  # its UUID


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks that follow each other in some bytes: where they begin and end, and their headers.

    A column each, so that thousands of small ones cost little more than a large one.
    """

    at: Numbers
    end: Numbers
    crc: Numbers
    flags: Numbers
    first: Numbers
    latest_ns: Numbers
    records: Numbers
    messages: Numbers
    clients_length: Numbers
    segment: Numbers

    def __len__(self) -> int:
        """How many there are."""
        return len(self.at)

    def part(self, low: int, high: int) -> "Blocks":
        """Return those from number ``low`` to ``high`` - 1."""
        return Blocks(*(getattr(self, name)[low:high] for name in self.__slots__))

    def chosen(self, which: npt.NDArray[np.bool_]) -> "Blocks":
        """Return some of them."""
        return Blocks(*(getattr(self, name)[which] for name in self.__slots__))

    @property
    def next(self) -> Numbers:
        """The numbers after their last messages."""
        return self.first + self.messages

    @property
    def bodies(self) -> Numbers:
        """Where their bodies begin."""
        each = np.where(self.flags & SELECTED, 8, 4)
        columns = _RECORD_BYTES * self.records + each * self.messages + self.clients_length
        return self.at + BLOCK_HEADER_LENGTH + np.where(self.flags & LOST, 0, columns)


def corrupt(file: str, offset: int, what: str) -> JournalError:
    """Return the error for a bad byte, in words a stranger can act on."""
    return JournalError(
        f"the journal is corrupt: {file}, offset {offset}: {what}; restore the file from a copy, "
        "or let 'motemq journal repair' go on without it"
    )


def read_header(data: bytes, file: str, partition: int, first: int) -> SegmentHeader:
    """Read the first 64 bytes of a segment. Raises ``JournalError`` unless they are its header."""
    if data[:8] == _MAGIC and data[8:10] == b"\0\1":
        raise JournalError(
            f"{file} has journal format version 1, this reader knows version {_VERSION}; convert "
            "the journal, while no broker uses it: motemq journal convert OLD NEW"
        )
    magic, version, _, in_partition, number, _, journal, run, _, crc = _HEADER.unpack(data)
    if magic != _MAGIC:
        raise corrupt(file, 0, "not a journal segment (it does not begin with MOTEJRNL)")
    if crc != crc32(data[:_HEADER_CRC_COVERS]):
        raise corrupt(file, _HEADER_CRC_COVERS, "bad CRC of the segment header")
    if version != _VERSION:
        raise JournalError(
            f"{file} has journal format version {version}, this reader knows version {_VERSION}; "
            "read it with the version of MoteMQ that wrote it, or a newer one"
        )
    if (in_partition, number) != (partition, first):
        raise corrupt(
            file,
            12,
            f"its header says partition {in_partition}, message {number}, "
            f"its name says partition {partition}, message {first}",
        )
    return SegmentHeader(str(uuid.UUID(bytes=journal)), int(run), int(crc))


def take_headers(data: Bytes, at: int = 0) -> Blocks:
    """Return the blocks from ``at`` on, up to the end or to what can be none by its header.

    All of their bytes are there, but their CRCs are not looked at (``whole``).
    """
    places: list[int] = []
    size = len(data)
    last = size - BLOCK_HEADER_LENGTH
    begin = _BEGIN.unpack_from
    while at <= last:
        magic, length = begin(data, at)
        if magic != _BLOCK_MAGIC or not BLOCK_HEADER_LENGTH <= length <= LONGEST_BLOCK:
            break
        places.append(at)
        at += length
    if places and at > size:
        places.pop()
    starts = np.array(places, np.int64)
    every = np.frombuffer(data, np.uint8)
    rows = every[starts[:, None] + np.arange(BLOCK_HEADER_LENGTH)] if places else _NO_HEADER
    fields = rows.view(_HEADER_TYPE)[:, 0]
    columns = [fields[name].astype(np.int64) for name in _HEADER_TYPE.names or () if name[0] != "_"]
    length, *rest = columns
    found = Blocks(starts, starts + length, *rest)
    lost = found.flags == LOST
    right = (lost & (length == BLOCK_HEADER_LENGTH) & (found.records == 0)) | (
        (found.flags <= SELECTED)
        & (found.records > 0)
        & (found.records <= found.messages)
        & (found.bodies <= found.end)
    )
    right &= found.messages > 0
    return found if right.all() else found.part(0, int(np.argmin(right)))


def whole(data: Bytes, blocks: Blocks) -> npt.NDArray[np.bool_]:
    """Return of which blocks all bytes are the right ones."""
    view = memoryview(data)
    begins, ends = (blocks.at + _BEHIND_CRC).tolist(), blocks.end.tolist()
    crcs = [crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)]
    right: npt.NDArray[np.bool_] = np.array(crcs, np.int64) == blocks.crc
    return right


def is_torn(data: Bytes, at: int, segment: int | None) -> bool:
    """Whether no whole block of the segment (None: of any) is in the data from ``at`` on."""
    rest = bytes(memoryview(data)[at:])
    found = rest.find(_BLOCK_MAGIC)
    while found >= 0:
        block = take_headers(rest[found : found + LONGEST_BLOCK]).part(0, 1)
        ours = len(block) and segment in (None, block.segment[0])
        if ours and whole(rest[found:], block).all():
            return False
        found = rest.find(_BLOCK_MAGIC, found + 1)
    return True


def take_blocks(data: bytes, slice: Slice) -> Blocks:
    """Return the blocks of ``data``, the bytes of ``slice``, all of them whole.

    Raises ``JournalError`` with file and offset for corruption. A torn tail is ignored where the
    slice may have one: in the last segment, or after the last message before the next segment.
    """
    blocks = take_headers(data)
    segment = slice.segment
    if segment is None and len(blocks):
        segment = int(blocks.segment[0])
    if slice.until is not None:  # what is torn behind it is another's
        beyond = (blocks.first >= slice.until) & ((blocks.flags & SELECTED) == 0)
        if beyond.any():
            blocks = blocks.part(0, int(np.argmax(beyond)))
    right = whole(data, blocks) & (blocks.segment == segment)
    if not right.all():
        blocks = blocks.part(0, int(np.argmin(right)))
    end = int(blocks.end[-1]) if len(blocks) else 0
    selected = bool(len(blocks)) and bool(blocks.flags[0] & SELECTED)
    if not selected:
        expected = np.concatenate(([slice.first], blocks.next[:-1]))[: len(blocks)]
        wrong = np.flatnonzero(expected != blocks.first)
        if len(wrong):
            number = int(wrong[0])
            what = f"message {blocks.first[number]} where message {expected[number]} was expected"
            raise corrupt(slice.file, slice.start + int(blocks.at[number]), what)
    number = int(blocks.next[-1]) if len(blocks) else slice.first
    if selected and end == len(data):
        return blocks
    if slice.until is None:
        if end < len(data) and not is_torn(data, end, segment):
            raise corrupt(slice.file, slice.start + end, _fault(data, end, segment))
    elif number > slice.until:
        at = int(blocks.at[-1])
        what = f"its messages reach beyond {slice.until}, where the next segment begins"
        raise corrupt(slice.file, slice.start + at, what)
    elif number < slice.until and len(data):
        if end < len(data):
            raise corrupt(slice.file, slice.start + end, _fault(data, end, segment))
        what = f"it ends before message {number}, but what follows begins with {slice.until}"
        raise corrupt(slice.file, slice.start + end, what)
    return blocks


def _fault(data: bytes, at: int, segment: int | None) -> str:
    """Return why no right block begins at ``at``."""
    block = take_headers(data, at).part(0, 1)
    if not len(block):
        short = len(data) - at < BLOCK_HEADER_LENGTH or data[at : at + 4] == _BLOCK_MAGIC
        return "a block is cut short" if short else "no block begins here"
    return "bad CRC" if block.segment[0] == segment else "a block is of another segment"
