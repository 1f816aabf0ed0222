"""Find where a partition goes on after a restart, by reading its last segment."""

import mmap
from pathlib import Path

from host_broker.net.checksum import crc32
from host_broker.net.journal.format import (
    HEADER_LENGTH,
    LONGEST_RECORD,
    PREFIX_LENGTH,
    RECORD_FIXED_LENGTH,
    SEGMENT_SUFFIX,
    header_complaint,
    take_prefix,
    take_sequence_and_count,
)


class JournalError(Exception):
    """The journal cannot be read or written; the text names the file and says what to do."""


def next_sequence(folder: Path, partition: int) -> int:
    """Return the number the next message of this partition gets: 0 if there is none yet.

    A torn tail (docs/journal.md, Reading) does not count. Raises ``JournalError`` for a corrupt
    segment, naming file and offset; ``OSError`` if it cannot be read.
    """
    segments = sorted(folder.glob("[0-9]*" + SEGMENT_SUFFIX))
    if not segments:
        return 0
    last = segments[-1]
    try:
        first_sequence = int(last.stem)
    except ValueError:
        raise _corrupt(last, 0, "its name is not a message number") from None
    with last.open("rb") as file:
        header = file.read(HEADER_LENGTH)
        complaint = header_complaint(header, partition, first_sequence)
        if complaint:
            raise _corrupt(last, 0, complaint)
        # CRC over a view of the mapped file: no copy of up to 64 MiB.
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            return _walk(last, data, first_sequence)


def _walk(path: Path, data: memoryview, sequence: int) -> int:
    position = HEADER_LENGTH
    while len(data) - position >= PREFIX_LENGTH:
        length, crc = take_prefix(data, position)
        if not RECORD_FIXED_LENGTH <= length <= LONGEST_RECORD:
            raise _corrupt(path, position, f"a record cannot be {length} bytes long")
        end = position + PREFIX_LENGTH + length
        if end > len(data):
            return sequence
        with data[position + PREFIX_LENGTH : end] as counted:
            whole = crc32(counted) == crc
        if not whole:
            if end == len(data):
                return sequence
            raise _corrupt(path, position, "the CRC of a record is wrong")
        first, count = take_sequence_and_count(data, position)
        if first != sequence or count == 0:
            raise _corrupt(
                path, position, f"a record says message {first}, count {count}; expected {sequence}"
            )
        sequence += count
        position = end
    return sequence


def _corrupt(path: Path, offset: int, what: str) -> JournalError:
    return JournalError(
        f"the journal is corrupt: {path}, offset {offset}: {what}; keep it aside and start with "
        "another --data folder"
    )
