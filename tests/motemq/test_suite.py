"""What ``make test`` promises of itself: nothing vanishes because other processes run it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from firmware.build import NAMES

_ROOT = Path(__file__).parents[2]
_TESTS = """
import os
import pytest

from firmware.build import NAMES

def test_says(say):
    say("a figure: 41")

@pytest.mark.skipif(os.environ.get("CASE") == "skips", reason="to see what comes of it")
def test_skips():
    assert os.environ["MOTEMQ_RUNTIME_DIR"]

def test_crashes():
    if os.environ.get("CASE") == "crashes":
        os._exit(0)
"""


def _sessions() -> list[list[str]]:
    """Return the arguments of pytest in the Makefile."""
    lines = re.findall(r"\$\(BIN\)/pytest (.*)", (_ROOT / "Makefile").read_text())
    return [shlex.split(line.replace("$(WORKERS)", "1")) for line in lines]


def _pytest(
    folder: Path, arguments: list[str], case: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run a suite of these tests and one more file as the Makefile does, in CI."""
    (folder / "tests").mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = alone\n")
    (folder / "tests" / "test_first.py").write_text(_TESTS)
    (folder / "tests" / "test_second.py").write_text("def test_passes():\n    pass\n")
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", str(folder / "pytest.ini")),
            *("--rootdir", str(folder), "-p", "tests.conftest", "-p", "no:cacheprovider"),
            *("--basetemp", str(folder / "temporary"), *arguments, str(folder / "tests")),
        ],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        env={**os.environ, "CI": "1", "CASE": case},
    )


def test_all_tests_are_in_a_session() -> None:
    marks = [arguments[arguments.index("-m") + 1] for arguments in _sessions()]
    assert marks == ["not alone", "alone"]


def test_no_test_has_to_wait_for_a_build() -> None:
    (names,) = re.findall(r"\$\(BIN\)/motemq firmware build (.*)", (_ROOT / "Makefile").read_text())
    assert sorted(names.split()) == sorted(NAMES)


@pytest.mark.parametrize(("case", "code"), [("", 0), ("skips", 1)])
def test_figures_and_skips_of_workers_are_told(tmp_path: Path, case: str, code: int) -> None:
    done = _pytest(tmp_path, _sessions()[0], case)
    assert done.returncode == code, done.stdout
    assert "\na figure: 41\n" in done.stdout
    assert ("in CI nothing may be skipped, but 1 tests were" in done.stdout) == (case == "skips")


def test_a_lost_worker_fails_the_session(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _sessions()[0], "crashes")
    assert done.returncode == 1, done.stdout
    assert "crashed while running 'tests/test_first.py::test_crashes'" in done.stdout


@pytest.mark.parametrize("session", [0, 1])
def test_a_session_without_tests_fails(tmp_path: Path, session: int) -> None:
    done = _pytest(tmp_path, [*_sessions()[session], "-k", "nothing"])
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout
