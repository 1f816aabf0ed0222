"""Checks of a serial line, on an emulated Pico behind the reliable link: right and wrong ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from boards.bridge.bridge import ReliableBridge
from boards.bridge.link_mode import LinkMode
from boards.bridge.reliable_window import SendWindow
from boards.checks.limits import beyond
from boards.checks.registry import CHECKS
from boards.inventory.models import all_models
from boards.repl import Repl
from boards.session.board_session import (
    AgentError,
    BoardSession,
    CheckFailed,
    Invalid,
    start_bridge,
)
from boards.session.installation import copy_node, node_config, stage_node
from boards.session.plan import BoardPlan, Need
from boards.session.serial_log import SerialLog
from boards.virtual.board import VirtualBoard
from boards.virtual.preload import preload
from firmware.build import ensure
from tests.boards.checks.conftest import Calls
from tests.boards.desk_files import desk_board
from tests.boards.rig_process import Broker

_HAS: frozenset[Need] = frozenset({"serial", "reliable", "lossless", "buttons"})


@pytest.fixture(scope="module")
def pico(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualBoard]:
    folder = tmp_path_factory.mktemp("pico")
    preload("rp2040", folder / "s1", ensure("rpi_pico"))
    (folder / "node.json").write_text("{}")
    node = stage_node(folder / "node")
    with VirtualBoard.start("rp2040", "s1", folder / "s1", timeout_s=60) as board:
        url = board.address.serial_url
        copy_node(url, node, folder / "node.json", deadline_s=120, on_line=lambda line: None)
        yield board


@pytest.fixture
def session(pico: VirtualBoard, broker: Broker, tmp_path: Path) -> Iterator[BoardSession]:
    plan = BoardPlan("s1", "virtual-rp2040", "fmqp", has=_HAS)
    host, _, port = broker.fmqp.rpartition(":")
    uart = all_models()["virtual-rp2040"].uart
    assert uart is not None and pico.address.data_url is not None
    bridge = start_bridge(
        pico.address.data_url,
        uart.baud,
        (host, int(port)),
        reliable=True,
        report=lambda _line: None,
    )
    log = SerialLog(tmp_path / "serial.log")
    try:
        with Repl.open(pico.address.serial_url, deadline_s=60, tap=log.tap) as repl:
            config = node_config(plan, uart, (host, int(port)), autostart=False)
            repl.exec(f"with open('/node.json', 'w') as f:\n f.write({config!r})", deadline_s=30)
            made = BoardSession(plan, desk_board(tmp_path, pico), broker.fmqp, log, bridge, repl)
            yield made
            try:
                made.recover()
            finally:
                made.repl.close()
    finally:
        bridge.stop()
        log.close()


def test_noise_on_a_reliable_line_costs_nothing(session: BoardSession) -> None:
    CHECKS["noise_reliable"].run(session)  # raises nothing


def test_a_bridge_that_loses_what_is_beside_noise_fails(
    session: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.checks.noise._ARRIVAL_S", 5.0)
    take = LinkMode.board_sent

    def careless(mode: LinkMode, data: bytes, now: float) -> None:
        before = mode.link.counters.stray_bytes
        take(mode, data, now)
        if mode.link.counters.stray_bytes != before:
            mode.to_broker.clear()

    monkeypatch.setattr(LinkMode, "board_sent", careless)
    with pytest.raises((CheckFailed, AgentError), match=r"the board: |LinkError|OSError"):
        CHECKS["noise_reliable"].run(session)


def test_a_bridge_that_never_resends_fails(
    session: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = SendWindow.due

    def once(window: SendWindow, now: float) -> tuple[int, bytes] | None:
        for kept in window._kept.values():
            kept.order = kept.order or kept.sent_before
        return due(window, now)

    monkeypatch.setattr(SendWindow, "due", once)
    monkeypatch.setattr("boards.checks.noise._TAKE_MS", 5_000)
    with pytest.raises((CheckFailed, AgentError), match=r"the board: |LinkError|OSError"):
        CHECKS["noise_reliable"].run(session)


def test_noise_that_was_not_made_is_no_verdict(session: BoardSession, calls: Calls) -> None:
    def quiet(name: str, arguments: dict[str, Any]) -> None:
        arguments.pop("noise", None)

    calls(quiet)
    with pytest.raises(Invalid, match="the board made noise, but none came through the line"):
        CHECKS["noise_reliable"].run(session)


def test_noise_to_the_board_that_spoils_nothing_is_no_verdict(
    session: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReliableBridge, "make_noise", lambda _self, _data: None)
    with pytest.raises(Invalid, match="none had to be sent again"):
        CHECKS["noise_reliable"].run(session)


def test_a_board_whose_cable_was_pulled_is_back(session: BoardSession) -> None:
    (reconnect,) = CHECKS["reconnect_cable"].run(session)
    assert reconnect.values[0] > 0


def test_a_board_that_does_not_come_back_to_its_cable_fails(
    session: BoardSession, calls: Calls
) -> None:
    def forget(name: str, arguments: dict[str, Any]) -> None:
        if name == "connect":
            arguments["options"]["retry_ms"] = 0

    calls(forget)
    with pytest.raises(CheckFailed, match="was not back in"):
        CHECKS["reconnect_cable"].run(session)


def test_a_cable_that_was_not_pulled_is_no_verdict(
    session: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReliableBridge, "unplug", lambda _self: None)
    with pytest.raises(Invalid, match="the bridge went on without its cable"):
        CHECKS["reconnect_cable"].run(session)


def test_what_the_link_keeps_of_each_length_is_no_leak(
    session: BoardSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What takes an emulated board long, on a busy machine beyond all that a real one needs, is no
    # verdict on it.
    monkeypatch.setattr("boards.checks.streams._STEP_S", 0.3)
    slope, *_ = CHECKS["stream_heap"].run(session)
    assert not beyond(slope.of.limit, {}, slope.values), slope.values
