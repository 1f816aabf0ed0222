"""How far a long copy is, on stderr."""

import sys
import time
from collections.abc import Callable

import click

_EVERY_S = 10.0  # a line, in a log
_ON_TERMINAL_S = 0.2
_MIB = 1024 * 1024


def _echo(text: str) -> None:
    click.echo(text, nl=False, err=True)


class Progress:
    """Tells bytes of ``total`` (0: unknown): on a terminal in one line that changes, in a log by a
    line every ten seconds, so that nothing is said of what is done at once."""

    def __init__(
        self,
        what: str,
        total: int,
        *,
        terminal: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        write: Callable[[str], None] = _echo,
    ) -> None:
        """``terminal`` None: whether stderr is one. ``clock`` is in seconds."""
        self.done = 0
        self._what = what
        self._total = total
        self._terminal = bool(sys.stderr and sys.stderr.isatty()) if terminal is None else terminal
        self._clock = clock
        self._write = write
        self._began = clock()
        self._every_s = _ON_TERMINAL_S if self._terminal else _EVERY_S
        self._next = self._began + self._every_s
        self._width = 0  # of the line that is on the terminal

    def add(self, size: int) -> None:
        """So many more bytes are copied."""
        self.done += size
        now = self._clock()
        if now < self._next:
            return
        self._next = now + self._every_s
        text = self._text(now)
        if self._terminal:
            self._write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._write(text + "\n")

    def end(self) -> None:
        """Leave the terminal's line to whoever comes next."""
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _text(self, now: float) -> str:
        rate = self.done / max(now - self._began, 1e-6) / _MIB
        of = f" of {self._total / _MIB:,.0f}" if self._total else ""
        share = f" ({100 * self.done // self._total} %)" if self._total else ""
        return f"{self._what}: {self.done / _MIB:,.0f}{of} MiB{share}, {rate:,.0f} MiB/s"
