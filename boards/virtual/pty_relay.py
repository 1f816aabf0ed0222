"""A board's console as a pseudo-terminal that stays while the board resets.

The board's end is a socket; programs open ``/dev/pts/N``. The relay keeps the terminal open
itself, raw and without echo, so that closing it or resetting the board changes nothing for the
next program. A console that nobody reads is drained, like a closed terminal window: output waits
for a moment, then is dropped until somebody reads again. Who has it open may take longer: the
terminal says that it was read only every some 4 KB, and mpremote reads byte by byte.
"""

import os
import select
import selectors
import socket
import tty

from boards.port_users import times_open

_CHUNK_BYTES = 16 * 1024
_MAX_HELD_BYTES = 16 * 1024  # mpremote reads some 50 KB a second from a terminal
_UNREAD_S = 0.5  # while nobody has it open
_UNREAD_OPEN_S = 10.0  # 4 KB at 1/100 of mpremote's pace


class PtyRelay:
    """Moves bytes between ``board`` and a new pty; its owner runs the selector.

    ``selector`` keys of the relay carry a callable as data; the owner calls it with the ready
    events. ``tick`` is to be called now and then with the time in seconds.
    """

    def __init__(self, selector: selectors.BaseSelector, board: socket.socket) -> None:
        self._selector = selector
        self._board = board
        board.setblocking(False)
        self._master, self._slave = os.openpty()
        tty.setraw(self._slave)
        os.set_blocking(self._master, False)
        self._to_pty = bytearray()
        self._to_board = bytearray()
        self._stuck_since: float | None = None
        self._dropping = False
        self._masks: dict[int, int] = {}
        self._watch()

    @property
    def path(self) -> str:
        """The terminal's name, ``/dev/pts/N``; mpremote knows ptys by this prefix."""
        return os.ttyname(self._slave)

    def close(self) -> None:
        """Take the terminal away; programs that have it open see an end of file."""
        for descriptor, mask in self._masks.items():
            if mask:
                self._selector.unregister(descriptor)
        self._masks.clear()
        self._board.close()
        os.close(self._master)
        os.close(self._slave)

    def tick(self, now: float) -> None:
        """Notice that nobody reads the console."""
        self._flush_pty()  # see _is_writable
        if not self._to_pty:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif self._is_unread(now - self._stuck_since):
            self._dropping = True
            self._to_pty.clear()
        self._watch()

    def _is_unread(self, stuck_s: float) -> bool:
        if stuck_s < _UNREAD_S:
            return False
        return stuck_s >= _UNREAD_OPEN_S or times_open(self.path) < 2  # we are one of them

    def _on_board(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            try:
                data = self._board.recv(_CHUNK_BYTES)
            except (BlockingIOError, ConnectionError):
                data = b""  # an emulator that ended is its owner's to notice
            if self._dropping and self._is_writable():
                self._dropping = False
            if not self._dropping:
                self._to_pty += data
                self._flush_pty()
        if events & selectors.EVENT_WRITE:
            self._flush_board()
        self._watch()

    def _on_pty(self, events: int) -> None:
        if events & selectors.EVENT_READ:
            try:
                self._to_board += os.read(self._master, _CHUNK_BYTES)
            except BlockingIOError:
                return
            self._flush_board()
        if events & selectors.EVENT_WRITE:
            self._dropping = False
            self._flush_pty()
        self._watch()

    def _is_writable(self) -> bool:
        # Not by the selector: a program that flushes its input on opening, as pyserial does,
        # makes room without waking it, and would wait for ever for what we go on dropping.
        return bool(select.select([], [self._master], [], 0)[1])

    def _flush_pty(self) -> None:
        try:
            while self._to_pty:
                sent = os.write(self._master, self._to_pty)
                del self._to_pty[:sent]
                self._stuck_since = None
        except BlockingIOError:
            return  # EVENT_WRITE will tell

    def _flush_board(self) -> None:
        try:
            while self._to_board:
                sent = self._board.send(self._to_board)
                del self._to_board[:sent]
        except BlockingIOError:
            return  # EVENT_WRITE will tell
        except ConnectionError:
            self._to_board.clear()  # the board's process has ended

    def _watch(self) -> None:
        read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
        board = (read if len(self._to_pty) < _MAX_HELD_BYTES else 0) | (
            write if self._to_board else 0
        )
        pty = (read if len(self._to_board) < _MAX_HELD_BYTES else 0) | (
            write if self._to_pty or self._dropping else 0
        )
        self._set(self._board.fileno(), board, self._on_board)
        self._set(self._master, pty, self._on_pty)

    def _set(self, descriptor: int, mask: int, handler: object) -> None:
        if self._masks.get(descriptor, 0) == mask:
            return
        if not self._masks.get(descriptor):
            self._selector.register(descriptor, mask, handler)
        elif not mask:
            self._selector.unregister(descriptor)
        else:
            self._selector.modify(descriptor, mask, handler)
        self._masks[descriptor] = mask
