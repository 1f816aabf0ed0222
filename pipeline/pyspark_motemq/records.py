"""The bytes of a journal segment as records (docs/journal.md, format version 1); no files here."""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass

try:
    from isal.isal_zlib import crc32  # twenty times as fast
except ImportError:  # an executor without it
    from zlib import crc32

HEADER_LENGTH = 40
LONGEST_RECORD = 16 * 1024 * 1024 + 64 * 1024  # docs/journal.md, Reading
PREFIX_LENGTH = 8  # length and CRC fields of a record
SHORTEST_RECORD = 36  # with these, and without any body

_MAGIC = b"MOTEJRNL"
_VERSION = 1
_FMQP_PACKETS = 1  # the one encoding of a body that version 1 has
_HEADER = struct.Struct(">8sHHIQQII")
_HEADER_CRC_COVERS = 36
_PREFIX = struct.Struct(">II")
_FIXED = struct.Struct(">QQIIBBH")


class JournalError(Exception):
    """A journal that cannot be read: the text names the file, the offset and the rule."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of one segment file, from one record boundary to another.

    ``until`` is the sequence number at which it must end, None where only the end of the file
    tells: in the last segment of a partition, where a torn tail is ignored. ``run`` tells the
    broker's starts apart. Of its messages ``low`` to ``high`` - 1 are wanted (None: to the end).
    """

    file: str
    partition: int
    run: int
    start: int
    end: int
    first_sequence: int
    until: int | None
    low: int = 0
    high: int | None = None


@dataclass(slots=True)  # not frozen: that costs a microsecond, and a record may be one message
class Record:
    """One run of publications: ``count`` FMQP packets at ``body_start`` .. ``body_end``."""

    offset: int  # in the file, for messages
    time_ns: int
    sequence: int
    count: int
    connection: int
    protocol: int
    client: str
    body_start: int
    body_end: int


def corrupt(file: str, offset: int, what: str) -> JournalError:
    """Return the error for a bad byte, in words a stranger can act on."""
    return JournalError(
        f"the journal is corrupt: {file}, offset {offset}: {what}; restore the file from a copy, "
        "or move it and all later segments of its partition away and run again"
    )


def check_header(header: bytes, file: str, partition: int, first_sequence: int) -> int:
    """Return the broker's run of a segment that begins with these 40 bytes (Segment header).

    Raises ``JournalError`` unless they are the header of this segment.
    """
    magic, version, _, in_partition, sequence, _, run, crc = _HEADER.unpack(header)
    if magic != _MAGIC:
        raise corrupt(file, 0, "not a journal segment (it does not begin with MOTEJRNL)")
    if crc != crc32(header[:_HEADER_CRC_COVERS]):
        raise corrupt(file, _HEADER_CRC_COVERS, "bad CRC of the segment header")
    if version != _VERSION:
        raise JournalError(
            f"{file} has journal format version {version}, this reader knows version {_VERSION}; "
            "read it with the version of MoteMQ that wrote it, or a newer one"
        )
    if (in_partition, sequence) != (partition, first_sequence):
        raise corrupt(
            file,
            12,
            f"its header says partition {in_partition}, message {sequence}, "
            f"its name says partition {partition}, message {first_sequence}",
        )
    return int(run)


def record_end(prefix: bytes, offset: int) -> int | None:
    """Return where a record ends by its first 8 bytes, None if its length cannot be right."""
    length, _ = _PREFIX.unpack(prefix)
    if not _FIXED.size <= length <= LONGEST_RECORD:
        return None
    return int(offset + PREFIX_LENGTH + length)


def sequence_at(data: bytes) -> int:
    """Return the first sequence number of a record from its first 24 bytes (not yet checked)."""
    return int.from_bytes(data[16:24], "big")


def record_facts(data: bytes | mmap.mmap, at: int) -> tuple[int, int, int]:
    """Return time (ns), first message and count of the record at ``at`` (not yet checked)."""
    time_ns, sequence, count, *_ = _FIXED.unpack_from(data, at + PREFIX_LENGTH)
    return time_ns, sequence, count


def take_records(data: bytes, stretch: Stretch) -> Iterator[Record]:
    """Yield the records of ``data``, the bytes of ``stretch``.

    Raises ``JournalError`` with file and offset for corruption. A torn tail is ignored where the
    stretch may have one: in the last segment, or after the last message before the next segment.
    """
    position, sequence = 0, stretch.first_sequence
    view = memoryview(data)
    clients: dict[bytes, str] = {}
    while sequence != stretch.until and position < len(data):
        offset = stretch.start + position
        if position + PREFIX_LENGTH > len(data):
            _end_torn(stretch, offset, "it is cut short in its first 8 bytes")
            return
        length, crc = _PREFIX.unpack_from(data, position)
        if not _FIXED.size <= length <= LONGEST_RECORD:
            what = f"length {length} is not {_FIXED.size} .. {LONGEST_RECORD}"
            raise corrupt(stretch.file, offset, what)
        end = position + PREFIX_LENGTH + length
        if end > len(data):
            _end_torn(stretch, offset, f"it is cut short ({end - len(data)} bytes are missing)")
            return
        if crc32(view[position + PREFIX_LENGTH : end]) != crc:
            if end < len(data):
                raise corrupt(stretch.file, offset, "bad CRC")
            _end_torn(stretch, offset, "bad CRC")
            return
        record = _take_fields(data, position, end, stretch, clients)
        if record.sequence != sequence:
            what = f"message {record.sequence} where message {sequence} was expected"
            raise corrupt(stretch.file, offset, what)
        yield record
        sequence += record.count
        position = end
        if stretch.until is not None and sequence > stretch.until:
            what = f"count {record.count} reaches beyond message {stretch.until} of what follows"
            raise corrupt(stretch.file, offset, what)
    if stretch.until is not None and sequence != stretch.until:
        raise corrupt(
            stretch.file,
            stretch.start + position,
            f"it ends before message {sequence}, but what follows begins with {stretch.until}",
        )


def _end_torn(stretch: Stretch, offset: int, what: str) -> None:
    if stretch.until is not None:
        raise corrupt(stretch.file, offset, f"{what}, and it is not the partition's last record")


def _take_fields(
    data: bytes, position: int, end: int, stretch: Stretch, clients: dict[bytes, str]
) -> Record:
    """Return the record at ``position``; ``clients`` are the names met so far, by their bytes."""
    offset = stretch.start + position
    time_ns, sequence, count, connection, protocol, encoding, client_length = _FIXED.unpack_from(
        data, position + PREFIX_LENGTH
    )
    client_start = position + PREFIX_LENGTH + _FIXED.size
    body_start = client_start + client_length
    if body_start > end:
        raise corrupt(stretch.file, offset, f"client_length {client_length} exceeds the record")
    if count < 1:
        raise corrupt(stretch.file, offset, "count 0")
    if encoding != _FMQP_PACKETS:
        raise corrupt(stretch.file, offset, f"encoding {encoding} of the body is not known")
    name = data[client_start:body_start]
    client = clients.get(name)
    if client is None:
        client = clients[name] = name.decode("utf-8", "backslashreplace")
    return Record(offset, time_ns, sequence, count, connection, protocol, client, body_start, end)
