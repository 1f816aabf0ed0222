"""Where the FMQP packets of a run begin, found for all of them at once.

A packet's place is known only when the one before it was read, and Python needs half a microsecond
for each. But a packet whose body is shorter than 64 KiB has two zero bytes at a known place. So
every such place is a candidate, and what is right is proven afterwards: each packet must end where
the next begins, from the first byte of the run to its last. A run that cannot be proven (it has
longer bodies, or is corrupt) is read packet by packet.
"""

import struct

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

HEAD_BYTES = 6  # flags, length of the topic, length of the body (4 bytes, the first two often zero)
_LENGTHS = struct.Struct(">BI")
# Finding costs as much as reading so many packets one by one.
_WORTH_FINDING = 32


class Finder:
    """Collects where the packets of runs of ``data`` begin, one run after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._found: list[Places] = []
        self._loose: list[int] = []  # after those: of runs too short for an array

    def take(self, start: int, end: int, count: int) -> bool:
        """Take the run ``data[start:end]``; False unless it is ``count`` whole packets."""
        if count >= _WORTH_FINDING:
            places = _find(self._data, start, end, count)
            if places is not None:
                self._flush()
                self._found.append(places)
                return True
        before = len(self._loose)
        position, last = start, end - HEAD_BYTES
        put, lengths_at = self._loose.append, _LENGTHS.unpack_from
        while position <= last:
            put(position)
            topic, body = lengths_at(self._data, position + 1)
            position += HEAD_BYTES + topic + body
        return position == end and len(self._loose) - before == count

    def places(self) -> Places:
        """Return all places, in the order of the runs."""
        self._flush()
        return np.concatenate(self._found)

    def _flush(self) -> None:
        if self._loose:
            self._found.append(np.array(self._loose, np.int64))
            self._loose = []


def lengths(data: Bytes, at: Places) -> tuple[Places, Places]:
    """Return the lengths of topics and of bodies, in bytes, of the packets that begin ``at``."""
    bodies = data[at + 2].astype(np.int64)
    for byte in (3, 4, 5):
        bodies = bodies << 8 | data[at + byte]
    return data[at + 1].astype(np.int64), bodies


def _find(data: bytes, start: int, end: int, count: int) -> Places | None:
    run = np.frombuffer(data, np.uint8, end - start, start)
    zero = run == 0
    # The candidates, but for what is only the next byte of one: a topic has a length.
    at = np.flatnonzero(zero[2:-3] & zero[3:-2]).astype(np.int64)
    if len(at) < count or at[0] != 0:
        return None
    at = at[np.concatenate(([True], np.diff(at) > 1))]
    topics, bodies = lengths(run, at)
    ends = at + HEAD_BYTES + topics + bodies
    if len(at) > count:  # payloads have zeros too
        chain = _chain(at, ends, count)
        at, ends = at[chain], ends[chain]
    if len(at) == count and ends[-1] == len(run) and np.array_equal(ends[:-1], at[1:]):
        return at + start
    return None


def _chain(at: Places, ends: Places, count: int) -> Places:
    """Return the numbers of at most ``count`` candidates: the first, the one at its end, …"""
    number_of_end = np.searchsorted(at, ends)
    following: list[int] = number_of_end.tolist()
    found = [0]
    number = 0
    for _ in range(count - 1):
        number = following[number]
        if number == len(following):
            break
        found.append(number)
    return np.array(found, np.int64)
