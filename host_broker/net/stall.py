"""A receiver that takes too little for too long."""

import asyncio
from collections.abc import Callable

from host_broker.settings import NetSettings


class Stall:
    """Looks at a congested transport until ``cancel``: from its making on, every
    ``net.stalled_receiver_s``.

    ``gave_up`` is told why, once, if it is still above the high mark then, or took nothing since
    the last look.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        settings: NetSettings,
        gave_up: Callable[[str], None],
    ) -> None:
        self._transport = transport
        self._settings = settings
        self._gave_up = gave_up
        self._watch()

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _watch(self) -> None:
        self._bytes = self._transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._settings.stalled_receiver_s, self._look)

    def _look(self) -> None:
        waiting = self._transport.get_write_buffer_size()
        if waiting > self._settings.outbox_high_bytes or waiting >= self._bytes:
            self._gave_up(f"it took too little for {self._settings.stalled_receiver_s:g} s")
        else:
            self._watch()
