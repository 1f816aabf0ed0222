"""Reads segments of format version 1, to convert them: a record for every read, big-endian.

A segment is a header of 40 bytes and records; a record is ``length(4) CRC-32(4)`` and so many bytes
that the CRC is of: ``time(8) sequence(8) count(4) connection(4) protocol(1) encoding(1)
client_length(2) client body``.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from host_broker.net.journal.assembly import message_lengths
from host_broker.net.journal.checksum import crc32
from host_broker.net.journal.scan import JournalError
from host_broker.outputs import Record

_HEADER = Struct(">8sHHIQQII")
_CRC_COVERS = 36
_PREFIX = Struct(">II")
_FIXED = Struct(">QQIIBBH")
_LONGEST_RECORD = 16 * 1024 * 1024 + 64 * 1024


@dataclass(frozen=True, slots=True)
class OldHeader:
    """What the header of a segment says that is kept."""

    created_ns: int
    run: int


def read_header(path: Path, partition: int) -> OldHeader | None:
    """Return the header of a segment; None if it is torn. Raises ``JournalError``."""
    with path.open("rb") as file:
        data = file.read(_HEADER.size)
    if len(data) < _HEADER.size:
        return None
    magic, version, _, of_partition, first, created_ns, run, crc = _HEADER.unpack(data)
    if magic != b"MOTEJRNL" or version != 1:
        raise JournalError(f"{path} is no segment of a journal of format version 1")
    if crc != crc32(data[:_CRC_COVERS]) or (of_partition, first) != (partition, int(path.stem)):
        raise JournalError(f"the journal is corrupt: {path}, offset 0: its header is wrong")
    return OldHeader(created_ns, run)


def read_records(path: Path, until: int | None) -> Iterator[tuple[int, Record]]:
    """Yield the records of a segment with their times (ns since 1970 UTC).

    ``until``: the first message of the next segment, None: it is the last one, and its tail may be
    torn. Raises ``JournalError`` for corruption, naming file and offset.
    """
    sequence = int(path.stem)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size <= _HEADER.size:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
            position = _HEADER.size
            while position < size and sequence != until:
                what, end = _fault(mapped, position, size)
                if what:
                    if until is None and not end:
                        return
                    raise _corrupt(path, position, what)
                fixed = _FIXED.unpack_from(mapped, position + _PREFIX.size)
                time_ns, first, count, connection, protocol, encoding, client_length = fixed
                client_at = position + _PREFIX.size + _FIXED.size
                body_at = client_at + client_length
                if first != sequence or count < 1 or body_at > end:
                    what = f"a record says message {first}, count {count}; expected {sequence}"
                    raise _corrupt(path, position, what)
                client = mapped[client_at:body_at].decode("utf-8", "replace")
                body = mapped[body_at:end]
                record = Record(connection, protocol, client, count, body, encoding)
                try:
                    message_lengths(record)
                except ValueError as error:
                    raise _corrupt(path, position, str(error)) from error
                yield time_ns, record
                sequence += count
                position = end
    if until is not None and sequence != until:
        raise _corrupt(path, size, f"it ends before message {sequence}, {until} is the next one")


def _fault(data: mmap.mmap, position: int, size: int) -> tuple[str, int]:
    """Return what is wrong with a record, and where it ends; 0 if that may be a torn tail."""
    if size - position < _PREFIX.size:
        return "a record is cut short", 0
    length, crc = _PREFIX.unpack_from(data, position)
    end = position + _PREFIX.size + length
    if not _FIXED.size <= length <= _LONGEST_RECORD:
        rest = data[position:]
        return f"a record cannot be {length} bytes long", position * bool(rest.strip(b"\0"))
    if end > size:
        return "a record is cut short", 0
    with memoryview(data) as view, view[position + _PREFIX.size : end] as covered:
        if crc32(covered) != crc:
            return "the CRC of a record is wrong", 0 if end == size else end
    return "", end


def _corrupt(path: Path, offset: int, what: str) -> JournalError:
    return JournalError(
        f"the journal is corrupt: {path}, offset {offset}: {what}; it is not converted: restore "
        "the file from a copy, or move it and all later segments of its partition away"
    )
