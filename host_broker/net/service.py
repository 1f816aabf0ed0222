"""Start the broker, serve until told to stop, stop it in order."""

import asyncio
import functools
import logging
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from host_broker.address import HTTP, Address
from host_broker.broker import Broker
from host_broker.net.busy_poll import busy_poll_s
from host_broker.net.connection import Connection
from host_broker.net.data_dir import DataDir
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.writer import Journal
from host_broker.net.listener import Listener
from host_broker.net.once import Once
from host_broker.net.poller import Poller, event_loop
from host_broker.net.publishing import Publishing
from host_broker.net.retained_store import RetainedStore
from host_broker.net.server import Server
from host_broker.net.slow import Policy
from host_broker.protocols.registry import PROTOCOLS
from host_broker.settings import Settings

if TYPE_CHECKING:
    from host_broker.net.http.site import Site

_log = logging.getLogger(__name__)

_TERMINATE = -1  # instead of an exit code: FMQP's $/signals/terminate

_WRITE_OUT_S = 5.0  # the journal, and the retained messages


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What to serve: where to listen, where to keep data (None: nowhere), which settings."""

    listen: Sequence[Address]
    data: Path | None = None
    settings: Settings = field(default_factory=Settings)
    insecure_bind: bool = False


def serve(options: ServiceOptions, ready: Callable[[list[str]], None]) -> int:
    """Serve until SIGTERM, SIGINT or a signal of FMQP; return the exit code (0; 130 for SIGINT).

    ``ready`` is called once with one ``"PROTOCOL HOST:PORT"`` per listener, when all are open.
    A stop closes the listeners, reads no more, sends what is waiting, runs the wills, sends them,
    closes (each wait at most ``net.drain_s``; a second SIGTERM or SIGINT drops what is waiting),
    and writes journal and retained messages out. ``$/signals/terminate`` only writes out.
    Raises ``ListenError``, ``DataDirError``, ``JournalError`` or ``RetainedStoreError``.
    """
    poller = Poller(busy_poll_s(options.settings.net.busy_poll_us))
    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        return runner.run(_prepare(options, poller, ready))


async def _prepare(
    options: ServiceOptions, poller: Poller, ready: Callable[[list[str]], None]
) -> int:
    settings = options.settings
    listeners: list[Listener] = []
    data: DataDir | None = None
    store: RetainedStore | None = None
    try:
        for address in options.listen:
            listeners.append(Listener(address, settings.net, options.insecure_bind))  # noqa: PERF401 - those made so far are closed if the next fails
        broker = Broker(settings, lambda: random.getrandbits(16), options.data is not None)
        data = DataDir(options.data) if options.data is not None else None
        if data is not None:
            store = RetainedStore(data.retained)
            _restore(broker, store)
        journal = Journal(data.journal, settings.journal) if data else None
        once = Once(data.published if data is not None else None)
        if data is not None:
            once.recover(data.journal)
        return await _serve(listeners, broker, poller, journal, once, store, settings, ready)
    finally:
        for listener in listeners:
            listener.close()
        if store is not None:
            await store.close(_WRITE_OUT_S)
        if data is not None:
            data.release()


async def _serve(
    listeners: list[Listener],
    broker: Broker,
    poller: Poller,
    journal: Journal | None,
    once: Once,
    store: RetainedStore | None,
    settings: Settings,
    ready: Callable[[list[str]], None],
) -> int:
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def stop_now(error: JournalError) -> None:
        if not stop.done():
            stop.set_exception(error)

    def close_listeners(*, all_of_them: bool = True) -> None:
        for listener in listeners:
            if all_of_them or not listener.answers_until_the_end:
                listener.close()

    def asked(code: int) -> None:
        if stop.done():
            server.abort()
        else:
            stop.set_result(code)

    def signalled(kind: str) -> None:
        # R33, R34: from this very message on; the rest when the loop comes to it.
        close_listeners(all_of_them=kind == "terminate")
        if not stop.done():
            stop.set_result(_TERMINATE if kind == "terminate" else 0)

    server = Server(broker, settings.net, poller, journal, store, signalled)
    loop.add_signal_handler(signal.SIGTERM, asked, 0)
    loop.add_signal_handler(signal.SIGINT, asked, 128 + signal.SIGINT)
    if journal is not None:
        journal.start(loop, stop_now, server.journal_drained)
    if store is not None:
        store.start()
    if settings.fmqp.idle_timeout_s:
        server.watch_idleness("fmqp", settings.fmqp.idle_timeout_s)
    site = await _site(listeners, Publishing(server, broker, journal), once, journal, settings)
    speaks = (*PROTOCOLS, "http") if site is not None else PROTOCOLS

    def connection(slow: Policy, protocol: str) -> asyncio.Protocol:
        if protocol == "http" and site is not None:
            return site.protocol()
        return Connection(server, protocol, slow)

    for listener in listeners:
        await listener.start(functools.partial(connection, listener.slow), poller, speaks)
    code = 0
    try:
        ready([str(listener) for listener in listeners])
        code = await stop
        return max(0, code)
    finally:
        if code == _TERMINATE:
            close_listeners()
            await server.terminate()
        else:
            close_listeners(all_of_them=False)
            await server.stop(settings.net.drain_s, close_listeners)
        if site is not None:
            await site.close()
        if journal is not None:
            await journal.close(_WRITE_OUT_S)


async def _site(
    listeners: Sequence[Listener],
    publishing: Publishing,
    once: Once,
    journal: Journal | None,
    settings: Settings,
) -> "Site | None":
    """Serve HTTP if that was asked for, or if there is something to be read."""
    if journal is None and not any(listener.protocol == HTTP for listener in listeners):
        return None
    # Only now: it takes a fifth of a second to import.
    from host_broker.net.http.site import Site

    return await Site.start(settings.http, publishing, once, journal)


def _restore(broker: Broker, store: RetainedStore) -> None:
    try:
        refused = broker.restore(store.entries())
    except ValueError as error:
        raise store.unusable(error) from error
    if refused:
        _log.warning(
            "%d retained messages were not taken back: fmqp.max_cached or fmqp.max_cached_bytes "
            "allows no more",
            refused,
        )
