"""Who closed its half is sent what was for it, and nothing later, though it leaves step by step."""

import asyncio
import functools
import socket

from host_broker.broker import Broker
from host_broker.bus.publication import pack
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream
from host_broker.net.live_settings import LiveSettings
from host_broker.net.server import Server
from host_broker.settings import Settings

WITHIN_S = 60.0
MANY = 1000
LAST = b"a/%d" % (MANY - 1)


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_comes_after_its_end_is_not_for_it() -> None:
    poller = Poller()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        settings = Settings()
        server = Server(Broker(settings, journalled=False), LiveSettings(settings), poller, None)
        connections, peers = [], []
        for _ in range(2):
            ours, peer = socket.socketpair()
            ours.setblocking(False)
            peer.settimeout(WITHIN_S)
            connections.append(Connection(server, "fmqp"))
            Stream(ours, connections[-1], poller, loop).start()
            peers.append(peer)
        leaving, publishing = connections
        peers[0].sendall(b"".join(pack(0x80, b"a/%d" % number, b"") for number in range(MANY)))
        await _turns()
        server.received(publishing.id, pack(0, LAST, b"before"))
        leaving.eof_received()
        server.received(publishing.id, pack(0, LAST, b"after"))
        leaving.close()
        await _turns()
        got = b""
        while data := peers[0].recv(65536):
            got += data
        assert got == pack(0, LAST, b"before")
        peers[0].close()
        peers[1].close()
        await _turns()

    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:
        runner.run(main())
