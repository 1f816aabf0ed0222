"""A tool that fails, hangs or is missing becomes one line with a remedy, and no process stays."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from firmware.build.commands import BuildError, Runner, require_tools


def _gone(pid: int, within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "log")
    runner.run("speaking", ["sh", "-c", "echo $WORD"], deadline_s=60, env={"WORD": "hello"})
    assert "hello" in (tmp_path / "log").read_text()


def test_a_failure_names_the_first_complaint_the_log_and_a_remedy(tmp_path: Path) -> None:
    script = "echo fine; echo 'x.c:1: error: no such thing'; echo 'make: *** Error 1'; exit 2"
    with pytest.raises(BuildError) as caught:
        Runner(tmp_path / "log").run("compiling", ["sh", "-c", script], deadline_s=60)
    text = str(caught.value)
    assert text.startswith("compiling failed (exit code 2): x.c:1: error: no such thing;")
    assert str(tmp_path / "log") in text
    assert "remedy:" in text
    assert "\n" not in text


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    # /dev/full is a real device on which every write fails for want of space.
    with pytest.raises(BuildError, match=r"No space left on device.*free some disk space"):
        Runner(tmp_path / "log").run(
            "writing", ["sh", "-c", "head -c 1 /dev/zero > /dev/full"], deadline_s=60
        )


def test_only_the_failed_step_is_searched_for_its_cause(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "log")
    runner.run("first", ["sh", "-c", "echo 'error: of the first step'"], deadline_s=60)
    with pytest.raises(BuildError, match="of the second step"):
        runner.run("second", ["sh", "-c", "echo 'error: of the second step'; false"], deadline_s=60)


def test_a_deadline_ends_the_tool_and_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"sleep 300 & echo $! > {pid_file}; wait"
    with pytest.raises(BuildError, match="was not done after 1 s and was stopped"):
        Runner(tmp_path / "log").run("sleeping", ["sh", "-c", script], deadline_s=1)
    assert _gone(int(pid_file.read_text()))


def test_a_killed_parent_takes_the_tool_with_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = (
        "import sys; from pathlib import Path; from firmware.build.commands import Runner\n"
        "Runner(Path(sys.argv[1])).run('x', ['sh', '-c', "
        "'echo $$ > $1.new; mv $1.new $1; exec sleep 300', 'sh', sys.argv[2]], deadline_s=300)"
    )
    argv = [sys.executable, "-c", program, str(tmp_path / "log"), str(pid_file)]
    with subprocess.Popen(argv) as parent:
        deadline = time.monotonic() + 60
        while not pid_file.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        tool = int(pid_file.read_text())
        assert Path(f"/proc/{tool}").exists()
        os.kill(parent.pid, signal.SIGKILL)
    assert _gone(tool)


def test_a_missing_tool_names_its_package() -> None:
    require_tools("shelling", {"sh": "dash"})
    with pytest.raises(BuildError, match=r"needs no-such-tool,.*apt-get install its-package"):
        require_tools("building", {"sh": "dash", "no-such-tool": "its-package"})


def test_a_build_does_not_see_what_is_meant_for_our_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MicroPython's scripts import their neighbours, which PYTHONSAFEPATH forbids."""
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    (tmp_path / "neighbour.py").write_text("")
    (tmp_path / "script.py").write_text("import neighbour\n")
    runner = Runner(tmp_path / "log")
    runner.run("a script", [sys.executable, tmp_path / "script.py"], deadline_s=60)
