"""The HTTP site, loaded when somebody asks for it: most brokers are never asked.

To import it takes a fifth of a second and some memory; so it is imported by a thread, and who came
first waits for it.
"""

import asyncio
import importlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

from host_broker.net.listening.slots import Evicted

if TYPE_CHECKING:
    from host_broker.net.http.site import Site

_log = logging.getLogger(__name__)
_MODULE = "host_broker.net.http.site"


class LateSite:
    """What a ``Site`` does, from the first client on, or from ``load``."""

    def __init__(self, start: Callable[[], Awaitable["Site"]]) -> None:
        """``start`` makes the site, when its modules are there."""
        self._start = start
        self._site: Site | None = None
        self._loading: asyncio.Task[Site | None] | None = None

    async def load(self) -> None:
        """Have it now. Raises what making it raises."""
        await asyncio.to_thread(importlib.import_module, _MODULE)
        self._site = await self._start()

    def protocol(self) -> asyncio.Protocol:
        """Return the asyncio protocol of a new client."""
        return self._site.protocol() if self._site is not None else _Waiting(self)

    def evict_idle(self) -> Evicted:
        """End the client that is there for longest of those who ask nothing."""
        return self._site.evict_idle() if self._site is not None else "nobody"

    async def close(self) -> None:
        """End all connections; answers under way have two seconds."""
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._site is not None:
            await self._site.close()

    async def loaded(self) -> "Site | None":
        """Return the site as soon as it is there; None if it cannot be, of which the log tells."""
        if self._loading is None:
            self._loading = asyncio.create_task(self._load())
        return await asyncio.shield(self._loading)

    async def _load(self) -> "Site | None":
        try:
            await self.load()
        except Exception:
            _log.exception("HTTP cannot be served")
        return self._site


class _Waiting(asyncio.Protocol):
    """A client that came before the site was there; nothing is read from it until it is."""

    def __init__(self, late: LateSite) -> None:
        self._late = late
        self._first = b""  # inside of TLS the beginning has been read already
        self._transport: asyncio.Transport
        self._gone = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.pause_reading()
        self._task = asyncio.create_task(self._hand_over())

    def data_received(self, data: bytes) -> None:
        self._first += data

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True

    async def _hand_over(self) -> None:
        site = await self._late.loaded()
        if self._gone or self._transport.is_closing():
            return
        if site is None:
            self._transport.abort()
            return
        protocol = site.protocol()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._first:
            protocol.data_received(self._first)
        if not self._transport.is_closing():
            self._transport.resume_reading()
