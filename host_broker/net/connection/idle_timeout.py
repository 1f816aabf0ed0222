"""Close connections from which nothing has come for long."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from host_broker.net.connection.connection import Connection
from host_broker.outputs import Close, ConnectionId

_AT_ONCE = 256  # connections are looked at, then others have their turn
_LOOKS = 4  # per timeout; a connection lives at most a quarter longer than it may


class IdleTimeout:
    """Looks a few times per timeout which connections were heard: a read costs one assignment.

    A connection that we do not read from, because its receivers are congested, is not idle.
    """

    def __init__(
        self,
        connections: Mapping[ConnectionId, Connection],
        protocol: str,
        timeout_s: float,
        close: Callable[[Close], None],
    ) -> None:
        self._connections = connections
        self._protocol = protocol
        self._timeout_s = timeout_s
        self._close = close
        self._silent: dict[ConnectionId, int] = {}  # looks in a row without a word

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look from now on, as long as the loop runs."""
        loop.call_later(self._timeout_s / _LOOKS, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._look_on(loop, iter(list(self._connections)), {})

    def _look_on(
        self,
        loop: asyncio.AbstractEventLoop,
        rest: Iterator[ConnectionId],
        silent: dict[ConnectionId, int],
    ) -> None:
        """Look at the next of those that were there when this look began."""
        some = list(islice(rest, _AT_ONCE))
        for number in some:
            connection = self._connections.get(number)
            if connection is None or connection.protocol != self._protocol:
                continue
            if connection.heard or connection.on_hold:
                connection.heard = False
                continue
            looks = silent[number] = self._silent.get(number, 0) + 1
            if looks == _LOOKS:
                reason = f"nothing came for {self._timeout_s:g} s (idle_timeout_s)"
                self._close(Close(number, reason, abort=True))
        if some:
            loop.call_soon(self._look_on, loop, rest, silent)
            return
        self._silent = silent
        self.start(loop)
