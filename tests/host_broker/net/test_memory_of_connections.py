"""A connection that has ended is freed at once: the garbage collector need not stop for it."""

import asyncio
import functools
import gc
import socket
import weakref
from collections.abc import Callable

import pytest

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream
from host_broker.net.live_settings import LiveSettings
from host_broker.net.server import Server
from host_broker.settings import Settings

WITHIN_S = 60.0
COUNT = 50

End = Callable[[Connection, socket.socket], None]


def _by_the_peer(_: Connection, peer: socket.socket) -> None:
    peer.close()


def _by_us(connection: Connection, _: socket.socket) -> None:
    connection.close()


def _at_once(connection: Connection, _: socket.socket) -> None:
    connection.transport.abort()


@pytest.mark.parametrize("end", [_by_the_peer, _by_us, _at_once])
def test_an_ended_connection_leaves_nothing_for_the_collector(end: End) -> None:
    poller = Poller()
    alive: weakref.WeakSet[Connection] = weakref.WeakSet()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        settings = Settings()
        server = Server(Broker(settings, journalled=False), LiveSettings(settings), poller, None)
        peers = []
        for _ in range(COUNT):
            ours, peer = socket.socketpair()
            ours.setblocking(False)
            connection = Connection(server, "fmqp")
            Stream(ours, connection, poller, loop).start()
            alive.add(connection)
            peers.append(peer)
            # It hears itself, so that all that delivers was in use.
            peer.settimeout(WITHIN_S)
            peer.sendall(pack(0x80, b"home/*", b"") + pack(0, b"home/a", b"21.5") * 3)
            assert await asyncio.to_thread(peer.recv, 100)
        for connection, peer in zip(sorted(alive, key=lambda each: each.id), peers, strict=True):
            end(connection, peer)
        del connection
        async with asyncio.timeout(WITHIN_S):
            while alive:  # noqa: ASYNC110 - polled, with a deadline: nobody tells us of it
                await asyncio.sleep(0.001)
        for peer in peers:
            peer.close()

    gc.collect()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
            runner.run(main())
    finally:
        gc.enable()
