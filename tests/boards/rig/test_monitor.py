"""``motemq rig monitor`` and ``watch`` on a virtual board, as a person has them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boards.commands.watch import _files
from boards.repl import Repl
from boards.session.console_lines import ConsoleLines
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import motemq_rig, running_esp32, write_rig, write_virtual

_END_S = 120.0
_MAIN = """\
import helper
print("started")
helper.count()
"""
_HELPER = """\
def count():
    for left in (2, 1, 0):
        print("left", left)
        10 // left  # this is the line
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[VirtualBoard]:
    write_rig(tmp_path)
    with running_esp32(tmp_path / "e1", "e1") as board:
        write_virtual(tmp_path, board)
        yield board


@contextmanager
def _running(folder: Path, *words: str) -> "Iterator[subprocess.Popen[str]]":
    process = subprocess.Popen(
        [sys.executable, "-m", "motemq", "rig", *words],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(_END_S)
        if process.stdout is not None:
            process.stdout.close()


def _until(process: "subprocess.Popen[str]", pattern: str) -> list[str]:
    """Read lines until one has the pattern; pytest's own limit is the deadline."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line.rstrip("\n"))
        if re.search(pattern, line):
            return seen
    raise AssertionError(f"no {pattern!r} in {seen}")


def _interrupt(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(_END_S)


def test_monitor_prints_lines_with_their_time_and_tracebacks_with_their_source(
    desk: VirtualBoard, tmp_path: Path
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "main.py").write_text(_MAIN)
    (app / "helper.py").write_text(_HELPER)
    with Repl.open(desk.address.serial_url, deadline_s=_END_S) as repl:
        for file in app.iterdir():
            code = f"with open({file.name!r}, 'w') as f: f.write({file.read_text()!r})"
            repl.exec(code, deadline_s=_END_S)
    with _running(tmp_path, "monitor", "e1", "--reset", "--source", "app") as process:
        seen = _until(process, "ZeroDivisionError")
        # Nobody else has the board meanwhile.
        refused = motemq_rig("monitor", "e1", "--rig", tmp_path / "rig.toml")
        assert refused.returncode == 3, refused.stdout
        assert "motemq rig monitor" in refused.stdout
        assert _interrupt(process) == 0
    assert any(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}  started", line) for line in seen)
    frame = next(at for at, line in enumerate(seen) if 'File "helper.py", line 4' in line)
    assert seen[frame + 1].strip() == "| 10 // left  # this is the line"


def test_watch_installs_a_program_again_when_a_file_is_saved(
    desk: VirtualBoard, tmp_path: Path
) -> None:
    app = tmp_path / "app"
    app.mkdir()
    (app / "main.py").write_text("print('version', 1)\nwhile True: pass\n")
    with _running(tmp_path, "watch", "app") as process:
        _until(process, r"\d\d:\d\d:\d\d\.\d{3}  version 1")
        (app / "main.py").write_text("print('version', 2)\n")
        _until(process, "version 2")
        assert _interrupt(process) == 0
    then = f"{sys.executable} -c \"print('checked')\""
    with _running(tmp_path, "watch", "app", "--board", "e1", "--then", then) as process:
        _until(process, "^checked")
        _until(process, "exit code 0")
        assert _interrupt(process) == 0


def test_lines_come_whole_and_nothing_of_them_moves_a_terminal(tmp_path: Path) -> None:
    lines = ConsoleLines([tmp_path])
    assert lines.feed(b"one\r\ntw", "0") == ["0  one"]
    assert lines.feed(b"o\r\n\x1b[2Jred", "1") == ["1  two"]
    (last,) = lines.flush("2")
    assert "\x1b" not in last and "red" in last
    assert lines.flush("3") == []
    assert len(lines.feed(b"x" * 5000, "4")) == 1  # a line without an end is not kept for ever
    assert lines.feed(b"\r", "5") == []
    assert lines.feed(b"\n20 \xc2", "6") == ["6  "]
    assert lines.feed(b"\xb0C\r\n", "7") == ["7  20 °C"]


def test_what_an_editor_writes_beside_a_file_is_no_program(tmp_path: Path) -> None:
    for name in ("main.py", "lib/one.py", ".main.py.swp", "lib/.one.py.swp", ".git/index"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path.relative_to(tmp_path)) for path in _files(tmp_path)] == [
        "lib/one.py",
        "main.py",
    ]


def test_a_line_of_source_is_shown_only_where_one_file_can_be_it(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "twice.py").write_text("x = 1\n")
    (tmp_path / "a" / "once.py").write_text("\n  y = 2\n")
    lines = ConsoleLines([tmp_path])
    frames = ('"/lib/once.py", line 2, in f', '"twice.py", line 1', '"once.py", line 9')
    said = "".join(f"  File {frame}\n" for frame in frames).encode()
    printed = [line.strip() for line in lines.feed(said, "0")]
    assert [line for line in printed if line.startswith("|")] == ["| y = 2"]
