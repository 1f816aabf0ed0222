"""A board's console beside its link, as a pseudo-terminal: for mpremote, a terminal, the rig.

One line carries both: what is no frame of the link comes here, and what is typed here goes to the
board between two frames. Whoever interrupts the board's program ends its session, too; it begins
again with the program.
"""

import contextlib
import os
import sys
from pathlib import Path

from boards.bridge.link_mode import LinkMode
from boards.poll import POLLIN, POLLOUT, Poll

if sys.platform != "win32":
    import tty

_CHUNK = 4096
_UNREAD_LIMIT = 65536  # beyond it the oldest is lost: to wait would hold the messages back, too
_UNREAD_S = 2.0  # nobody reads: what comes is dropped until somebody does


class ConsoleError(Exception):
    """There can be no such terminal; the text says why."""


class ConsoleEnd:
    """The terminal of one port's board. Its owner, the bridge's thread, waits and calls."""

    def __init__(self, mode: LinkMode, name: Path | None = None) -> None:
        """Open the terminal; ``name``: where a link to it is made. Raises ``ConsoleError``."""
        self._mode = mode
        self._name = name
        self._stuck_since: float | None = None
        if sys.platform == "win32":
            raise ConsoleError("a console is a pseudo-terminal, and Windows has none")
        try:
            self._master, self._slave = os.openpty()
        except OSError as error:
            raise ConsoleError(f"no pseudo-terminal for a console: {error.strerror}") from None
        try:
            tty.setraw(self._slave)
            os.set_blocking(self._master, False)
            self.path = os.ttyname(self._slave)
            if name is not None:
                self._link(name)
        except BaseException:
            self._close_both()
            raise
        mode.has_console = True

    @property
    def name(self) -> str:
        """What to open: the link that was asked for, or the terminal itself."""
        return str(self._name or self.path)

    def _link(self, name: Path) -> None:
        if name.is_symlink() and not name.exists():
            name.unlink()  # of a bridge that was killed
        try:
            name.symlink_to(self.path)
        except OSError as error:
            raise ConsoleError(f"console {name}: {error.strerror}; choose another name") from None

    def register(self, poll: Poll) -> None:
        """Have ``poll`` wait for what we wait for."""
        writing = POLLOUT if self._mode.to_console else 0
        poll.register(self._master, POLLIN | writing)

    def serve(self, events: dict[int, int], now: float) -> None:
        """Move what is typed to the board, and what it says to whoever reads."""
        event = events.get(self._master, 0)
        if event & POLLIN:
            with contextlib.suppress(BlockingIOError):
                self._mode.console_sent(os.read(self._master, _CHUNK), now)
        self._flush(now)

    def close(self) -> None:
        """Take the terminal away, and the link to it; harmless when they are gone."""
        if not self._mode.has_console:
            return
        self._mode.has_console = False
        if self._name is not None and self._name.is_symlink():
            ours = os.readlink(self._name) == self.path
            if ours:
                self._name.unlink()
        self._close_both()

    def _close_both(self) -> None:
        os.close(self._master)
        os.close(self._slave)

    def _flush(self, now: float) -> None:
        unread = self._mode.to_console
        try:
            while unread:
                del unread[: os.write(self._master, unread[:_CHUNK])]
                self._stuck_since = None
        except BlockingIOError:
            if self._stuck_since is None:
                self._stuck_since = now
            nobody_reads = now - self._stuck_since >= _UNREAD_S
            del unread[: len(unread) if nobody_reads else max(0, len(unread) - _UNREAD_LIMIT)]
