"""A terminal: a pty, and the screen that a person would see behind it."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence

_SEQUENCE = re.compile(rb"\x1b\[([?0-9;]*)([A-Za-z])")
_LOOK_S = 0.2


class Screen:
    """Understands what rich writes: lines, cursor up, erase line, show and hide the cursor."""

    def __init__(self, columns: int) -> None:
        self.lines = [""]
        self.is_cursor_shown = True
        self._columns = columns
        self._row = self._column = 0
        self._pending = b""

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def feed(self, data: bytes) -> None:
        data = self._pending + data
        self._pending = b""
        at = 0
        while at < len(data):
            if data[at] == 0x1B:
                found = _SEQUENCE.match(data, at)
                if found is None:
                    self._pending = data[at:]  # the rest of it comes with the next read
                    return
                self._sequence(found[1].decode(), found[2].decode())
                at = found.end()
                continue
            size = 1 + (data[at] >= 0xC0) + (data[at] >= 0xE0) + (data[at] >= 0xF0)
            if at + size > len(data):
                self._pending = data[at:]
                return
            self._character(data[at : at + size].decode())
            at += size

    def _character(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append("")
        else:
            if self._column == self._columns:  # the line goes on in the next one
                self._character("\r")
                self._character("\n")
            line = self.lines[self._row].ljust(self._column)
            self.lines[self._row] = line[: self._column] + character + line[self._column + 1 :]
            self._column += 1

    def _sequence(self, numbers: str, letter: str) -> None:
        if letter == "A":
            self._row -= int(numbers or 1)
            assert self._row >= 0, "the cursor left the screen"
        elif letter == "K":
            self.lines[self._row] = ""
        elif letter in "hl" and numbers == "?25":
            self.is_cursor_shown = letter == "h"
        else:
            assert letter == "m", f"what is CSI {numbers}{letter}?"


class Terminal:
    """Runs a command on a terminal of so many columns; used in a ``with`` block, it ends there."""

    def __init__(self, command: Sequence[str], *, columns: int, rows: int = 40) -> None:
        self.screen = Screen(columns)
        self.frames: list[str] = []  # what was seen, in the order in which it was
        self._fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        environment |= {"COLUMNS": str(columns), "LINES": str(rows)}
        self._process = subprocess.Popen(
            ["setsid", "--ctty", *command],  # Ctrl-C is for who has the terminal
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_error: object) -> None:
        if self._process.poll() is None:
            self._process.terminate()  # the rig then ends what it started
            self._process.wait(60)
        os.close(self._fd)

    def read_until(self, condition: Callable[[str], bool], timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not condition(self.screen.text):
            assert time.monotonic() < until, f"this was not seen, but:\n{self.screen.text}"
            assert self._read(), f"it ended:\n{self.screen.text}"

    def type(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def wait(self, timeout_s: float) -> int:
        """Read until the command ends, and return its exit code."""
        until = time.monotonic() + timeout_s
        while self._read():
            assert time.monotonic() < until, f"it does not end:\n{self.screen.text}"
        return self._process.wait(max(1.0, until - time.monotonic()))

    def _read(self) -> bool:
        if not select.select([self._fd], [], [], _LOOK_S)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            return False
        self.screen.feed(data)
        self.frames.append(self.screen.text)
        return bool(data)
