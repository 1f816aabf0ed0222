"""How many connections there may be: of all listeners and kinds together, whatever they have said.

A slot is taken by accepting a socket and given back by closing it, so TLS handshakes, HTTP clients
and those whose protocol is not known yet count like any other.
"""

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Callable
from typing import Literal

from host_broker.net.listening.listen_error import ListenError
from host_broker.net.live_settings import LiveSettings

_log = logging.getLogger(__name__)

_RESERVED_FILES = 8  # for what the broker opens while it runs, e.g. to refuse a connection


# Whether somebody has to go, and if not, whether there is one who will have to soon.
Evicted = Literal["done", "not yet", "nobody"]


class CountedSocket(socket.socket):
    """An accepted socket; its slot is free again when it is closed."""

    __slots__ = ("_slots",)

    def __init__(self, accepted: socket.socket, slots: "Slots") -> None:
        """``accepted`` is taken over."""
        family, kind, proto = accepted.family, accepted.type, accepted.proto
        super().__init__(family, kind, proto, accepted.detach())
        self._slots: Slots | None = slots

    def close(self) -> None:
        """Close it, once."""
        slots, self._slots = self._slots, None
        super().close()
        if slots is not None:
            slots.release()


class Slots:
    """Bounds the connections: ``net.max_connections``, and what the limit of open files allows.

    ``used``: how many there are; ``accepted``, ``refused`` and ``evicted`` count since the start.

    When there are too many, whoever has said nothing yet, or has hung up while it had to wait, has
    to make room for a new connection, in the order of ``evictors``: each ends one. If there is none
    the new connection is refused; when only the files are too few it has to wait until somebody
    leaves.
    """

    def __init__(self, live: LiveSettings, files: int | None = None) -> None:
        """``files``: connections that the limit of open files allows; None: it is no limit."""
        self.used = 0
        self.accepted = self.refused = self.evicted = 0
        self.evictors: list[Callable[[], Evicted]] = []
        self._live = live
        self._files = files
        self._waiting: list[Callable[[], None]] = []
        self._said = False  # that there is no room

    def allow_files(self, reserved: int) -> None:
        """From now on let connections have the files that are left, but for those that the broker
        will need itself; ``reserved`` are those of its data.

        Raises ``ListenError`` if that leaves none for connections.
        """
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return
        needed = len(os.listdir("/proc/self/fd")) + _RESERVED_FILES + reserved
        self._files = soft - needed
        if self._files < 1:
            raise ListenError(
                f"the system allows {soft} open files, and the broker needs {needed} for itself: "
                "raise the limit (ulimit -n)"
            )

    def allow_more_files(self, more: int) -> None:
        """Raise the limit of open files by so many, as far as the system allows."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY or self._files is None:
            return
        raised = soft + more if hard == resource.RLIM_INFINITY else min(soft + more, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        self._files += raised - soft

    def take(self, accepted: socket.socket) -> CountedSocket:
        """Count a socket that was accepted."""
        self.used += 1
        self.accepted += 1
        return CountedSocket(accepted, self)

    def release(self) -> None:
        """Somebody has left."""
        self.used -= 1
        self._said = False
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            asyncio.get_running_loop().call_soon(resume)

    @property
    def free(self) -> bool:
        """Whether there is room without anybody's leaving."""
        return self.used < self.limit

    def room(self) -> Literal["yes", "later", "no"]:
        """Return whether another connection may be accepted; if need be and possible one ends."""
        if self.free:
            return "yes"
        for evict in self.evictors:
            made_room = evict()
            self.evicted += made_room == "done"
            if made_room != "nobody":
                # TLS and HTTP take a moment to close.
                return "yes" if self.free else "later"
        too_many = self.used >= self._live.net.max_connections
        if not self._said:
            self._said = True
            limit = "net.max_connections allows no more"
            if not too_many:
                limit = "the limit of open files allows no more (ulimit -n)"
            what = "refusing connections" if too_many else "connections have to wait"
            _log.warning("%s: %d are open, %s", what, self.used, limit)
        return "no" if too_many else "later"

    @property
    def limit(self) -> int:
        """How many connections there may be now."""
        most = self._live.net.max_connections
        return most if self._files is None else min(most, self._files)

    def call_when_free(self, resume: Callable[[], None]) -> None:
        """Call back once when somebody has left."""
        self._waiting.append(resume)
