"""Publications that have a number (docs/http.md, Once), as the journal has them.

All of one request are one record, which names publisher and number as its client. A record is
whole or it is not there, so the journal itself knows what was published, however a broker ended.
"""

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

from host_broker.net.checksum import crc32
from host_broker.net.journal.format import (
    HEADER_LENGTH,
    LONGEST_RECORD,
    PREFIX_LENGTH,
    RECORD_FIXED_LENGTH,
    SEGMENT_SUFFIX,
    take_client,
    take_prefix,
)

Number = tuple[int, int]  # a batch, and a part of it

_FMQP = 1  # the protocol; of LightMQ clients the name is their own
_NAME = re.compile(rb"([A-Za-z0-9._:-]{1,128}) (\d{1,18})\.(\d{1,9})")
_CLOCK_S = 60.0  # a file's time may be off by so much


def name_of(publisher: str, number: Number) -> str:
    """Return the client name of a record."""
    return f"{publisher} {number[0]}.{number[1]}"


def newest(journal: Path, since_s: float) -> Iterator[tuple[str, Number]]:
    """Yield publisher and number of the newest such record of every partition.

    Looks into the last segment, and while it finds none into earlier ones that were written after
    ``since_s`` (s since 1970). Raises ``OSError``.
    """
    for folder in journal.glob("p[0-9]*"):
        segments = sorted(folder.glob("[0-9]*" + SEGMENT_SUFFIX), reverse=True)
        for path in segments:
            if path != segments[0] and path.stat().st_mtime < since_s - _CLOCK_S:
                break
            found = _last(path)
            if found is not None:
                yield found
                break


def _last(path: Path) -> tuple[str, Number] | None:
    found = None
    with path.open("rb") as file:
        file.seek(0, 2)
        if file.tell() <= HEADER_LENGTH:
            return None
        with (
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as data,
        ):
            for at, end in _records(data):
                protocol, client = take_client(data, at)
                match = _NAME.fullmatch(client) if client and protocol == _FMQP else None
                if match and _whole(data, at, end):
                    found = match[1].decode(), (int(match[2]), int(match[3]))
    return found


def _records(data: memoryview) -> Iterator[tuple[int, int]]:
    at = HEADER_LENGTH
    while len(data) - at >= PREFIX_LENGTH + RECORD_FIXED_LENGTH:
        length, _ = take_prefix(data, at)
        end = at + PREFIX_LENGTH + length
        if not RECORD_FIXED_LENGTH <= length <= LONGEST_RECORD or end > len(data):
            return
        yield at, end
        at = end


def _whole(data: memoryview, at: int, end: int) -> bool:
    _, crc = take_prefix(data, at)
    with data[at + PREFIX_LENGTH : end] as counted:
        return crc32(counted) == crc
