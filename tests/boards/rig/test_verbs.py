"""``motemq rig list, lock, power, recover, doctor, add`` as a person would use them."""

import io
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from boards.commands.add import identify
from boards.commands.list_boards import table
from boards.flash.target import NotThere
from boards.inventory import unresponsive
from boards.inventory.locks import BoardLock
from boards.inventory.models import all_models
from boards.inventory.rig_file import load_rig
from boards.inventory.states import inventory_states
from boards.inventory.usb import read_usb
from boards.repl import NoReply, Repl
from boards.session.plan import PlanError
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import motemq_rig, running_esp32, write_rig, write_virtual
from tests.boards.fake_tools import FakeTools
from tests.boards.fake_usb import plug
from tests.boards.rig_process import start_and_wait_for

_DEAF = "while True:\n try:\n  while True: pass\n except BaseException: pass"
_PICO = """\
id = "pico-a"
model = "RPI_PICO"
[usb]
serial = "e66038b713123456"
[identity]
uid = "e66038b713123456"
"""


@pytest.fixture
def board(tmp_path: Path) -> Iterator[VirtualBoard]:
    with running_esp32(tmp_path / "b1", "b1") as board:
        yield board


@pytest.fixture
def rig(tmp_path: Path, board: VirtualBoard) -> Path:
    write_virtual(tmp_path, board)
    return write_rig(tmp_path)


def test_list_shows_every_state(rig: Path, tmp_path: Path, board: VirtualBoard) -> None:
    (tmp_path / "boards" / "pico-a.toml").write_text(_PICO)
    write_virtual(tmp_path, board, id="b2")
    gone = (tmp_path / "boards" / "b2.toml").read_text().replace(board.address.serial_url, "x")
    (tmp_path / "boards" / "b2.toml").write_text(gone.replace(str(board.address.control_port), "1"))

    def states() -> dict[str, str]:
        lines = motemq_rig("list", "--rig", rig, "--json").stdout.splitlines()
        return {row["id"]: row["state"] for row in map(json.loads, lines)}

    assert states() == {"b1": "ready", "b2": "absent", "pico-a": "absent"}
    with BoardLock.take(tmp_path / ".rig", "b1", "an experiment"):
        table = motemq_rig("list", "--rig", rig)
        assert states()["b1"] == "in use"
    assert table.returncode == 0
    assert "b1 in use: an experiment (process" in table.stdout
    assert "virtual-esp32" in table.stdout
    board.control.boot()
    assert states()["b1"] == "loader"
    unresponsive.mark(tmp_path / ".rig", "b1", "x")
    assert states()["b1"] == "wedged"


