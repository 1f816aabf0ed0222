"""MicroPython, a line with faults in real time, a pseudo-terminal, the bridge, TCP, a broker."""

import contextlib
import ctypes
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.client.runs import Device
from benchmarks.link.far_end import FarEnd
from benchmarks.link.real_line import RealLine, real_line
from boards.bridge.bridge import PortSettings, SerialBridge
from boards.bridge.counters import BridgeCounters
from boards.bridge.link_mode import LinkMode
from host_broker.address import Address
from tests.client_upy.example_board import fmqp, received
from tests.host_broker.net.broker_process import broker

_POUR = Path(__file__).parents[4] / "benchmarks/link/device/pour.py"
_NODE = Path(__file__).parent / "device_node.py"
_INTERRUPTED = Path(__file__).parent / "device_interrupted.py"
_BAD = ("--flip", "5e-4", "--lose", "2e-4", "--double", "2e-4", "--noise-every", "0.3")
_TEXT = ("--text-every", "0.5")
_PATIENCE_MS = 4000  # less, and a board that lives is taken for dead on a busy machine
_COUNT = 300
_LIVES = 100  # about one Ctrl-C in ten ends the generator of the link
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def _bridged(line: RealLine, port: int, log: list[str]) -> Iterator[LinkMode]:
    counters = BridgeCounters()
    mode = LinkMode(counters)
    settings = PortSettings(line.serial, 921600)
    with SerialBridge(settings, Address("tcp", "127.0.0.1", port), mode, counters, log.append):
        yield mode


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("faults", [(), _BAD + _TEXT], ids=["clean", "bad"])
def test_a_stream_arrives_as_it_was(
    direction: str,
    faults: tuple[str, ...],
    unix_port: Path,
    board_files: Path,
    say: Callable[[str], None],
) -> None:
    board = Device(unix_port, board_files / "lib", {})
    log: list[str] = []
    with (
        real_line(921600, *faults) as line,
        FarEnd(60_000) as far,
        _bridged(line, far.port, log) as mode,
    ):
        took = board.run("128k", str(_POUR), "tcp", line.port, "reliable", direction, 60_000)
        counters = mode.link.counters
    assert far.wrong == [], log
    assert counters.sessions == 1, log
    if faults:
        assert counters.stray_bytes > 0
    say(f"{direction}, {faults or 'clean'}: {took['bytes'] / took['us'] * 1e3:.1f} kB/s")


@contextlib.contextmanager
def _node(
    unix_port: Path, lib: Path, line: RealLine, script: Path = _NODE
) -> Iterator["subprocess.Popen[str]"]:
    command = [unix_port, "-X", "heapsize=128k", script, str(line.port), str(_PATIENCE_MS)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "MICROPYPATH": f"{lib}:.frozen"},
        preexec_fn=_die_with_parent,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_messages_come_once_and_in_order_on_a_bad_line(unix_port: Path, board_files: Path) -> None:
    log: list[str] = []
    with (
        broker() as running,
        fmqp(running.ports["fmqp"]) as desk,
        real_line(115200, *_BAD, *_TEXT) as line,
        _bridged(line, running.ports["fmqp"], log),
    ):
        desk.subscribe("board/*")
        desk.sync()
        with _node(unix_port, board_files / "lib", line):
            received(desk, "board/status", b"here")
            for number in range(_COUNT):
                desk.publish("board/tell", b"%d" % number)
            said: list[int] = []
            told = False
            while len(said) < _COUNT or not told:
                message = desk.receive(timeout_s=20)
                assert message is not None, (len(said), told, log)
                assert message.topic != "board/status", log  # one session
                told |= message.topic == "board/told"
                if message.topic == "board/said":
                    number = int(message.payload.split()[0])
                    assert len(message.payload.split(b" ")[1]) == number % 90
                    said.append(number)
            assert said == list(range(_COUNT))
    assert any("the board says" in line_ for line_ in log)


def test_a_board_that_dies_is_noticed_in_time_and_one_reset_at_once(
    unix_port: Path, board_files: Path
) -> None:
    log: list[str] = []
    lib = board_files / "lib"
    with (
        broker() as running,
        fmqp(running.ports["fmqp"]) as desk,
        real_line(921600) as line,
        _bridged(line, running.ports["fmqp"], log),
    ):
        desk.subscribe("board/status")
        desk.sync()
        with _node(unix_port, lib, line) as first:
            received(desk, "board/status", b"here")
            first.kill()
            first.wait()
            killed = time.monotonic()
            with _node(unix_port, lib, line):  # a reset: the same board, another life
                received(desk, "board/status", b"gone")
                assert time.monotonic() - killed < _PATIENCE_MS / 1000 - 0.1, log
                received(desk, "board/status", b"here")
            killed = time.monotonic()
            received(desk, "board/status", b"gone")
            took_s = time.monotonic() - killed
    assert _PATIENCE_MS / 1000 * 7 / 8 - 0.2 < took_s < _PATIENCE_MS / 1000 + 2
    said = "\n".join(log)
    assert re.search("the board opened anew", said), said
    assert re.search("the board was silent for 4 s", said), said


def test_ctrl_c_at_any_instant_leaves_a_link_that_opens_again(
    unix_port: Path, board_files: Path
) -> None:
    log: list[str] = []
    instants = random.Random(7)
    with (
        broker() as running,
        fmqp(running.ports["fmqp"]) as desk,
        real_line(921600) as line,
        _bridged(line, running.ports["fmqp"], log),
    ):
        desk.subscribe("board/life")
        desk.sync()
        with _node(unix_port, board_files / "lib", line, _INTERRUPTED) as node:
            for life in range(_LIVES):
                received(desk, "board/life", b"%d" % life)
                time.sleep(instants.uniform(0, 0.02))
                node.send_signal(signal.SIGINT)
            received(desk, "board/life", b"%d" % _LIVES)
