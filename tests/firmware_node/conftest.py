"""A real broker, and a board that is the unix port with what the rig would install."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from firmware.node_files import compile_node
from host_broker.client import FmqpClient, connect
from tests.firmware_node.board import AgentProcess, Board

_READY_S = 20


@dataclass(frozen=True)
class BrokerPorts:
    """Where the broker listens on 127.0.0.1."""

    fmqp: int
    lightmq: int

    def observer(self) -> FmqpClient:
        """Return a connected client that is not the code under test."""
        client = connect(f"fmqp://127.0.0.1:{self.fmqp}")
        assert isinstance(client, FmqpClient)
        return client


@pytest.fixture(scope="session")
def unix_port() -> Path:
    """MicroPython's unix port; ``MOTEMQ_MICROPYTHON`` names another one than ours."""
    other = os.environ.get("MOTEMQ_MICROPYTHON")
    if other:
        return Path(other)
    import firmware.build

    return firmware.build.ensure("unix")


@pytest.fixture(scope="session")
def board_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("board")
    for file, path in compile_node(out):
        target = out / path.lstrip("/")
        if target != file:
            shutil.copy(file, target)
    return out


@pytest.fixture
def board(unix_port: Path, board_files: Path, tmp_path: Path) -> Board:
    folder = tmp_path / "board"
    shutil.copytree(board_files, folder)
    return Board([str(unix_port), "-X", "heapsize=160k"], folder)


@pytest.fixture(scope="session")
def broker() -> Iterator[BrokerPorts]:
    command = [sys.executable, "-m", "motemq", "broker", "--ephemeral"]
    listen = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"]
    with subprocess.Popen([*command, *listen], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = process.stdout.readline() + process.stdout.readline()
            found = dict(re.findall(r"^listening (\w+) 127\.0\.0\.1:(\d+)$", lines, re.M))
            yield BrokerPorts(int(found["fmqp"]), int(found["lightmq"]))
        finally:
            process.terminate()
            process.wait(timeout=_READY_S)


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
