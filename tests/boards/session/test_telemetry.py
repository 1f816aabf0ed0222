"""The verdict over telemetry that an observer received, and over a board that failed."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from boards.bridge.bridge import RawBridge
from boards.serial_port import SerialPort
from boards.session.board_session import CheckFailed, Invalid, expect_texts
from boards.session.observer import Seen
from boards.session.plan import BoardPlan
from boards.session.serial_log import SerialLog
from boards.session.telemetry import NotDone, await_done, await_telemetry, expect_all
from boards.virtual.board import VirtualBoard
from host_broker.client import connect
from tests.boards.desk_files import desk_board, running_esp32
from tests.boards.rig_job import job_for
from tests.boards.rig_process import Broker
from tests.boards.serial_board import DEADLINE_S, Board, FarEnd, eventually


def _seen(*numbers: int) -> list[Seen]:
    return [Seen("t", json.dumps({"seq": number}), number) for number in numbers]


def test_all_in_order_passes() -> None:
    expect_all(_seen(0, 1, 2, 3), 3)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 1, 3), "got 3 .0 doubled, 1 missing, first .2"),
        ((0, 1, 1, 2, 3), "got 5 .1 doubled, 0 missing"),
        ((0, 2, 1, 3), "in order, got 4"),
        ((), "got 0"),
        ((0, 1, 2, 3, 4), "got 5"),
    ],
)
def test_a_gap_a_double_or_a_swap_fails(numbers: tuple[int, ...], words: str) -> None:
    with pytest.raises(CheckFailed, match=words):
        expect_all(_seen(*numbers), 3)


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"seq": "x"}'])
def test_what_is_no_telemetry_fails(text: str) -> None:
    with pytest.raises(CheckFailed, match=r"not as docs/node\.md says"):
        expect_all([Seen("t", text, 0)], 0)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a"], "missing ..b"),
        (["a", "b", "c"], "unexpected ..c"),
        (["b", "a"], "as they came"),
        (["a", "b", "b"], "got 3"),
    ],
)
def test_expected_texts_must_come_exactly(texts: list[str], words: str) -> None:
    expect_texts(["a", "b"], [Seen("t", text, 0) for text in ("a", "b")])
    with pytest.raises(CheckFailed, match=words):
        expect_texts(["a", "b"], [Seen("t", text, 0) for text in texts])


_CONNECTED = b"node: connected\r\n"
_FAILED = b"node: failed: timeout: uart 1\r\n"


@pytest.fixture
def console() -> Iterator[Board]:
    with closing(Board()) as board:
        yield board


@pytest.fixture
def bridge() -> Iterator[RawBridge]:
    """On a line on which the board has begun a session, and falls silent."""
    broker = FarEnd()
    with (
        broker.listener,
        closing(Board()) as line,
        RawBridge(line.url, 921600, *broker.address, silence_s=3600.0) as bridge,
    ):
        line.send(b"hello")
        with broker.accept():
            eventually(lambda: bridge.counters.sessions == 1)
            yield bridge


def _await(
    console: Board,
    said: bytes,
    bridge: RawBridge | None,
    folder: Path,
    progress: Callable[[str], None] = lambda _line: None,
) -> int:
    log = SerialLog(folder / "serial.log")
    port = SerialPort.open(console.url)
    try:
        console.send(said)
        return await_done(port, time.monotonic() + DEADLINE_S, log, progress, bridge)
    finally:
        port.close()
        log.close()


def _is_held_up(console: Board, bridge: RawBridge) -> Callable[[str], None]:
    """Once it has said that it is connected, the board stands still until the bridge gives up."""

    def stand_still() -> None:
        bridge.silence_s = 0.05
        eventually(lambda: bridge.counters.silences == 1)
        console.send(_FAILED)

    def progress(line: str) -> None:
        if line == "node: connected":
            threading.Thread(target=stand_still).start()

    return progress


def test_a_virtual_board_that_was_held_up_is_no_verdict(
    console: Board, bridge: RawBridge, tmp_path: Path
) -> None:
    progress = _is_held_up(console, bridge)
    with pytest.raises(Invalid, match=r"was silent.*timeout: uart 1.*the rig was too slow"):
        _await(console, _CONNECTED, bridge, tmp_path, progress)


def test_a_real_board_that_was_silent_fails(
    console: Board, bridge: RawBridge, tmp_path: Path
) -> None:
    progress = _is_held_up(console, bridge)
    with pytest.raises(CheckFailed, match=r"the board says .*timeout: uart 1"):
        _await(console, _CONNECTED, None, tmp_path, progress)


def test_a_virtual_board_that_was_never_silent_fails(
    console: Board, bridge: RawBridge, tmp_path: Path
) -> None:
    with pytest.raises(CheckFailed, match=r"the board says .*timeout: uart 1"):
        _await(console, _CONNECTED + _FAILED, bridge, tmp_path)


def test_silence_between_two_tries_to_connect_excuses_nothing(
    console: Board, bridge: RawBridge, tmp_path: Path
) -> None:
    bridge.silence_s = 0.05
    eventually(lambda: bridge.counters.silences == 1)
    for said in (_FAILED, _CONNECTED + _FAILED):
        with pytest.raises(CheckFailed, match=r"the board says .*timeout: uart 1"):
            _await(console, said, bridge, tmp_path)


@pytest.fixture
def esp32(tmp_path: Path) -> Iterator[VirtualBoard]:
    with running_esp32(tmp_path / "b1", "b1") as board:
        yield board


def _never_done(broker: Broker, folder: Path, esp32: VirtualBoard) -> str:
    job = job_for(BoardPlan("b1", "virtual-esp32", "fmqp"), broker, folder)
    log = SerialLog(folder / "serial.log")
    try:
        return await_telemetry(
            *(job, desk_board(folder, esp32), log, None),
            until=time.monotonic() + 3.0,
            progress=str,
        )
    finally:
        log.close()


def test_a_virtual_board_that_still_sends_is_no_verdict(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    """On a machine that is busy an emulated board's minute may take longer than its step."""
    done = threading.Event()

    def send() -> None:
        with connect(f"fmqp://{broker.fmqp}") as client:
            while not done.wait(0.05):
                client.publish("telemetry/b1/x", b'{"seq": 0}')

    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Invalid, match=r"was not done in time; .*; it still sends"):
            _never_done(broker, tmp_path, esp32)
    finally:
        done.set()
        sender.join()


def test_a_virtual_board_that_sends_nothing_is_one(
    broker: Broker, tmp_path: Path, esp32: VirtualBoard
) -> None:
    with pytest.raises(NotDone, match=r"was not done in time"):
        _never_done(broker, tmp_path, esp32)
