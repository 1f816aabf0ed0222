"""Single keys from the terminal we run in, without waiting for Enter."""

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator


class Keyboard:
    """``pressed`` says what was typed since the last time. Made by ``keyboard``."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def pressed(self, timeout_s: float = 0.0) -> str:
        """Return the characters typed, "" if none is within ``timeout_s``.

        Without a terminal at stdin, or after it hung up, nothing is ever typed.
        """
        if self._file is None:
            select.select([], [], [], timeout_s)
            return ""
        ready, _, _ = select.select([self._file], [], [], timeout_s)
        if not ready:
            return ""
        try:
            typed = os.read(self._file, 64)
        except OSError:
            typed = b""
        if not typed:
            self._file = None
        return typed.decode("ascii", "ignore")


@contextlib.contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys while the block lasts; the terminal is then as it was before.

    Ctrl-Z does nothing meanwhile: the shell would get a terminal without echo and cursor.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        yield Keyboard(None)
        return
    file = sys.stdin.fileno()
    before = termios.tcgetattr(file)
    suspend = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        tty.setcbreak(file, termios.TCSANOW)
        yield Keyboard(file)
    finally:
        termios.tcsetattr(file, termios.TCSADRAIN, before)
        signal.signal(signal.SIGTSTP, suspend)
