"""The bytes of a journal segment, as docs/journal.md says; no files here."""

import sys
import uuid
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from host_broker.net.journal.checksum import crc32, crc32_held
from host_broker.outputs import Buffer

SEGMENT_SUFFIX = ".mjl"
HEADER_LENGTH = 64  # of a segment
BLOCK_HEADER_LENGTH = 48
LONGEST_BLOCK = 32 * 1024 * 1024
BLOCK_MAGIC = b"MBLK"
SELECTED, LOST = 0x0001, 0x0002  # flags of a block
COLUMN_BYTES = 20  # of a record
LENGTH_BYTES = 4  # of a message
PACKETS, WITH_PROPERTIES = 1, 2  # encodings

_MAGIC = b"MOTEJRNL"
_VERSION = 2
_HEADER = Struct("<8sHHIQQ16sIQ")  # the last two: the run of the broker, and 0
_CRC = Struct("<I")
_LENGTH_AND_CRC = Struct("<II")
_BLOCK = Struct("<4sIIHHQQIIII")
_BEHIND_CRC = 12  # of a block: what its CRC covers begins here
_COVERED = Struct("<HHQQIIII")


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What the first 64 bytes of a segment say; ``run`` is 1 to 2**31 - 1, 0 = not known."""

    journal: uuid.UUID
    partition: int
    first: int
    created_ns: int
    run: int = 0

    def pack(self) -> bytes:
        """Return the 64 bytes."""
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            0,
            self.partition,
            self.first,
            self.created_ns,
            self.journal.bytes,
            self.run,
            0,
        )
        return head + _CRC.pack(crc32(head))


@dataclass(frozen=True, slots=True)
class HeaderFault:
    """What is wrong with the beginning of a segment, and which version it says it has (0: none)."""

    text: str
    version: int = 0


def unpack_header(data: bytes, partition: int, first: int) -> SegmentHeader | HeaderFault:
    """Read the header of the segment of ``partition`` whose name is ``first``."""
    if len(data) >= 10 and data[:8] == _MAGIC and data[8:10] == b"\0\1":
        return HeaderFault("it has format version 1", 1)
    if len(data) < HEADER_LENGTH:
        return HeaderFault(f"its header is {len(data)} bytes long instead of {HEADER_LENGTH}")
    magic, version, _, number, sequence, created_ns, journal, run, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        return HeaderFault("it does not begin with MOTEJRNL")
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        return HeaderFault("the CRC of its header is wrong")
    if version != _VERSION:
        return HeaderFault(
            f"it has format version {version}, this program knows version {_VERSION}", version
        )
    if (number, sequence) != (partition, first):
        return HeaderFault(f"its header is of partition {number}, message {sequence}")
    return SegmentHeader(uuid.UUID(bytes=journal), number, sequence, created_ns, run)


def segment_name(first: int) -> str:
    """Return the file name of the segment whose first message has this number."""
    return f"{first:020d}{SEGMENT_SUFFIX}"


@dataclass(slots=True)
class Block:
    """A block's header; ``length`` is that of the whole block, ``segment`` the segment's CRC."""

    length: int
    crc: int
    flags: int
    first: int
    latest_ns: int
    records: int
    messages: int
    clients_length: int
    segment: int

    @property
    def next(self) -> int:
        """The number after its last message."""
        return self.first + self.messages

    @property
    def bodies(self) -> int:
        """Where its bodies begin, counted from its own beginning."""
        return BLOCK_HEADER_LENGTH + columns_length(
            self.records, self.messages, self.clients_length, self.flags
        )


def columns_length(records: int, messages: int, clients_length: int, flags: int = 0) -> int:
    """Return the bytes between the header of a block and its bodies."""
    if flags & LOST:
        return 0
    each = LENGTH_BYTES * (2 if flags & SELECTED else 1)
    return COLUMN_BYTES * records + each * messages + clients_length


def segment_mark(header: bytes) -> int:
    """Return what every block of the segment with this header says: the header's CRC."""
    return int(_CRC.unpack_from(header, HEADER_LENGTH - 4)[0])


def block_header(block: Block, parts: Sequence[Buffer]) -> bytes:
    """Return the 48 bytes of a header; its CRC is that of ``parts``, what follows, and itself."""
    covered = _COVERED.pack(
        block.flags,
        0,
        block.first,
        block.latest_ns,
        block.records,
        block.messages,
        block.clients_length,
        block.segment,
    )
    crc = crc32(covered)
    for part in parts:
        crc = crc32_held(part, crc)
    return BLOCK_MAGIC + _LENGTH_AND_CRC.pack(block.length, crc) + covered


def take_block(data: Buffer, position: int) -> Block | None:
    """Return the header at ``position``; None if what is there is none.

    48 bytes must be there. What follows need not be; ``is_whole`` says whether it is.
    """
    magic, length, crc, flags, _, first, latest_ns, records, messages, clients, segment = (
        _BLOCK.unpack_from(data, position)
    )
    if magic != BLOCK_MAGIC or length > LONGEST_BLOCK or not messages:
        return None
    block = Block(length, crc, flags, first, latest_ns, records, messages, clients, segment)
    if flags & LOST:
        return block if length == BLOCK_HEADER_LENGTH and flags == LOST and not records else None
    if flags & ~SELECTED or not 0 < records <= messages or length < block.bodies:
        return None
    return block


def is_whole(data: memoryview, position: int, block: Block) -> bool:
    """Whether all bytes of the block at ``position`` are there, and are the right ones."""
    end = position + block.length
    if end > len(data):
        return False
    with data[position + _BEHIND_CRC : end] as covered:
        return crc32(covered) == block.crc


def pack_column(column: "array[int]") -> bytes:
    """Return the little-endian bytes of a column."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def take_column(typecode: str, data: memoryview, position: int, count: int) -> "array[int]":
    """Return the ``count`` numbers at ``position``, of this type of the array module."""
    found = array(typecode)
    found.frombytes(data[position : position + found.itemsize * count])
    if sys.byteorder == "big":
        found.byteswap()
    return found
