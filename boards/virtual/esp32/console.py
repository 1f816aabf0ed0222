"""The running interpreter: a process of its own on a pseudo-terminal of ours.

The terminal's other end is open only here and in the process, so that however this process ends,
the kernel hangs up on the interpreter and it ends too.
"""

import contextlib
import fcntl
import os
import selectors
import signal
import struct
import subprocess
import termios
import tty
from collections.abc import Callable, Sequence
from pathlib import Path

_CHUNK_BYTES = 16 * 1024
_MAX_UNREAD_BYTES = 16 * 1024  # then the wire overruns
_TERMINAL_BYTES = 4095  # what it holds; behind it, the kernel does not look for Ctrl-C
_KILLED_S = 5.0
_CTRL_C = b"\x03"


class Console:
    """Runs one program after another on one terminal; its owner runs the selector.

    ``on_output`` is called with what the program prints. ``holds``: so many bytes may be typed and
    not yet read, what comes beyond them is lost. ``selector`` keys carry a callable as
    data, to be called with the ready events.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_output: Callable[[bytes], None],
        holds: int = _TERMINAL_BYTES + _MAX_UNREAD_BYTES,
    ) -> None:
        self._selector = selector
        self._on_output = on_output
        self._holds = holds
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self._unread = bytearray()
        self._paused = False
        self._mask = selectors.EVENT_READ
        self._process: subprocess.Popen[bytes] | None = None
        selector.register(self._master, selectors.EVENT_READ, self._ready)

    def start(
        self,
        argv: Sequence[str],
        cwd: Path,
        inherited: Sequence[int] = (),
        enter: Callable[[], None] = lambda: None,
    ) -> None:
        """Start a program with an environment of its own; the one before has ended.

        ``inherited``: descriptors that it gets, by the same numbers; ``enter`` is called in its
        process before it begins. Raises ``OSError`` if it cannot be run.
        """
        slave = self._slave

        def begin() -> None:
            _begin_session(slave)
            enter()

        self._process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={"MICROPYPATH": ".frozen"},
            pass_fds=inherited,
            preexec_fn=begin,
        )

    def pause(self, paused: bool) -> None:
        """Let the program wait in its next words, or go on. Ctrl-C reaches it all the same."""
        self._paused = paused
        self._watch()

    def write(self, data: bytes) -> None:
        """Type ``data``. What the program does not read in time is lost, but never Ctrl-C."""
        before, ctrl_c, after = data.partition(_CTRL_C)
        if ctrl_c and self._interrupts() and not self._has_room(len(before)):
            # A UART's receiver looks for Ctrl-C even when its buffer is full.
            self.discard_input()
            data = ctrl_c + after
        waiting = self._waiting() + len(self._unread)
        self._unread += data[: max(0, self._holds - waiting)]
        self._flush()

    def discard_input(self) -> None:
        """Forget what was typed and not yet read."""
        self._unread.clear()
        termios.tcflush(self._slave, termios.TCIFLUSH)

    def ended(self) -> int | None:
        """Return the exit code once, when the program has ended by itself; else None."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is None:
            return None
        self._process = None
        self._drain()
        return code

    def kill(self) -> None:
        """End the program and all it started, at once; harmless when there is none."""
        if self._process is None:
            return
        # It may have ended by itself just now; wait() collects it in either case.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_KILLED_S)
        self._process = None
        self.discard_input()
        self._drain()

    def close(self) -> None:
        """End the program and take the terminal away."""
        self.kill()
        if self._mask:
            self._selector.unregister(self._master)
        os.close(self._master)
        os.close(self._slave)

    def _interrupts(self) -> bool:
        """Whether Ctrl-C interrupts the program; else it is a byte like others."""
        return bool(termios.tcgetattr(self._slave)[3] & termios.ISIG)

    def _has_room(self, count: int) -> bool:
        """Whether the kernel would look at what is typed after ``count`` bytes more."""
        return not self._unread and self._waiting() + count < min(_TERMINAL_BYTES, self._holds)

    def _waiting(self) -> int:
        """Return how many bytes the terminal has for the program."""
        waiting: int = struct.unpack("i", fcntl.ioctl(self._slave, termios.FIONREAD, bytes(4)))[0]
        return waiting

    def _ready(self, events: int) -> None:
        if events & selectors.EVENT_WRITE:
            self._flush()
        if events & selectors.EVENT_READ:
            self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._master, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        self._on_output(data)
        return bool(data)

    def _drain(self) -> None:
        """Pass on the last words of a program that has ended."""
        while self._read():
            pass

    def _flush(self) -> None:
        try:
            while self._unread:
                del self._unread[: os.write(self._master, self._unread)]
        except BlockingIOError:
            pass  # the selector will tell
        self._watch()

    def _watch(self) -> None:
        mask = (0 if self._paused else selectors.EVENT_READ) | (
            selectors.EVENT_WRITE if self._unread else 0
        )
        if mask == self._mask:
            return
        if not self._mask:
            self._selector.register(self._master, mask, self._ready)
        elif not mask:
            self._selector.unregister(self._master)
        else:
            self._selector.modify(self._master, mask, self._ready)
        self._mask = mask


def _begin_session(terminal: int) -> None:
    """Give a new process a session that is hung up when we end, also if nohup started us."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.login_tty(terminal)
