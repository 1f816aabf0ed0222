"""``motemq rig virtual``: boards that outlive the shell; nothing of them is left after down."""

import json
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from boards.inventory.board_file import load_board
from boards.inventory.rig_file import load_rig
from boards.repl import Repl
from boards.virtual.control import BoardControl
from boards.virtual.lifetime import holder
from firmware import build
from tests.boards.lan_possible import is_here, require_lan
from tests.processes import command_lines

_COMMAND_S = 120.0

Motemq = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module", autouse=True)
def firmware() -> None:
    for name in ("vesp32", "rpi_pico"):
        build.ensure(name)


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    return tmp_path / "runtime"


@pytest.fixture
def virtual(runtime: Path) -> Iterator[Motemq]:
    """Run ``motemq rig virtual …`` in a shell of its own; what is up at the end is taken down."""

    def run(*arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            _argv(*arguments),
            env=_env(runtime),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    yield run
    run("down")
    assert not command_lines(str(runtime))


def _argv(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "motemq", "rig", "virtual", *arguments]


def _env(runtime: Path) -> dict[str, str]:
    return {**os.environ, "MOTEMQ_RUNTIME_DIR": str(runtime)}


def _await(what: Callable[[], bool], within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _up(virtual: Motemq, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in virtual("up", "--json", *arguments).stdout.splitlines()]


def _listed(virtual: Motemq) -> dict[str, dict[str, Any]]:
    lines = virtual("list", "--json").stdout.splitlines()
    return {board["id"]: board for board in map(json.loads, lines)}


def test_boards_stay_are_listed_and_go(virtual: Motemq, runtime: Path) -> None:
    boards = _up(virtual, "rp2040", "esp32:2", "silent:1")
    ids = ["vpico-1", "vesp32-1", "vesp32-2", "silent-1"]
    assert [board["id"] for board in boards] == ids
    assert all(board["virtual"] for board in boards)
    assert len({board["uid"] for board in boards}) == 4
    for board in boards[:3]:
        with Repl.open(board["serial_url"], deadline_s=30) as repl:
            code = "import machine; print(machine.unique_id().hex())"
            assert repl.exec(code, deadline_s=60).strip() == board["uid"]
            assert bytes.fromhex(board["uid"]).startswith(b"vir")
    listed = _listed(virtual)
    assert {id: board["state"] for id, board in listed.items()} == dict.fromkeys(ids, "running")
    assert listed["silent-1"]["kind"] == "silent"
    text = virtual("list").stdout
    assert "silent-1: virtual silent, " in text
    assert len(text.splitlines()) == 4
    virtual("down", "vesp32-1")
    assert sorted(_listed(virtual)) == ["silent-1", "vesp32-2", "vpico-1"]
    virtual("down")
    assert _listed(virtual) == {}
    assert not command_lines(str(runtime))


def test_the_rig_reads_the_desk(virtual: Motemq, runtime: Path) -> None:
    _up(virtual, "rp2040:2", "esp32")
    rig = runtime.parent / "rig.toml"
    rig.write_text("virtual = true\n")
    before = os.environ.get("MOTEMQ_RUNTIME_DIR")
    os.environ["MOTEMQ_RUNTIME_DIR"] = str(runtime)
    try:
        boards = load_rig(rig).boards
    finally:
        if before is None:
            del os.environ["MOTEMQ_RUNTIME_DIR"]
        else:
            os.environ["MOTEMQ_RUNTIME_DIR"] = before
    assert sorted(boards) == ["vesp32-1", "vpico-1", "vpico-2"]
    assert all(board.model.virtual for board in boards.values())
    assert boards["vpico-1"].protocol == "fmqp"
    assert boards["vpico-2"].protocol == "lightmq"
    assert boards["vpico-1"].virtual is not None
    assert boards["vpico-1"].virtual.data_url.startswith("socket://127.0.0.1:")


def test_flash_outlasts_the_board_unless_it_is_forgotten(virtual: Motemq, runtime: Path) -> None:
    def execute(board: dict[str, Any], code: str) -> str:
        with Repl.open(board["serial_url"], deadline_s=30) as repl:
            return repl.exec(code, deadline_s=60).strip()

    (board,) = _up(virtual, "esp32")
    execute(board, "with open('kept.txt', 'w') as f: f.write('still here')")
    virtual("down")
    (again,) = _up(virtual, "esp32")
    assert again["uid"] == board["uid"]
    assert execute(again, "print(open('kept.txt').read())") == "still here"
    virtual("down", "--forget")
    assert list((runtime / "boards").iterdir()) == []
    (anew,) = _up(virtual, "esp32")
    assert execute(anew, "import os; print(os.listdir('/'))") == "[]"


def test_a_blank_board_waits_to_be_flashed(virtual: Motemq) -> None:
    pico, esp = _up(virtual, "--blank", "rp2040", "esp32")
    assert BoardControl(pico["control_port"]).state()["state"] == "bootsel"
    assert (Path(pico["bootsel_dir"]) / "INFO_UF2.TXT").exists()
    assert BoardControl(esp["control_port"]).state()["state"] == "invalid-image"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_board_that_died_or_hangs_is_told_and_taken_down(
    virtual: Motemq, runtime: Path, how: signal.Signals
) -> None:
    _up(virtual, "esp32")
    pid = _listed(virtual)["vesp32-1"]["pid"]
    assert holder(runtime / "boards" / "vesp32-1") == pid
    os.kill(pid, how)
    if how == signal.SIGKILL:
        _await(lambda: holder(runtime / "boards" / "vesp32-1") is None)
        assert _listed(virtual)["vesp32-1"]["pid"] is None
        assert "its process is gone" in virtual("list").stdout
    virtual("down")
    assert _listed(virtual) == {}
    _await(lambda: not command_lines(str(runtime)))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_foreground_boards_end_with_their_command(
    virtual: Motemq, runtime: Path, how: signal.Signals
) -> None:
    with subprocess.Popen(
        _argv("up", "--foreground", "--json", "rp2040", "esp32"),
        env=_env(runtime),
        stdout=subprocess.PIPE,
    ) as command:
        try:
            assert command.stdout is not None
            boards = [json.loads(command.stdout.readline()) for _ in range(2)]
            assert sorted(_listed(virtual)) == ["vesp32-1", "vpico-1"]
            command.send_signal(how)
            assert command.wait(30) == (0 if how == signal.SIGINT else -signal.SIGKILL)
        finally:
            command.kill()
    _await(lambda: not command_lines(str(runtime)))
    if how == signal.SIGKILL:  # its boards' files are left, until somebody tidies up
        assert [board["pid"] for board in _listed(virtual).values()] == [None, None]
        (again,) = _up(virtual, "esp32")
        assert again["id"] == "vesp32-1"
        assert again["uid"] == boards[1]["uid"]
    assert "vpico-1" not in _listed(virtual)


def test_if_one_does_not_start_none_is_up(virtual: Motemq, runtime: Path) -> None:
    blocked = runtime / "boards" / "vesp32-2"
    blocked.mkdir(parents=True)
    (blocked / "flash.bin").mkdir()  # no flash can be opened there
    said = virtual("up", "esp32:2", code=3).stderr
    assert "virtual esp32 board 'vesp32-2' did not start" in said
    assert "Is a directory" in said
    assert _listed(virtual) == {}
    assert not command_lines(str(runtime))


def test_wrong_use_is_told(virtual: Motemq) -> None:
    assert "there are rp2040, rp2040w, esp32, silent" in virtual("up", "esp23", code=2).stderr
    assert "COUNT from 1 to 64" in virtual("up", "esp32:0", code=2).stderr
    assert "at most 64" in virtual("up", "esp32:60", "rp2040:5", code=2).stderr
    assert "no virtual board 'x' up; up: none" in virtual("down", "x", code=3).stderr


def test_its_file_is_the_one_that_the_docs_show(virtual: Motemq, runtime: Path) -> None:
    _up(virtual, "rp2040")
    data = tomllib.loads((runtime / "desk" / "vpico-1.toml").read_text())
    assert data["id"] == "vpico-1"
    assert data["model"] == "virtual-rp2040"
    assert set(data["virtual"]) == {"control_port", "bootsel_dir", "data_url"}


def test_boards_on_a_lan_of_their_own(virtual: Motemq, runtime: Path) -> None:
    require_lan()

    def host(id: str) -> str:
        board = load_board(runtime / "desk" / f"{id}.toml")
        assert board.caps == ("wifi",)
        assert board.virtual is not None and board.virtual.ssid == "virtual"
        return board.virtual.host

    esp, pico = _up(virtual, "--lan", "esp32", "rp2040")
    assert esp["lan"] == str(runtime / "lan") and pico["lan"] is None
    first = host("vesp32-1")
    assert is_here(first)
    said = virtual("link", "vesp32-1", "--down", "--loss", "0.5", "--delay-ms", "20").stdout
    assert said == "vesp32-1: down, loss 0.5, 20.0 ms\n"
    assert "on no LAN" in virtual("link", "vpico-1", "--down", code=3).stderr
    # Another board joins the LAN that is there; a killed access point is replaced by the next.
    _up(virtual, "--lan", "esp32")
    assert host("vesp32-2") == first
    virtual("down", "vesp32-1")
    assert is_here(first)
    pid = holder(runtime / "lan")
    assert pid
    os.kill(pid, signal.SIGKILL)
    _await(lambda: not is_here(first))
    _up(virtual, "--lan", "esp32")
    assert host("vesp32-1") == host("vesp32-2")
    second = host("vesp32-2")
    assert is_here(second)
    virtual("down")
    assert not is_here(second)
    assert not command_lines(str(runtime))
