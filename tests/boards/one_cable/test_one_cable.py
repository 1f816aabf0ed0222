"""Messages and the REPL over the one cable that a board has: its USB serial, or UART 0.

The boards are a virtual RP2040 (CDC) and a virtual ESP32 (UART); ``motemq bridge`` is a process.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boards.mpremote_cli import copy_to_board
from boards.serial_port import SerialPort
from boards.virtual.address import BoardKind
from boards.virtual.board import VirtualBoard
from boards.virtual.preload import firmware_of, preload
from firmware.build import ensure
from host_broker.client import Client, Message
from tests.client_upy.example_board import fmqp
from tests.host_broker.net.broker_process import BrokerProcess, broker

_S = 60.0
_PATIENCE_S = 5.0  # an emulated board on a busy machine may say nothing for seconds
_COUNT = 100
# All that means something to a REPL, and to the link; and the zeros that end its frames.
_PAYLOADS = [bytes((3, 10, 16, 0, 1, 2, 4, 5, 13, 26, 255)) + b"%d" % n for n in range(_COUNT)]
_MAIN = """
from umotemq.console import Console
from umotemq.fmqp import FmqpClient
from umotemq.reliable import Reliable

client = FmqpClient(Reliable(Console(), 5000), keepalive_ms=500, retry_ms=200, retry_max_ms=400)

def came(topic, payload):
    if payload == b"fail":
        raise ValueError("asked for")
    if payload == b"spin":
        while True:
            pass
    print("got", len(payload))
    client.publish(b"echo", payload)

client.publish(b"status", b"gone", will=True)
client.publish(b"status", b"here", again=True)
client.subscribe(b"to", came)
while True:
    client.poll(100)
"""


@pytest.fixture(scope="module", params=["esp32", "rp2040"])
def board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, board_files: Path
) -> Iterator[VirtualBoard]:
    """A board whose main.py talks over its console."""
    kind: BoardKind = request.param
    folder = tmp_path_factory.mktemp("board")
    preload(kind, folder / "state", ensure(firmware_of(kind)))
    (folder / "main.py").write_text(_MAIN)
    with VirtualBoard.start(kind, "cable", folder / "state") as board:
        copy_to_board(
            board.address.serial_url,
            folders=[board_files / "lib"],
            files=[folder / "main.py"],
            deadline_s=_S,
        )
        yield board


@pytest.fixture(scope="module")
def live() -> Iterator[BrokerProcess]:
    with broker() as running:
        yield running


@pytest.fixture
def desk(live: BrokerProcess) -> Iterator[Client]:
    """A client that hears the board's status and echoes."""
    with fmqp(live.ports["fmqp"]) as client:
        client.subscribe("status")
        client.subscribe("echo")
        client.sync()
        yield client


class _Bridge:
    """A running ``motemq bridge``."""

    def __init__(self, process: "subprocess.Popen[bytes]", console: Path, log: Path) -> None:
        self.process = process
        self.console = console
        self.log = log


@pytest.fixture
def bridge(board: VirtualBoard, live: BrokerProcess, tmp_path: Path) -> Iterator[_Bridge]:
    with _bridge(board, live, tmp_path) as running:
        yield running


@contextlib.contextmanager
def _bridge(board: VirtualBoard, live: BrokerProcess, folder: Path) -> Iterator[_Bridge]:
    console, log = folder / "console", folder / "bridge.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "motemq", "bridge", "--mode", "reliable"),
                *("--serial", board.address.serial_url, "--console", str(console)),
                *("--to", f"fmqp://127.0.0.1:{live.ports['fmqp']}"),
            ],
            stdout=output,
            stderr=output,
        )
    try:
        _eventually(console.exists)
        yield _Bridge(process, console, log)
    finally:
        process.terminate()
        process.wait(20)


def _eventually(what: Callable[[], bool]) -> None:
    until = time.monotonic() + _S
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def _hear(client: Client, topic: str, payload: bytes | None = None) -> Message:
    until = time.monotonic() + _S
    while (left := until - time.monotonic()) > 0:
        message = client.receive(left)
        wanted = payload if payload is not None or message is None else message.payload
        if message is not None and (message.topic, message.payload) == (topic, wanted):
            return message
    raise AssertionError(f"no {topic} {payload!r}")


