"""Real processes under a deadline."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from boards.mpremote_cli import mpremote
from boards.tool import ToolError, ToolTimeout, run_tool
from tests.boards.fault_boards import SilentBoard


def _python(code: str) -> list[str]:
    return [sys.executable, "-u", "-S", "-c", code]  # without site it is there sooner


def test_output_comes_line_by_line_and_whole() -> None:
    lines: list[str] = []
    code = "import sys; print('one'); print('10 %', end='\\r'); print('two', file=sys.stderr)"
    output = run_tool("tool", _python(code), deadline_s=60, on_line=lines.append)
    assert lines == ["one", "10 %", "two"]
    assert output == "one\n10 %\rtwo\n"


def test_a_failure_names_the_tool_its_code_and_last_words() -> None:
    with pytest.raises(ToolError, match="tool: exit code 7: it broke") as raised:
        run_tool("tool", _python("print('it broke'); raise SystemExit(7)"), deadline_s=60)
    assert not isinstance(raised.value, ToolTimeout)


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "while True: print('x' * 1000)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
    ],
)
def test_a_timeout_is_an_exception_and_the_tool_is_gone(code: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    note = f"import os; open({str(pid)!r}, 'w').write(str(os.getpid()))\n"
    began = time.monotonic()
    with pytest.raises(ToolTimeout, match="not done within 3 s and killed"):
        run_tool("tool", _python(note + code), deadline_s=3)
    assert time.monotonic() - began < 20
    assert not Path(f"/proc/{pid.read_text()}").exists()


def test_the_tool_dies_with_us(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    inner = f"import os,time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    outer = (
        "import sys; from boards.tool import run_tool; "
        f"run_tool('t', [sys.executable, '-c', {inner!r}], deadline_s=60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", outer])
    until = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < until
        time.sleep(0.02)
    parent.kill()
    parent.wait(10)
    while Path(f"/proc/{pid.read_text()}").exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_the_real_mpremote_on_a_silent_pty_is_ended_by_the_deadline() -> None:
    with SilentBoard() as board:
        began = time.monotonic()
        with pytest.raises(ToolTimeout, match="mpremote: not done within 3 s"):
            mpremote(board.url, ["eval", "1"], deadline_s=3)
        assert time.monotonic() - began < 30


def test_the_real_mpremote_without_a_port_says_so(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"mpremote: exit code 1: .*failed to access"):
        mpremote(str(tmp_path / "none"), ["eval", "1"], deadline_s=60)
