"""A program of somebody's own on a virtual board: installed, started, heard, asked, stopped."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.inventory.board_file import load_board
from boards.inventory.power import PowerError
from boards.inventory.target import BoardHandle
from boards.repl import RemoteError, Repl
from boards.session.app_board import AppBoard, NotInstalled, NotSaid
from boards.session.own_files import OwnFiles
from boards.session.serial_log import SerialLog
from boards.virtual.board import VirtualBoard
from boards.virtual.preload import preload
from firmware.build import ensure
from tests.boards.desk_files import desk_board, running_esp32

_MAIN = """
import time
from words import GREETING
print(GREETING, open("data/name").read())
count = 0
while True:
    print("still here", count)
    count += 1
    time.sleep_ms(50)
"""
_DEAF = """
import micropython
micropython.kbd_intr(-1)
print("deaf")
while True:
    pass
"""
_LONG_S = 120.0


@pytest.fixture(scope="module")
def esp32(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualBoard]:
    with running_esp32(tmp_path_factory.mktemp("board") / "a1", "a1") as board:
        yield board


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    (folder / "data").mkdir(parents=True)
    (folder / "main.py").write_text(_MAIN)
    (folder / "words.py").write_text("GREETING = 'grüezi'\n")
    (folder / "data" / "name").write_text("nobody")
    (folder / ".hidden").write_text("")
    (folder / "__pycache__").mkdir()
    return folder


@pytest.fixture
def board(esp32: VirtualBoard, tmp_path: Path) -> Iterator[AppBoard]:
    log = SerialLog(tmp_path / "serial.log")
    target = desk_board(tmp_path, esp32)
    own_files = OwnFiles(tmp_path, target)
    with Repl.open(esp32.address.serial_url, deadline_s=_LONG_S) as repl:
        own_files.keep(repl)
    board = AppBoard(target, log, own_files)
    yield board
    board.close()
    log.close()


def test_a_program_is_installed_started_heard_and_asked(
    board: AppBoard, app: Path, tmp_path: Path
) -> None:
    board.install(app, {"data/name": "board", "/extra.txt": b"more"})
    board.reset()
    # From its very first words on, whole, although its last one has no end of its own.
    assert board.expect(r"grüezi (\w+)", timeout_s=_LONG_S)[1] == "board"
    first = int(board.expect(r"still here (\d+)", timeout_s=_LONG_S)[1])
    second = int(board.expect(r"still here (\d+)", timeout_s=_LONG_S)[1])
    assert (first, second) == (0, 1)
    there = board.exec("import os; print(sorted(os.listdir('/')))", timeout_s=_LONG_S)
    assert {"main.py", "words.py", "extra.txt", "data"} <= set(re.findall(r"'([^']+)'", there))
    assert ".hidden" not in there
    assert "__pycache__" not in there
    assert "still here 0" in board.log.path.read_text()
    # The rig knows its own main.py from the board's, which it puts back.
    own_files = OwnFiles(tmp_path, board.target)
    with board.repl() as repl:
        own_files.restore(repl)
    assert "main.py" not in board.exec("import os; print(os.listdir('/'))", timeout_s=_LONG_S)


def test_what_it_did_not_say_is_told_with_its_last_words(board: AppBoard, app: Path) -> None:
    board.install(app, {"main.py": "print('I do something else')"})
    board.reset()
    board.expect("something", timeout_s=_LONG_S)
    with pytest.raises(NotSaid, match=r"a1 did not say 'grüezi' within 2 s; its last words:\n  "):
        board.expect("grüezi", timeout_s=2)
    with pytest.raises(RemoteError, match="ZeroDivisionError") as raised:
        board.exec("1/0", timeout_s=_LONG_S)
    assert "Traceback" in raised.value.traceback


def test_what_was_said_before_a_reset_or_a_loss_of_power_is_forgotten(
    board: AppBoard, esp32: VirtualBoard, app: Path
) -> None:
    board.install(app)
    board.reset()
    board.expect("still here 3", timeout_s=_LONG_S)
    board.power(on=False)
    assert esp32.control.state()["state"] == "held"
    with pytest.raises(NotSaid, match="it said nothing"):
        board.expect("still here", timeout_s=0)
    board.power(on=True)
    board.expect("grüezi", timeout_s=_LONG_S)
    assert board.expect(r"still here (\d+)", timeout_s=_LONG_S)[1] == "0"


def test_a_board_without_buttons_resets_itself_and_is_heard_from_its_start(
    esp32: VirtualBoard, app: Path, tmp_path: Path
) -> None:
    """As a real one: by ``machine.reset()``, and no power that anybody could cut."""
    file = tmp_path / "real.toml"
    file.write_text(
        f'id = "r1"\nmodel = "ESP32_GENERIC"\nserial_url = "{esp32.address.serial_url}"\n'
        f'[identity]\nmac = "{esp32.address.uid}"\n'
    )
    log = SerialLog(tmp_path / "real.log")
    real = AppBoard(BoardHandle(load_board(file)), log)
    with contextlib.closing(real), contextlib.closing(log):
        real.install(app)
        boots = esp32.control.state()["boots"]
        real.reset()
        real.expect("grüezi", timeout_s=_LONG_S)
        assert real.expect(r"still here (\d+)", timeout_s=_LONG_S)[1] == "0"
        assert esp32.control.state()["boots"] == boots + 1
        with pytest.raises(PowerError, match=r"no \[power\] driver"):
            real.power(on=False)


def test_a_path_that_leads_elsewhere_is_refused(board: AppBoard, app: Path) -> None:
    for path in ("../elsewhere", "", "a/../../b"):
        with pytest.raises(ValueError, match="is no path on the board"):
            board.install(app, {path: "x"})
    with pytest.raises(FileNotFoundError, match="nothing_here"):
        board.install(app / "nothing_here")


def test_a_file_that_arrived_otherwise_is_an_error(
    board: AppBoard, app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real board compares: here a file changes after it was sent."""
    from boards.session import app_board

    real = app_board.digests

    def changed(folder: Path, *more: Path) -> dict[str, str]:
        return {**real(folder, *more), "words.py": "0" * 64}

    monkeypatch.setattr(app_board, "digests", changed)
    with pytest.raises(NotInstalled, match=r"words\.py on the board is not what was sent"):
        board.install(app)


def test_the_first_words_of_a_board_with_usb_of_its_own_are_heard(tmp_path: Path) -> None:
    """They would be lost before the USB is up, on a Pico as on a virtual one."""
    preload("rp2040", tmp_path / "p1", ensure("rpi_pico"))
    (tmp_path / "app").mkdir()
    main = tmp_path / "app" / "main.py"
    with VirtualBoard.start("rp2040", "p1", tmp_path / "p1") as pico:
        target = desk_board(tmp_path, pico)
        log = SerialLog(tmp_path / "serial.log")
        with contextlib.closing(log), contextlib.closing(AppBoard(target, log)) as board:
            for text in ("first words", "others"):
                main.write_text(f"print({text!r})\n")
                board.install(tmp_path / "app")
                board.reset()
                board.expect(text, timeout_s=_LONG_S)
            main.write_text(_DEAF)
            board.install(tmp_path / "app")
            board.reset()
            board.expect("deaf", timeout_s=_LONG_S)
            boots = pico.control.state()["boots"]
            board.reset()
            assert pico.control.state()["boots"] > boots
