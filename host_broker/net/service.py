"""Start the broker, serve until told to stop, stop it in order."""

import asyncio
import logging
import random
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from host_broker.address import Address, host_and_port
from host_broker.broker import Broker
from host_broker.net.connection import Connection
from host_broker.net.data_dir import DataDir
from host_broker.net.journal import Journal
from host_broker.net.journal_scan import JournalError
from host_broker.net.listener import bind
from host_broker.net.server import Server
from host_broker.settings import Settings

_log = logging.getLogger(__name__)

_STOP_DEADLINE_S = 5.0  # for receivers to take what they were sent, wills included
_JOURNAL_DEADLINE_S = 5.0  # to write it out


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """What to serve: where to listen, where to keep data (None: nowhere), which settings."""

    listen: Sequence[Address]
    data: Path | None = None
    settings: Settings = field(default_factory=Settings)
    insecure_bind: bool = False


async def serve(options: ServiceOptions, ready: Callable[[list[str]], None]) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code (0; 130 for SIGINT).

    ``ready`` is called once with one ``"PROTOCOL HOST:PORT"`` per listener, when all are open.
    A stop closes the listeners, reads no more, runs the wills, sends what is waiting (at most
    5 s; a second signal drops it), closes, and writes the journal out (at most 5 s more).
    Raises ``ListenError``, ``DataDirError`` or ``JournalError``.
    """
    sockets: list[tuple[str, socket.socket]] = []
    data = None
    try:
        for address in options.listen:
            listening = bind(address, options.insecure_bind)
            sockets.append((address.protocol, listening))
        data = DataDir(options.data) if options.data is not None else None
        journal = Journal(data.journal, options.settings.journal) if data else None
        return await _serve(sockets, journal, options.settings, ready)
    finally:
        for _, listening in sockets:
            listening.close()
        if data is not None:
            data.release()


async def _serve(
    sockets: list[tuple[str, socket.socket]],
    journal: Journal | None,
    settings: Settings,
    ready: Callable[[list[str]], None],
) -> int:
    loop = asyncio.get_running_loop()
    server = Server(Broker(settings, lambda: random.getrandbits(16)), settings.net, journal)
    stop: asyncio.Future[int] = loop.create_future()

    def stop_now(error: JournalError) -> None:
        if not stop.done():
            stop.set_exception(error)

    def asked(code: int) -> None:
        if stop.done():
            server.abort()
        else:
            stop.set_result(code)

    loop.add_signal_handler(signal.SIGTERM, asked, 0)
    loop.add_signal_handler(signal.SIGINT, asked, 128 + signal.SIGINT)
    if journal is not None:
        journal.start(loop, stop_now, server.journal_drained)
    listeners = [await _listen(loop, server, protocol, sock) for protocol, sock in sockets]
    try:
        ready([_where(protocol, sock) for protocol, sock in sockets])
        return await stop
    finally:
        for listener in listeners:
            listener.close()
        await server.stop(_STOP_DEADLINE_S)
        if journal is not None:
            await journal.close(_JOURNAL_DEADLINE_S)


async def _listen(
    loop: asyncio.AbstractEventLoop, server: Server, protocol: str, sock: socket.socket
) -> asyncio.Server:
    return await loop.create_server(lambda: Connection(server, protocol), sock=sock)


def _where(protocol: str, sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"{protocol} {host_and_port(host, port)}"
