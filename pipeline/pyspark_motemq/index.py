"""The index of a closed segment (docs/journal.md, Index): where some of its blocks are."""

import struct
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_HEADER = struct.Struct("<8sHHI16sQQQQQII")
_CRC_BYTES = 4


@dataclass(frozen=True, slots=True)
class Index:
    """Some blocks of a segment: first messages, offsets, latest times up to the next one."""

    next: int
    end: int
    numbers: Numbers
    offsets: Numbers
    times_ns: Numbers


def read_index(segment: Path, partition: int, first: int, size: int) -> Index | None:
    """Return the index beside a segment of ``size`` bytes; None if there is no right one."""
    try:
        data = segment.with_suffix(".mji").read_bytes()
    except FileNotFoundError:
        return None
    if len(data) < _HEADER.size + _CRC_BYTES:
        return None
    covered, crc = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    if int.from_bytes(crc, "little") != crc32(covered):
        return None
    magic, version, mark, of_partition, _, number, following, of_size, end, _, count, _ = (
        _HEADER.unpack_from(data)
    )
    if (magic, version, of_partition, number, of_size) != (b"MOTEINDX", 2, partition, first, size):
        return None
    if len(covered) != _HEADER.size + mark + 24 * count:
        return None
    at = _HEADER.size + mark
    columns = np.frombuffer(covered, "<u8", 3 * count, at).astype(np.int64).reshape(3, count)
    return Index(following, end, *columns)
