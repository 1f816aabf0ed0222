"""What was written stays in memory only while it is new.

The kernel keeps what is written in its page cache until the machine has no other memory, and takes
fresh pages for what comes next. A virtual machine, which has to get them from its host first, may
need several times longer for that than for the write itself; and on a small one others lose what
they had in the cache. So what is older is put on the disk, and its pages are used again.
"""

import contextlib
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

_PIECE_BYTES = 4 * 1024 * 1024  # of which the kernel is told at once


@dataclass(frozen=True, slots=True)
class _Piece:
    path: Path
    start: int
    length: int


class _Newest:
    """Pieces in the order in which they came: the newest ``keep`` bytes, no whole piece more."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._bytes = 0
        self._pieces: deque[_Piece] = deque()

    def add(self, piece: _Piece) -> list[_Piece]:
        """Take a piece; returns those that are not among the newest any more."""
        self._pieces.append(piece)
        self._bytes += piece.length
        gone: list[_Piece] = []
        while self._bytes - self._pieces[0].length >= self._keep:
            gone.append(self._pieces.popleft())
            self._bytes -= gone[-1].length
        return gone


class WrittenPages:
    """The pages of one partition's files: has the kernel keep the newest ``cached_bytes``.

    0: as the kernel likes. Older pieces are put on the disk, twice as old ones leave the cache. One
    that is on the disk already leaves it at once, so that at least ``cached_bytes`` are there, and
    at most twice as much and two pieces.
    """

    def __init__(self, cached_bytes: int) -> None:
        self._advises = cached_bytes > 0 and hasattr(os, "posix_fadvise")  # macOS has none
        self._new = _Newest(cached_bytes)
        self._old = _Newest(cached_bytes)  # being put on the disk
        self._path: Path | None = None
        self._begun = self._end = 0  # of that file: where the next piece begins, what there is

    def written(self, path: Path, end: int) -> None:
        """A file has so many bytes now; nothing is added any more to the one before it."""
        if not self._advises:
            return
        if path != self._path:
            if self._path is not None and self._end > self._begun:
                self._take(_Piece(self._path, self._begun, self._end - self._begun))
            self._path, self._begun = path, 0
        self._end = end
        while end - self._begun >= _PIECE_BYTES:
            self._take(_Piece(path, self._begun, _PIECE_BYTES))
            self._begun += _PIECE_BYTES

    def _take(self, piece: _Piece) -> None:
        for older in self._new.add(piece):
            _not_needed(older)
            for twice_as_old in self._old.add(older):
                _not_needed(twice_as_old)


def _not_needed(piece: _Piece) -> None:
    """Have the kernel write what is not on the disk yet, and drop what is."""
    # A segment that retention has deleted needs no advice; one that cannot be opened for now, or
    # advice that the file system does not take, costs memory and nothing else.
    with contextlib.suppress(OSError):
        file = os.open(piece.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Whole pages only are dropped; what is behind the last piece of a file is nothing.
            os.posix_fadvise(file, piece.start, _PIECE_BYTES, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)
