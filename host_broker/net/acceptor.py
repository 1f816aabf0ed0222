"""Accepts plain sockets; asyncio's server does so for those that are TLS from the beginning."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable

_log = logging.getLogger(__name__)

_AT_ONCE = 128  # then others have their turn
_PAUSE_S = 1.0  # when the system has no file or memory left for one more
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts from a listening socket, at once and until ``close``."""

    def __init__(self, listening: socket.socket, take: Callable[[socket.socket], None]) -> None:
        """``take`` is given each socket that came, which does not block."""
        self._listening = listening
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listening.setblocking(False)
        self._resume()

    def close(self) -> None:
        """Accept no more; harmless when closed already."""
        if self._pause is not None:
            self._pause.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                sock, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NOTHING_LEFT:
                    raise
                _log.error("cannot accept a connection, trying again soon: %s", error.strerror)
                self._loop.remove_reader(self._listening)
                self._pause = self._loop.call_later(_PAUSE_S, self._resume)
                return
            sock.setblocking(False)
            self._take(sock)
