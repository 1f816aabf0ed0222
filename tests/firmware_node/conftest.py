"""A real broker, and a board that is the unix port with what the rig would install."""

import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from host_broker.client import Client, connect
from tests.firmware_node.board import AgentProcess, Board
from tests.host_broker.net import broker_process


@dataclass(frozen=True)
class BrokerPorts:
    """Where the broker listens on 127.0.0.1."""

    fmqp: int
    lightmq: int

    def observer(self) -> Client:
        """Return a connected client that is not the code under test."""
        client = connect(f"fmqp://127.0.0.1:{self.fmqp}")
        return client


@pytest.fixture
def board(unix_port: Path, board_files: Path, tmp_path: Path) -> Board:
    folder = tmp_path / "board"
    shutil.copytree(board_files, folder)
    return Board([str(unix_port), "-X", "heapsize=160k"], folder)


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerPorts]:
    with broker_process.broker() as running:
        yield BrokerPorts(**running.ports)


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that refuses: bound, and nobody listens."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield closed.getsockname()[1]


@pytest.fixture
def fmqp_board(board: Board, broker: BrokerPorts) -> Board:
    board.configure(
        board="b1",
        protocol="fmqp",
        transport="tcp",
        host="127.0.0.1",
        port=broker.fmqp,
        autostart=True,
    )
    return board


@pytest.fixture
def lightmq_board(board: Board, broker: BrokerPorts) -> Board:
    board.configure(
        board="b2",
        protocol="lightmq",
        transport="tcp",
        host="127.0.0.1",
        port=broker.lightmq,
        autostart=True,
    )
    return board


@pytest.fixture
def fmqp_agent(fmqp_board: Board) -> Iterator[AgentProcess]:
    with AgentProcess(fmqp_board) as agent:
        yield agent


@pytest.fixture
def lightmq_agent(lightmq_board: Board) -> Iterator[AgentProcess]:
    with AgentProcess(lightmq_board) as agent:
        yield agent
