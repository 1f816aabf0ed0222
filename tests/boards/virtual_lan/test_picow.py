"""A virtual Pico W: blank, a drive that takes its UF2 alone, then a board on the Wi-Fi."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.repl import NoReply, Repl
from boards.serial_port import PortGone
from boards.virtual.board import VirtualBoard
from boards.virtual.desk import Desk
from boards.virtual.preload import preload
from boards.virtual.rp2040.supervisor import board_uid
from firmware.build import ensure
from tests.boards.desk_files import motemq_rig
from tests.boards.rig_process import RUN_S, eventually, outcomes

_S = 30.0
_CHECKS = ("pubsub_up", "pubsub_down", "will_power")


@pytest.fixture
def board(tmp_path: Path) -> Iterator[VirtualBoard]:
    with VirtualBoard.start("rp2040w", "w", tmp_path / "w") as board:
        yield board


# How a private key begins: as PEM, as DER (SEC 1, P-256), and that in base64.
_KEY_MARKS = (b"PRIVATE KEY", bytes.fromhex("30770201010420"), b"MHcCAQEE")


def test_a_blank_one_waits_for_its_own_uf2(board: VirtualBoard) -> None:
    drive = board.address.bootsel_dir
    assert drive is not None
    assert board.control.state()["state"] == "bootsel"
    (drive / "other.uf2").write_bytes(ensure("rpi_pico").read_bytes())
    eventually((drive / "FAIL.TXT").exists, _S, "a UF2 for another chip was not refused")
    assert "wrong family id" in (drive / "FAIL.TXT").read_text()
    (drive / "firmware.uf2").write_bytes(ensure("vpico_w").read_bytes())
    eventually(lambda: board.control.state()["state"] == "running", _S, "it does not run")
    assert not drive.exists()
    with Repl.open(board.address.serial_url, deadline_s=_S) as repl:
        said = repl.exec(
            "import machine, network\nw = network.WLAN()\n"
            "print(machine.unique_id().hex(), w.config('mac').hex())",
            deadline_s=_S,
        ).split()
    assert said == [board_uid("w"), board_uid("w")[4:]]
    assert board.address.uid == board_uid("w")


def test_its_program_can_ask_for_the_drive(tmp_path: Path) -> None:
    preload("rp2040w", tmp_path / "w", ensure("vpico_w"))
    with VirtualBoard.start("rp2040w", "w", tmp_path / "w") as board:
        with Repl.open(board.address.serial_url, deadline_s=_S) as repl:
            repl.exec("open('kept', 'w').close()", deadline_s=_S)
        repl = Repl.open(board.address.serial_url, deadline_s=_S)
        with pytest.raises((NoReply, PortGone)):  # it goes without a farewell
            repl.exec("import machine\nmachine.bootloader()", deadline_s=1.0)
        repl.close(friendly=False)
        assert board.control.state()["state"] == "bootsel"
        board.control.reset()
        assert board.control.state()["state"] == "running"
        with Repl.open(board.address.serial_url, deadline_s=_S) as repl:
            assert "kept" in repl.exec("import os; print(os.listdir())", deadline_s=_S)


def test_from_blank_to_verdict_by_a_drive_and_the_wifi(
    lan_is_possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    desk = Desk(tmp_path / "runtime")
    desk.up(["rp2040w"], blank=True, lan=True, preload=preload_nothing)
    try:
        out = tmp_path / "out"
        done = motemq_rig("run", "--out", out, "--checks", ",".join(_CHECKS), timeout_s=RUN_S)
    finally:
        desk.down()
    assert done.returncode == 0, done.stdout
    assert "without TLS" not in done.stdout
    found = outcomes(out, "vpicow-1", "check_finished", "check")
    assert found == dict.fromkeys(_CHECKS, "passed"), done.stdout
    # The run's keys, which the board was given: nowhere in logs, reports or on the terminal.
    files = [path for path in out.rglob("*") if path.is_file()]
    assert files
    for written in [done.stdout.encode(), *(path.read_bytes() for path in files)]:
        assert not [mark for mark in _KEY_MARKS if mark in written]


def preload_nothing(_kind: object, _folder: object) -> None:
    """It is blank: that is what is asked."""
