"""A board's console in a file, every line with the time at which its first byte came."""

import codecs
import datetime
import io
from pathlib import Path

from host_broker.printable import printable_lines

_LIMIT_BYTES = 4 * 1024 * 1024  # a board in a reset loop must not fill the disk


class SerialLog:
    """Appends what a board says to ``path``, up to 4 MiB; its ``tap`` is for ``SerialPort``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._written = 0
        self._at_line_start = True
        self._decoder = line_decoder()

    def tap(self, data: bytes) -> None:
        """Log bytes that the board sent."""
        for piece in self._decoder.decode(data).splitlines(keepends=True):
            self._put((self._now() if self._at_line_start else "") + printable_lines(piece))
            self._at_line_start = piece.endswith("\n")

    def mark(self, text: str) -> None:
        """Log a line of ours, so that a reader finds the step or check."""
        self._put(("" if self._at_line_start else "\n") + f"{self._now()}---- {text}\n")
        self._at_line_start = True

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _put(self, text: str) -> None:
        if self._written < _LIMIT_BYTES and not self._file.closed:
            self._file.write(text)
            self._file.flush()
            self._written += len(text)

    @staticmethod
    def _now() -> str:
        return f"{datetime.datetime.now(datetime.UTC):%H:%M:%S.%f}"[:-3] + " "


def line_decoder() -> io.IncrementalNewlineDecoder:
    """Return what makes text of a board's bytes, wherever they are cut: each end of line is one."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    return io.IncrementalNewlineDecoder(decoder, translate=True)