def test_virtual_boards_that_are_up_are_seen_beside_a_desk(
    tmp_path: Path, board: VirtualBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    rig = write_rig(tmp_path / "lab")
    up = tmp_path / "runtime" / "desk" / "b1.toml"
    up.parent.mkdir(parents=True)
    write_virtual(tmp_path, board).rename(up)
    listed = motemq_rig("list", "--rig", rig).stdout
    assert "b1 not on desk: ready" in listed
    assert "virtual boards are on this desk with virtual = true in its rig.toml" in listed
    doctor = motemq_rig("doctor", "--rig", rig).stdout
    assert "note b1: not on desk: ready" in doctor
    rig.write_text("virtual = true\n" + rig.read_text())
    (row,) = map(json.loads, motemq_rig("list", "--rig", rig, "--json").stdout.splitlines())
    assert (row["id"], row["state"]) == ("b1", "ready")


def test_list_finds_new_and_doubtful_boards(tmp_path: Path) -> None:
    rig = write_rig(tmp_path)
    two = _PICO.replace("pico-a", "pico-b").replace("3456", "9999")
    (tmp_path / "boards" / "a.toml").write_text(_PICO)
    (tmp_path / "boards" / "b.toml").write_text(two)
    sys_dir = tmp_path / "sys"
    uid = "e66038b713123456"
    plug(sys_dir, "1-1", vid=0x2E8A, pid=5, serial=uid, tty="ttyACM0")
    plug(sys_dir, "1-2", vid=0x10C4, pid=0xEA60, serial="0001", product="CP2102", tty="ttyUSB0")
    plug(sys_dir, "1-3", vid=0x046D, pid=0xC52B, product="a mouse")
    rows = inventory_states(load_rig(rig), look=lambda: read_usb(sys_dir, sys_dir / "mounts"))
    assert [(row.id, row.state, row.port) for row in rows] == [
        ("pico-a", "ready", "/dev/ttyACM0"),
        ("pico-b", "absent", ""),
        ("", "unknown", "/dev/ttyUSB0"),
    ]
    assert "ESP32_GENERIC" in rows[2].model
    console = Console(width=60, record=True, file=io.StringIO())
    long = " or ".join(all_models())
    console.print(
        table([*rows, replace(rows[2], model=long, port="/dev/serial/by-id/" + 50 * "x")])
    )
    shown = console.export_text()
    for word in ("board", "pico-a", "absent", "state", "unknown"):
        assert word in shown, shown


def test_a_lock_is_held_by_hand_and_given_back_by_ctrl_c(rig: Path) -> None:
    hold = start_and_wait_for(
        "b1 is yours",
        [
            *(sys.executable, "-m", "motemq", "rig", "lock", "hold", "b1", "--rig", str(rig)),
            *("--why", "soldering"),
        ],
    )
    assert hold.stdout is not None
    with hold.stdout:
        status = motemq_rig("lock", "status", "--rig", rig).stdout
        assert f"b1: soldering (process {hold.pid} of" in status
        second = motemq_rig("lock", "hold", "b1", "--rig", rig)
        assert second.returncode == 3
        assert f"b1 is in use by soldering (process {hold.pid}" in second.stdout
        hold.send_signal(signal.SIGINT)
        assert hold.wait(20) == 130
    assert motemq_rig("lock", "status", "--rig", rig).stdout == "b1: free\n"
    assert motemq_rig("lock", "hold", "b1", "--rig", rig, "--for", "0.1").returncode == 0


def test_recover_clears_a_mark_by_evidence_only(
    rig: Path, tmp_path: Path, board: VirtualBoard
) -> None:
    assert "no board is marked" in motemq_rig("recover", "--rig", rig).stdout
    repl = Repl.open(board.address.serial_url, deadline_s=60)
    with pytest.raises(NoReply):
        repl.exec(_DEAF, deadline_s=1)
    repl.close(friendly=False)
    unresponsive.mark(tmp_path / ".rig", "b1", "deaf")
    refused = motemq_rig("flash", "--rig", rig)
    assert refused.returncode == 3
    assert "b1 is wedged since" in refused.stdout
    back = motemq_rig("recover", "--rig", rig)
    assert back.returncode == 0, back.stdout
    assert "b1: reset: control" in back.stdout
    assert f"b1: back: says it is {board.address.uid}" in back.stdout
    assert unresponsive.why(tmp_path / ".rig", "b1") == ""


def test_new_firmware_clears_a_mark_too(rig: Path, tmp_path: Path, board: VirtualBoard) -> None:
    unresponsive.mark(tmp_path / ".rig", "b1", "dead")
    assert "motemq rig flash --force -b b1" in motemq_rig("flash", "--rig", rig).stdout
    healed = motemq_rig("flash", "--rig", rig, "--force", "-b", "b1")
    assert healed.returncode == 0, healed.stdout
    assert "b1: written and verified" in healed.stdout
    assert unresponsive.why(tmp_path / ".rig", "b1") == ""


def test_another_board_does_not_clear_a_mark(
    rig: Path, tmp_path: Path, board: VirtualBoard
) -> None:
    write_virtual(tmp_path, board, identity="0123456789ab")
    unresponsive.mark(tmp_path / ".rig", "b1", "deaf")
    result = motemq_rig("recover", "--rig", rig)
    assert result.returncode == 3
    assert f"says it is {board.address.uid}, expected 0123456789ab" in result.stdout
    assert "deaf" in unresponsive.why(tmp_path / ".rig", "b1")


def test_a_virtual_boards_power_is_cut_and_comes_back(rig: Path, board: VirtualBoard) -> None:
    boots = board.control.state()["boots"]
    for what, state in (("off", "held"), ("on", "running"), ("cycle", "running")):
        result = motemq_rig("power", "b1", what, "--rig", rig)
        assert (result.returncode, result.stdout) == (0, f"b1: {what}\n")
        assert board.control.state()["state"] == state
    assert board.control.state()["boots"] == boots + 2


def test_power_without_a_driver_is_a_fault_with_the_remedy(rig: Path) -> None:
    file = rig.parent / "boards" / "u1.toml"
    file.write_text('id = "u1"\nmodel = "unix"\nserial_url = "/dev/null"\n')
    result = motemq_rig("power", "u1", "off", "--rig", rig)
    assert result.returncode == 3
    assert "this board has no [power] driver" in result.stdout


def test_doctor_asks_a_board_and_proves_its_power(
    rig: Path, tmp_path: Path, board: VirtualBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = FakeTools(tmp_path / "bin", monkeypatch)
    tools.add("strip", {"": (0, "")})
    asked = motemq_rig("doctor", "--rig", rig, "-b", "b1")
    assert asked.returncode == 0, asked.stdout
    assert "KiB of heap and" in asked.stdout
    assert f"  motemq rig run --rig {rig}\n" in asked.stdout
    assert "all is well" in asked.stdout
    path = tmp_path / "boards" / "b1.toml"
    power = '[power]\ndriver = "command"\non = ["strip", "on"]\noff = ["strip", "off"]\noff_s = 0.1'
    path.write_text(path.read_text() + power)
    # This strip switches nothing, so the board goes on answering: a doctor must see that.
    proof = motemq_rig("doctor", "--rig", rig, "-b", "b1", "--power")
    assert proof.returncode == 3
    assert "b1: it answers while it should be off" in proof.stdout
    assert tools.calls() == [["strip", "off"], ["strip", "on"]]


def test_doctor_names_the_board_that_is_another(
    rig: Path, tmp_path: Path, board: VirtualBoard
) -> None:
    write_virtual(tmp_path, board, identity="0123456789ab")
    result = motemq_rig("doctor", "--rig", rig, "-b", "b1")
    assert result.returncode == 3
    assert f"says it is {board.address.uid}, its file says 0123456789ab" in result.stdout
    assert "-> swap the plugs, or mend [identity] in" in result.stdout


def test_doctor_needs_no_desk(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "motemq", "rig", "doctor"],
        cwd=tmp_path,
        env={**os.environ, "MOTEMQ_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "there is no rig.toml here or above" in done.stdout
    assert "esptool 5." in done.stdout
    lines = done.stdout.splitlines()
    assert "next:" in lines
    for line, after in itertools.pairwise(lines):
        if line.startswith(("note ", "bad ")):
            assert after.startswith("      -> "), f"what to do about it? {line}"


def test_add_asks_a_running_board_and_writes_a_file_that_loads(
    tmp_path: Path, board: VirtualBoard
) -> None:
    """The virtual ESP32 stands for a board elsewhere; no real model has its machine."""
    rig = tmp_path / "new" / "rig.toml"
    url = board.address.serial_url
    doubt = motemq_rig("add", "--rig", rig, "--serial-url", url)
    assert doubt.returncode == 2
    assert "tell its model with --model" in doubt.stdout
    assert not rig.parent.exists()
    same = motemq_rig("add", "--rig", rig, "--serial-url", url, "--model", "unix", "--id", "A B")
    assert same.returncode == 2
    assert "write 1 to 31 of a-z" in same.stdout
    assert not rig.parent.exists()
    outside = motemq_rig(
        *("add", "--rig", rig, "--serial-url", url, "--model", "ESP32_GENERIC", "--id", "../out")
    )
    assert outside.returncode == 2
    assert "write 1 to 31 of a-z" in outside.stdout
    assert not rig.parent.exists()
    done = motemq_rig("add", "--rig", rig, "--serial-url", url, "--model", "ESP32_GENERIC")
    assert done.returncode == 0, done.stdout
    (entry,) = load_rig(rig).boards.values()
    assert (entry.id, entry.identity.mac) == ("esp32-1", board.address.uid)
    again = motemq_rig("add", "--rig", rig, "--serial-url", url, "--model", "ESP32_GENERIC")
    assert again.returncode == 2
    assert "serial_url is that of" in again.stdout
    assert len(list((tmp_path / "new" / "boards").iterdir())) == 1


def test_add_waits_for_a_board_in_vain_and_says_so(tmp_path: Path) -> None:
    result = motemq_rig("add", "--rig", tmp_path / "lab" / "rig.toml", "--wait", "0.1")
    assert result.returncode == 3
    assert "no new board showed up: does the cable carry data?" in result.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("machine", "model"),
    [
        ("Raspberry Pi Pico with RP2040", "RPI_PICO"),
        ("Raspberry Pi Pico W with RP2040", "RPI_PICO_W"),
        ("Raspberry Pi Pico 2 W with RP2350", "RPI_PICO2_W"),
        ("Generic ESP32 module with ESP32", "ESP32_GENERIC"),
        ("Generic ESP32S3 module with ESP32S3", "ESP32_GENERIC_S3"),
    ],
)
def test_a_board_is_known_by_what_it_calls_itself(
    monkeypatch: pytest.MonkeyPatch, machine: str, model: str
) -> None:
    from boards.flash.find_board import Running

    running = Running(machine, "3.4.0", "e66038b713123456")
    monkeypatch.setattr("boards.commands.add._ask", lambda url: running)
    candidates = [one for one in all_models().values() if one.usb]
    identity, found = identify("socket://x", candidates, None)
    assert found.id == model
    assert "e66038b713123456" in identity
    with pytest.raises(PlanError, match="tell its model"):
        monkeypatch.setattr("boards.commands.add._ask", lambda url: Running("an odd one", "", ""))
        identify("socket://x", candidates, None)
    with pytest.raises(NotThere):
        monkeypatch.setattr("boards.commands.add._ask", lambda url: None)
        identify("socket://x", [all_models()["RPI_PICO"]], None)
