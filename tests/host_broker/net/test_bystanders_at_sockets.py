"""The plays of ``properties/bystanders`` at real sockets: other clients notice nothing."""

import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from host_broker.bus.publication import HEADER, pack
from host_broker.protocols.lightmq.codec import Codec
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.properties.bystanders import Play
from tests.host_broker.properties.test_bystanders import LIMITS
from tests.host_broker.properties.traffic import HARD_LIMIT, MAX_BODY

_PATIENCE_S = 20.0
_BOARD = Codec("client")


def _whole(data: bytes) -> bytes:
    """The packets of which all has come."""
    end = position = 0
    while position <= len(data):
        end = position
        if len(data) < position + HEADER.size:
            break
        _, topic_length, body_length = HEADER.unpack_from(data, position)
        position += HEADER.size + topic_length + body_length
    return bytes(data[:end])


class _SocketStage:
    """Plain sockets. Whoever is waited for echoes messages, and leaves a last will."""

    def __init__(self, running: BrokerProcess) -> None:
        self._running = running
        self._sockets: dict[int, socket.socket] = {}
        self._protocols: dict[int, str] = {}
        self._received: dict[int, bytearray] = {}
        self._waited_for: set[int] = set()
        self._echoes = 0
        self._monitor = self.open("fmqp")
        wanted = (b"gone/*", b"lightmq/honest/status")
        self.send(self._monitor, b"".join(pack(0x90, topic, b"") for topic in wanted), done=True)

    def open(self, protocol: str) -> int:
        connection = len(self._protocols) + 1
        self._sockets[connection] = self._running.raw(protocol)
        self._protocols[connection] = protocol
        self._received[connection] = bytearray()
        return connection

    def send(self, connection: int, data: bytes, done: bool) -> None:
        sock = self._sockets[connection]
        if not done:
            # The broker may have hung up: on the hostile, or else it is found at the end.
            with contextlib.suppress(ConnectionError):
                sock.sendall(data)
            return
        self._echoes += 1
        if self._protocols[connection] == "lightmq":
            echo = _BOARD.pong(self._echoes)
            data += _BOARD.ping(self._echoes)
        else:
            topic = b"echo/%d" % connection
            echo = pack(0, topic, b"%d" % self._echoes)
            if connection not in self._waited_for:
                data += pack(0x90, topic, b"") + pack(8, b"gone/%d" % connection, b"x")
            data += echo
        self._waited_for.add(connection)
        sock.sendall(data)
        self._until(connection, lambda received: echo in received)

    def close(self, connection: int) -> None:
        self._sockets.pop(connection).close()
        if connection not in self._waited_for:
            return
        gone = pack(8, b"gone/%d" % connection, b"x")
        if self._protocols[connection] == "lightmq":
            gone = pack(4, b"lightmq/honest/status", b"offline")
        self._until(self._monitor, lambda received: gone in received)

    def got(self, connection: int, enough: Callable[[bytes], bool]) -> bytes:
        return _whole(self._until(connection, lambda received: enough(_whole(received))))

    def end(self) -> None:
        for sock in self._sockets.values():
            sock.close()

    def _until(self, connection: int, enough: Callable[[bytes], bool]) -> bytes:
        received, sock = self._received[connection], self._sockets[connection]
        deadline = time.monotonic() + _PATIENCE_S
        while not enough(bytes(received)):
            sock.settimeout(max(0.001, deadline - time.monotonic()))
            chunk = sock.recv(1 << 20)
            assert chunk, "disconnected"
            received += chunk
        return bytes(received)


_NOBODYS = "only the broker publishes there, for the client itself"


@pytest.mark.parametrize("seed", range(6))
def test_no_other_client_notices(seed: int) -> None:
    """R4, R14 to R30, R43 to R49."""
    settings = [f"--set=fmqp.{key}={value}" for key, value in LIMITS.items()]
    kinds = ("fmqp", "lightmq", "lightmq+fmqp")
    listen = [word for name in kinds for word in ("--listen", f"{name}://127.0.0.1:0")]
    with broker(*listen, *settings) as running:
        stage = _SocketStage(running)
        try:
            assert Play(seed, stage, MAX_BODY, HARD_LIMIT).run(turns=40) > 20
        finally:
            stage.end()
        code, said = running.end()
    assert code == 0
    # Some of what is published at random could mean another client's own path.
    assert all(_NOBODYS in line for line in said.splitlines()), said
