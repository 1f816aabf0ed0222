"""A thousand boards of both kinds at one auto port: everything each says and is told arrives.

The boards are raw sockets of this process. Memory is printed; ``-s`` shows it.
"""

import contextlib
import resource
import select
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from host_broker.bus.publication import pack
from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker

BOARDS = 1000  # half of them FMQP, half LightMQ
WITHIN_S = 60.0
MOST_KIB = 25.0  # of the broker's memory, for each
_WILL, _SUBSCRIBE = 0x08, 0x80


@dataclass
class Board:
    """One socket, what it has been sent, and what it must have been."""

    sock: socket.socket
    number: int
    expected: bytes
    got: bytes = field(default=b"")

    @property
    def name(self) -> str:
        return f"b{self.number:04}"

    def answered(self) -> bool:
        return self.got == self.expected


def _fmqp(running: BrokerProcess, number: int) -> Board:
    board = Board(running.raw("auto"), number, pack(0, b"boards/b%04d/set" % number, b"go"))
    topic = f"boards/{board.name}/".encode()
    board.sock.sendall(
        pack(_SUBSCRIBE, topic + b"set", b"")
        + pack(_WILL, topic + b"status", b"offline")
        + pack(0, topic + b"status", b"online")
        + pack(0, topic + b"value", b"%d" % number)
    )
    return board


def _frame(opcode: int, payload: bytes) -> bytes:
    return bytes([opcode]) + len(payload).to_bytes(2, "big") + payload


def _lightmq(running: BrokerProcess, number: int) -> Board:
    # CONNACK, SENDRESP without data; the SEND for "go" has an id of the broker's own choice.
    expected = bytes.fromhex("02000100") + _frame(6, b"\0\x07") + b"\x05\0\5" + b"\0go"
    board = Board(running.raw("auto"), number, expected)
    name = board.name.encode()
    board.sock.sendall(
        _frame(1, bytes([len(name)]) + name) + _frame(5, b"\0\x07\0" + b"%d" % number)
    )
    return board


def _without_id(board: Board) -> bytes:
    """What a LightMQ board got, without the id of the broker's SEND, which may be any.

    Everything before that id has a fixed length; a search for it could find the id itself.
    """
    before = len(board.expected) - len(b"\0go")
    return board.got[:before] + board.got[before + 2 :]


@pytest.fixture
def enough_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, BOARDS + 500)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _heard(observer: Client, wanted: set[tuple[str, bytes]]) -> None:
    """Wait until exactly these messages came, each once."""
    missing = set(wanted)
    deadline = time.monotonic() + WITHIN_S
    while missing:
        message = observer.receive(deadline - time.monotonic())
        assert message is not None, f"{len(missing)} did not come, e.g. {next(iter(missing))}"
        said = (message.topic, message.payload)
        assert said in missing, f"{said} was not to come, or not twice"
        missing.remove(said)


def _listen(boards: list[Board], answered: Callable[[Board], bool]) -> None:
    """Read until every board has what it must get, and no more."""
    waiting = {board.sock.fileno(): board for board in boards if not answered(board)}
    deadline = time.monotonic() + WITHIN_S
    with select.epoll() as poll:
        for fd in waiting:
            poll.register(fd, select.EPOLLIN)
        while waiting:
            left_s = deadline - time.monotonic()
            assert left_s > 0, f"{len(waiting)} boards were not told"
            for fd, _ in poll.poll(left_s):
                board = waiting[fd]
                data = board.sock.recv(4096)
                assert data, f"{board.name} was disconnected"
                board.got += data
                if answered(board):
                    poll.unregister(fd)
                    del waiting[fd]


def test_a_thousand_boards(enough_files: None, say: Callable[[str], None]) -> None:
    with broker("--listen", "auto://127.0.0.1:0") as running, contextlib.ExitStack() as stack:
        observer = connect(running.urls["auto"].replace("auto", "fmqp"), timeout_s=WITHIN_S)
        stack.enter_context(observer)
        for topic in ("status", "value", "up"):
            for kind in ("boards", "lightmq"):
                observer.subscribe(f"{kind}/*/{topic}")
        observer.sync()
        before = running.rss_bytes()
        began = time.monotonic()
        boards = []
        for number in range(BOARDS):
            board = (_fmqp, _lightmq)[number % 2](running, number)
            stack.callback(board.sock.close)
            boards.append(board)
        fmqp, lightmq = boards[::2], boards[1::2]
        up = {(f"boards/{board.name}/status", b"online") for board in fmqp}
        up |= {(f"boards/{board.name}/value", b"%d" % board.number) for board in fmqp}
        up |= {(f"lightmq/{board.name}/status", b"online") for board in lightmq}
        up |= {(f"lightmq/{board.name}/up", b"%d" % board.number) for board in lightmq}
        _heard(observer, up)
        connected_s = time.monotonic() - began
        each_kib = (running.rss_bytes() - before) / 1024 / BOARDS

        for board in fmqp:
            observer.publish(f"boards/{board.name}/set", b"go")
        for board in lightmq:
            observer.publish(f"lightmq/{board.name}/down", b"go")
        _listen(fmqp, Board.answered)
        _listen(lightmq, lambda board: _without_id(board) == board.expected)

        for board in boards:
            if board.number % 4 < 2:  # with RST, the others with FIN
                board.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            board.sock.close()
        gone = {(f"boards/{board.name}/status", b"offline") for board in fmqp}
        gone |= {(f"lightmq/{board.name}/status", b"offline") for board in lightmq}
        _heard(observer, gone)
        assert observer.receive(0.0) is None

        # Presence is retained: who comes now learns it, too.
        late = connect(running.urls["auto"].replace("auto", "fmqp"), timeout_s=WITHIN_S)
        stack.enter_context(late)
        late.subscribe("lightmq/*/status")
        _heard(late, {(f"lightmq/{board.name}/status", b"offline") for board in lightmq})
        say(
            f"{BOARDS} boards connected and heard in {connected_s:.2f} s, "
            f"{each_kib:.1f} KiB of the broker's memory each"
        )
        assert each_kib < MOST_KIB
        assert running.end() == (0, "")
