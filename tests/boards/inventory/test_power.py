"""Power by each driver, and the reset ladder on boards that hang."""

import contextlib
import os
import pty
import select
import socket
import sys
import threading
import tty
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.flash.target import WrongBoard
from boards.inventory import unresponsive
from boards.inventory.board_file import Power, load_board
from boards.inventory.power import PowerError, switch
from boards.inventory.target import BoardHandle
from boards.repl import NoReply, Repl
from boards.serial_port import PortRefused, SerialPort
from boards.session.reset_ladder import NotBack, admit, bring_back
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import desk_board, running_esp32
from tests.boards.fake_tools import FakeTools
from tests.boards.fault_boards import SilentBoard

_DEAF = """
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeTools:
    return FakeTools(tmp_path / "bin", monkeypatch)


def test_uhubctl_is_told_hub_port_and_action(tools: FakeTools) -> None:
    tools.add("uhubctl", {"-a": (0, "Current status for hub 1-1.2\nNew status for hub 1-1.2")})
    power = Power("uhubctl", hub="1-1.2", port=3)
    for on in (False, True):
        switch(power, on=on)
    where = ["uhubctl", "-f", "-l", "1-1.2", "-p", "3", "-a"]
    assert tools.calls() == [[*where, "off"], [*where, "on"]]


def test_a_hub_that_switches_nothing_is_an_error(tools: FakeTools) -> None:
    tools.add("uhubctl", {"-a": (0, "No compatible devices detected!")})
    with pytest.raises(PowerError, match="switched nothing"):
        switch(Power("uhubctl", hub="9-9", port=1), on=False)


def test_commands_are_run_and_their_failure_told(tools: FakeTools) -> None:
    tools.add("strip", {"3 on": (0, ""), "3 off": (4, "no such strip")})
    power = Power("command", on=("strip", "3", "on"), off=("strip", "3", "off"))
    switch(power, on=True)
    with pytest.raises(PowerError, match="strip: exit code 4: no such strip"):
        switch(power, on=False)
    with pytest.raises(PowerError, match="nowhere is not installed"):
        switch(Power("command", on=("nowhere",), off=("nowhere",)), on=True)
    with pytest.raises(PowerError, match="power: '/tmp': Permission denied"):
        switch(Power("command", on=("/tmp",), off=("/tmp",)), on=True)


def test_a_relay_gets_its_four_bytes() -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    try:
        for on, order in ((True, [0xA0, 2, 1, 0xA3]), (False, [0xA0, 2, 0, 0xA2])):
            switch(Power("relay", serial_url=os.ttyname(slave), port=2), on=on)
            said = b""
            while len(said) < len(order):
                assert select.select([master], [], [], 10)[0]
                said += os.read(master, 100)
            assert said == bytes(order)
    finally:
        os.close(master)
        os.close(slave)


def test_no_driver_says_which_there_are() -> None:
    with pytest.raises(PowerError, match='"uhubctl", "relay" or "command"'):
        switch(Power("none"), on=True)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[VirtualBoard]:
    """A virtual ESP32 that runs MicroPython, flashed by its simulator's own back door."""
    with running_esp32(tmp_path / "b1", "b1") as board:
        yield board


def test_a_board_that_answers_is_not_reset(running: VirtualBoard, tmp_path: Path) -> None:
    board = desk_board(tmp_path, running)
    rungs: list[str] = []
    assert bring_back(board, tap=None, progress=rungs.append).uid == running.address.uid
    assert rungs == []
    assert running.control.state()["boots"] == 1


def test_a_board_that_is_deaf_to_ctrl_c_is_reset_by_its_button(
    running: VirtualBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boards.session.reset_ladder._ASK_S", 1.0)  # it never answers
    repl = Repl.open(running.address.serial_url, deadline_s=60)
    with pytest.raises(NoReply):
        repl.exec(_DEAF, deadline_s=1)
    repl.close(friendly=False)
    board = desk_board(tmp_path, running)
    rungs: list[str] = []
    assert bring_back(board, tap=None, progress=rungs.append).uid == running.address.uid
    assert rungs == ["reset: repl", "reset: control"]
    # An interrupt that comes before its prompt ends the simulator's program: it boots once more.
    assert running.control.state()["boots"] >= 2


def test_another_board_in_its_place_is_left_alone(running: VirtualBoard, tmp_path: Path) -> None:
    board = desk_board(tmp_path, running, identity="0123456789ab")
    with pytest.raises(WrongBoard, match="expected 0123456789ab"):
        bring_back(board, tap=None, progress=str)
    assert running.control.state()["boots"] == 1


def test_a_board_that_does_not_come_back_is_marked_with_each_rung(
    tmp_path: Path, tools: FakeTools, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_ASK_S", "_BACK_S"):
        monkeypatch.setattr(f"boards.session.reset_ladder.{name}", 1.0)
    tools.add("strip", {"": (0, "")})
    with SilentBoard() as silent:
        path = tmp_path / "p.toml"
        path.write_text(
            f'id = "p"\nmodel = "ESP32_GENERIC"\nserial_url = "{silent.url}"\n'
            '[identity]\nmac = "240ac4123456"\n[reset]\norder = ["rts", "power"]\n'
            '[power]\ndriver = "command"\non = ["strip", "on"]\noff = ["strip", "off"]\n'
            "off_s = 0.01"
        )
        board = BoardHandle(load_board(path))
        with pytest.raises(NotBack, match=r"asked: .*no raw REPL.*; rts: .*; power: .*no raw REPL"):
            admit(board, tap=None, progress=str, state_dir=tmp_path)
        assert tools.calls() == [["strip", "off"], ["strip", "on"]]
        with pytest.raises(unresponsive.Unresponsive, match=r"p is wedged since .*power: "):
            admit(board, tap=None, progress=str, state_dir=tmp_path)


def test_a_port_that_somebody_has_taken_meanwhile_is_no_wedged_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of the board then."""
    for name in ("_ASK_S", "_BACK_S"):
        monkeypatch.setattr(f"boards.session.reset_ladder.{name}", 0.5)
    with (
        SilentBoard() as silent,
        socket.create_server(("127.0.0.1", 0)) as switch,
        contextlib.ExitStack() as stack,
    ):
        code = f"import socket; socket.create_connection({switch.getsockname()!r}).recv(1)"
        path = tmp_path / "p.toml"
        path.write_text(
            f'id = "p"\nmodel = "ESP32_GENERIC"\nserial_url = "{silent.url}"\n'
            '[identity]\nmac = "240ac4123456"\n[reset]\norder = ["power", "rts"]\n'
            '[power]\ndriver = "command"\noff = ["true"]\noff_s = 0.01\n'
            f'on = ["{sys.executable}", "-c", "{code}"]\n'
        )

        def take_it_once_it_is_on() -> None:
            peer = switch.accept()[0]
            stack.enter_context(contextlib.closing(SerialPort.open(silent.url)))
            peer.close()

        taker = threading.Thread(target=take_it_once_it_is_on)
        taker.start()
        rungs: list[str] = []
        board = BoardHandle(load_board(path))
        with pytest.raises(PortRefused, match="in use by this very program"):
            admit(board, tap=None, progress=rungs.append, state_dir=tmp_path)
        taker.join()
    assert rungs == ["reset: power"]
    assert unresponsive.why(tmp_path, "p") == ""