def _await_program(client: Client) -> None:
    """Wait until the board's program is up and hears: its subscription may come after its word."""
    _hear(client, "status", b"here")
    client.publish("to", b"ready?")
    while (message := client.receive(0.3)) is None or message.payload != b"ready?":
        client.publish("to", b"ready?")


def _mpremote(url: str | Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mpremote", "connect", str(url), *arguments],
        capture_output=True,
        text=True,
        timeout=_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_messages_and_prints_share_the_cable(
    board: VirtualBoard, bridge: _Bridge, desk: Client, say: Callable[[str], None]
) -> None:
    with contextlib.closing(SerialPort.open(str(bridge.console))) as console:
        board.control.reset()
        _await_program(desk)
        began = time.monotonic()
        for payload in _PAYLOADS:
            desk.publish("to", payload)
        printed = b""
        echoes = []
        while len(echoes) < _COUNT:
            message = desk.receive(_S)
            assert message is not None and message.topic == "echo", bridge.log.read_text()
            echoes += [message.payload] if message.payload != b"ready?" else []
            printed += console.read(0)
        took_s = time.monotonic() - began
        assert echoes == _PAYLOADS
        wanted = b"".join(b"got %d\r\n" % len(payload) for payload in _PAYLOADS)
        while not printed.endswith(wanted):
            more = console.read(_S)
            assert more, printed
            printed += more
    say(f"{board.address.kind}: {_COUNT} messages there and back in {took_s:.2f} s")


def test_mpremote_gets_the_prompt_beside_the_bridge_and_the_link_comes_back(
    board: VirtualBoard, bridge: _Bridge, desk: Client
) -> None:
    board.control.reset()
    _await_program(desk)
    for payload in (b"spin", *_PAYLOADS):  # nobody reads, and Ctrl-C must not be behind it all
        desk.publish("to", payload)
    desk.sync()
    began = time.monotonic()
    assert _mpremote(bridge.console, "resume", "exec", "print(6 * 7)").strip() == "42"
    _hear(desk, "status", b"gone")
    assert time.monotonic() - began < _PATIENCE_S + 20
    _mpremote(bridge.console, "resume", "exec", "--no-follow", "import machine; machine.reset()")
    _await_program(desk)


@pytest.mark.parametrize("program", ["idle", "spinning", "talking"])
def test_mpremote_gets_the_prompt_when_the_bridge_was_killed(
    board: VirtualBoard, live: BrokerProcess, desk: Client, tmp_path: Path, program: str
) -> None:
    """By the cable itself: what the link says and has not said yet is no obstacle."""
    board.control.reset()
    with _bridge(board, live, tmp_path) as running:
        _await_program(desk)
        if program == "spinning":
            desk.publish("to", b"spin")
            desk.sync()
        elif program == "talking":
            for payload in _PAYLOADS:
                desk.publish("to", payload)
            _hear(desk, "echo", _PAYLOADS[0])
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait()
        code = "print(6 * 7, __import__('gc').mem_free() > 1000)"
        assert _mpremote(board.address.serial_url, "resume", "exec", code).strip() == "42 True"


def test_a_traceback_is_heard_and_the_will_is_published(
    board: VirtualBoard, bridge: _Bridge, desk: Client
) -> None:
    board.control.reset()
    _await_program(desk)
    desk.publish("to", b"fail")
    _hear(desk, "status", b"gone")
    assert "the board says: ValueError: asked for" in bridge.log.read_text()


def test_a_power_cut_is_noticed_within_the_patience(
    board: VirtualBoard, bridge: _Bridge, desk: Client
) -> None:
    board.control.reset()
    _hear(desk, "status", b"here")
    board.control.power(on=False)
    began = time.monotonic()
    _hear(desk, "status", b"gone")
    assert time.monotonic() - began < _PATIENCE_S + 5
    board.control.power(on=True)
    _hear(desk, "status", b"here")
