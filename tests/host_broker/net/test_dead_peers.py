"""What TCP is told about peers that vanish, read back from sockets the broker has accepted."""

import asyncio
import functools
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from host_broker.address import LISTEN_OPTIONS, parse_address
from host_broker.broker import Broker
from host_broker.net.connection.connection import Connection
from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.listening.handshakes import Handshakes
from host_broker.net.listening.listener import Edge, Listener
from host_broker.net.listening.pending import PendingConnections
from host_broker.net.listening.slots import Slots
from host_broker.net.live_settings import LiveSettings
from host_broker.net.server import Server
from host_broker.settings import NetSettings, Settings

SETTINGS = replace(
    NetSettings(),
    keepalive_idle_s=21.0,
    keepalive_interval_s=7.0,
    user_timeout_s=45.0,
    stalled_receiver_s=40.0,
)


@contextmanager
def accepted(url: str, settings: NetSettings) -> Iterator[socket.socket]:
    """Connect to a listener at ``url``; give the socket at the broker's end."""
    poller = Poller()
    with asyncio.Runner(loop_factory=functools.partial(event_loop, poller)) as runner:

        async def accept() -> Connection:
            live = LiveSettings(Settings(net=settings))
            server = Server(Broker(Settings()), live, poller, None)
            listener = Listener(parse_address(url, LISTEN_OPTIONS), settings, insecure=False)
            made: asyncio.Queue[Connection] = asyncio.Queue()

            def make(protocol: str) -> Connection:
                connection = Connection(server, protocol, listener.slow)
                made.put_nowait(connection)
                return connection

            pending = PendingConnections(live)
            handshakes = Handshakes(live, server.memory)
            edge = Edge(live, poller, Slots(live), pending, handshakes)
            listener.start(make, edge, ("fmqp",))
            port = int(str(listener).rpartition(":")[2])
            client.connect(("127.0.0.1", port))
            connection = await asyncio.wait_for(made.get(), 10)
            listener.close()
            return connection

        with socket.socket() as client:
            connection = runner.run(accept())
            yield connection.transport.get_extra_info("socket")
            connection.transport.abort()
            runner.run(asyncio.sleep(0))


def _option(sock: socket.socket, option: int) -> int:
    return sock.getsockopt(socket.IPPROTO_TCP, option)


def test_silence_is_probed_and_unacknowledged_bytes_are_the_end() -> None:
    with accepted("fmqp://127.0.0.1:0", SETTINGS) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert _option(sock, socket.TCP_NODELAY) == 1
        assert _option(sock, socket.TCP_KEEPIDLE) == 21
        assert _option(sock, socket.TCP_KEEPINTVL) == 7
        assert _option(sock, socket.TCP_KEEPCNT) == 3
        assert _option(sock, socket.TCP_USER_TIMEOUT) == 45_000


def test_a_receiver_that_stalls_is_not_dead_before_its_time() -> None:
    patient = replace(SETTINGS, stalled_receiver_s=60.0)
    with accepted("fmqp://127.0.0.1:0", patient) as sock:
        assert _option(sock, socket.TCP_USER_TIMEOUT) == 60_000


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_a_receiver_that_may_sleep_for_ever_is_only_probed(policy: str) -> None:
    with accepted(f"fmqp://127.0.0.1:0?slow={policy}", SETTINGS) as sock:
        assert _option(sock, socket.TCP_USER_TIMEOUT) == 0
        assert _option(sock, socket.TCP_KEEPIDLE) == 21
