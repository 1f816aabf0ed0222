"""Accepts connections from a listening socket as long as there is room for them."""

import asyncio
import errno
import logging
import socket
import struct
from collections.abc import Callable

from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.slots import CountedSocket, Slots

_log = logging.getLogger(__name__)

_AT_ONCE = 128  # then others have their turn
_LATER_S = 0.05  # until somebody has to go who has just come
_SOON_S = 0.01  # the same, while the queue is crowded
_PAUSE_S = 1.0  # when the system has no file or memory left for one more
_QUEUED = struct.Struct("=24xII")  # of struct tcp_info (linux/tcp.h): how many wait, at most
_NOTHING_LEFT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """Accepts from a listening socket, at once and until ``close``.

    While there is no room the kernel keeps who comes; when that is because of
    ``net.max_connections`` they are closed at once, since those who are there may stay for days.
    """

    def __init__(
        self,
        listening: socket.socket,
        slots: Slots,
        take: Callable[[CountedSocket], None],
        pending: PendingConnections | None = None,
    ) -> None:
        """``take`` is given each socket that came, which does not block; ``pending``: where it is
        to wait.
        """
        self._listening = listening
        self._slots = slots
        self._take = take
        self._pending = pending
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._closed = False
        listening.setblocking(False)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Accept no more; harmless when closed already."""
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)

    def _resume(self) -> None:
        if self._pause is not None and not self._closed:
            self._pause.cancel()
            self._pause = None
            self._loop.add_reader(self._listening, self._accept)

    def _wait(self, pause_s: float) -> None:
        """Accept nothing for so long, or until somebody has left."""
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(pause_s, self._resume)
        self._slots.call_when_free(self._resume)

    def _accept(self) -> None:
        for number in range(_AT_ONCE):
            if number and not self._slots.free:
                return  # nobody has to make room before it is known that somebody comes
            room = self._slots.room()
            pause_s = _LATER_S
            if room == "yes" and self._pending is not None and not self._pending.make_room():
                crowded = is_crowded(self._listening)
                pause_s = _SOON_S if crowded else _LATER_S
                if not (crowded and self._pending.make_room(crowded=True)):
                    room = "later"
            if room == "later":
                self._wait(pause_s)
                return
            try:
                accepted, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NOTHING_LEFT:
                    raise
                _log.error("cannot accept a connection, trying again soon: %s", error.strerror)
                self._wait(_PAUSE_S)
                return
            if room == "no":
                self._slots.refused += 1
                accepted.close()
                continue
            sock = self._slots.take(accepted)
            sock.setblocking(False)
            self._take(sock)


def is_crowded(listening: socket.socket) -> bool:
    """Whether half of those wait to be accepted who may.

    When all do, the kernel drops the SYN of whoever comes next, who then hears nothing for a
    second. Unix sockets refuse at once.
    """
    if listening.family == socket.AF_UNIX:
        return False
    said = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _QUEUED.size)
    queued, most = _QUEUED.unpack(said)
    return bool(2 * queued >= most)
