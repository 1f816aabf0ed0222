"""A NOR flash chip kept in a file: erased to 0xff by sectors, programmed by clearing bits."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

SIZE = 4 * 1024 * 1024
SECTOR = 4096
_STEP = 65536


class FlashError(Exception):
    """An access beyond the end of the flash."""


class Flash:
    """The flash image file ``path``; made blank if it is absent. Used as a context manager."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        # A shorter file (new, or its making was interrupted) is filled up with blank flash.
        size = os.fstat(self._fd).st_size
        while size < SIZE:
            step = min(_STEP, SIZE - size)
            size += os.pwrite(self._fd, b"\xff" * step, size)

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``."""
        self._check(offset, length)
        return os.pread(self._fd, length, offset)

    def program(self, offset: int, data: bytes) -> None:
        """Clear the bits that are 0 in ``data``; only an erase sets bits again."""
        self._check(offset, len(data))
        old = int.from_bytes(os.pread(self._fd, len(data), offset), "little")
        new = old & int.from_bytes(data, "little")
        os.pwrite(self._fd, new.to_bytes(len(data), "little"), offset)

    def write_pages(self, pages: Mapping[int, bytes]) -> None:
        """Erase the sectors that ``pages`` (content by offset) begin, and program them."""
        for sector in sorted({offset - offset % SECTOR for offset in pages}):
            self.erase(sector, SECTOR)
        for offset, page in pages.items():
            self.program(offset, page)

    def erase(self, offset: int, length: int) -> None:
        """Set every sector that the range touches to 0xff."""
        self._check(offset, length)
        start = offset - offset % SECTOR
        end = -(-(offset + length) // SECTOR) * SECTOR
        while start < end:
            step = min(_STEP, end - start)
            os.pwrite(self._fd, b"\xff" * step, start)
            start += step

    def md5(self, offset: int, length: int) -> bytes:
        """Return the MD5 of a range, by which esptool verifies what it wrote."""
        self._check(offset, length)
        digest = hashlib.md5(usedforsecurity=False)
        for start in range(offset, offset + length, _STEP):
            digest.update(self.read(start, min(_STEP, offset + length - start)))
        return digest.digest()

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check(self, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > SIZE:
            raise FlashError(
                f"{length} bytes at {offset:#x} are beyond the flash's {SIZE:#x} bytes"
            )
