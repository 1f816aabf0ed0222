"""A board's own files survive a run, however it ends."""

import base64
import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from boards.flash.target import Identity
from boards.inventory.board_file import load_board
from boards.inventory.target import BoardHandle
from boards.repl import Repl
from boards.session.own_files import OwnFiles, OwnFilesError
from tests.boards.fault_boards import UnixBoard

_MAIN = b"# Gew\xc3\xa4chshaus\r\n" + bytes(range(256)) * 10
_RIGS = b"import node\n"
_CONFIG = b'{"autostart": true}'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """What the board has: its own main.py, and no boot.py."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "main.py").write_bytes(_MAIN)
    return folder


@pytest.fixture
def board(files: Path, tmp_path: Path, unix_port: Path) -> Iterator[BoardHandle]:
    with UnixBoard(unix_port, files) as unix:
        path = tmp_path / "u1.toml"
        path.write_text(f'id = "u1"\nmodel = "unix"\nserial_url = "{unix.url}"\n')
        yield BoardHandle(load_board(path))


@contextmanager
def _repl(board: BoardHandle) -> Iterator[Repl]:
    with Repl.open(board.place().serial_url, deadline_s=60) as repl:
        yield repl


def _killed_run(board: BoardHandle, state_dir: Path) -> None:
    """What a run does before it is killed; what it left on the board, the test says."""
    own = OwnFiles(state_dir, board)
    with _repl(board) as repl:
        own.keep(repl)
    own.will_write("main.py", _RIGS)
    own.will_write("boot.py", b"# joins the Wi-Fi\n")
    own.will_write("node.json", _CONFIG)


def _next_run(board: BoardHandle, state_dir: Path) -> None:
    own = OwnFiles(state_dir, board)
    with _repl(board) as repl:
        own.keep(repl)
        own.restore(repl)
    assert not own.are_kept


def _names(files: Path) -> list[str]:
    return sorted(path.name for path in files.iterdir())


def test_what_the_rig_wrote_is_replaced_by_what_was_there(
    board: BoardHandle, files: Path, tmp_path: Path
) -> None:
    _killed_run(board, tmp_path)
    (kept,) = (tmp_path / "own_files").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    (files / "main.py").write_bytes(_RIGS)
    (files / "boot.py").write_bytes(b"# joins the Wi-Fi\n")
    (files / "node.json").write_bytes(_CONFIG)
    own = OwnFiles(tmp_path, board)
    assert own.are_kept
    with _repl(board) as repl:
        own.restore(repl)
    assert (files / "main.py").read_bytes() == _MAIN
    assert _names(files) == ["main.py"]
    assert not kept.exists()


@pytest.mark.parametrize(
    "left",
    [_MAIN, _RIGS, _RIGS[:5], b"", _MAIN[:700], None],
    ids=["untouched", "written", "half written", "emptied", "half put back", "removed"],
)
def test_the_next_run_knows_what_a_killed_one_left(
    board: BoardHandle, files: Path, tmp_path: Path, left: bytes | None
) -> None:
    _killed_run(board, tmp_path)
    if left is None:
        (files / "main.py").unlink()
    else:
        (files / "main.py").write_bytes(left)
    (files / "node.json").write_bytes(_CONFIG[:9])
    _next_run(board, tmp_path)
    assert (files / "main.py").read_bytes() == _MAIN
    assert _names(files) == ["main.py"]


def test_what_a_person_wrote_after_a_killed_run_is_not_undone(
    board: BoardHandle, files: Path, tmp_path: Path
) -> None:
    _killed_run(board, tmp_path)
    (files / "main.py").write_text("print('my new one')\n")
    (files / "boot.py").write_text("# mine\n")
    _next_run(board, tmp_path)
    assert (files / "main.py").read_text() == "print('my new one')\n"
    assert (files / "boot.py").read_text() == "# mine\n"


def test_a_password_of_the_boards_own_comes_back_and_the_rigs_is_not_kept(
    board: BoardHandle, files: Path, tmp_path: Path
) -> None:
    theirs, ours = b'{"ssid": "greenhouse", "psk": "petunia"}', b'{"psk": "tr0ub4dor"}'
    (files / "wifi.json").write_bytes(theirs)
    _killed_run(board, tmp_path)
    OwnFiles(tmp_path, board).will_write("wifi.json", ours)
    (kept,) = (tmp_path / "own_files").iterdir()
    rigs = json.loads(kept.read_text())["ours"]
    assert not any(b"tr0ub4dor" in base64.b64decode(one) for row in rigs.values() for one in row)
    (files / "wifi.json").write_bytes(ours)
    _next_run(board, tmp_path)
    assert (files / "wifi.json").read_bytes() == theirs
    assert _names(files) == ["main.py", "wifi.json"]


def test_another_chip_does_not_get_them(board: BoardHandle, tmp_path: Path) -> None:
    _killed_run(board, tmp_path)
    other = BoardHandle(replace(board.board, identity=Identity(uid="0123456789abcdef")))
    assert OwnFiles(tmp_path, board).are_kept
    assert not OwnFiles(tmp_path, other).are_kept


def test_a_damaged_copy_is_named(board: BoardHandle, tmp_path: Path) -> None:
    _killed_run(board, tmp_path)
    (kept,) = (tmp_path / "own_files").iterdir()
    kept.write_text(kept.read_text()[:40])
    with pytest.raises(OwnFilesError, match=f"{kept} is damaged"):
        OwnFiles(tmp_path, board)
