"""``pytest --rig`` on virtual boards that are on a desk, as its own process."""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from boards.inventory.locks import BoardLock
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import running_esp32, write_rig, write_virtual

_TESTS = """
import pytest

def test_without_a_board():
    pass

def test_says_who_it_is(rig_board, rig_measure):
    with rig_board.repl() as repl:
        repl.exec("import machine, binascii, umotemq", deadline_s=60)
        said = repl.exec("print(binascii.hexlify(machine.unique_id()).decode())", deadline_s=60)
    assert said.strip() == rig_board.target.identity.text
    rig_measure("answers", 1, "count")

@pytest.mark.rig(caps={"psram"}, optional=True)
def test_of_another_board(rig_board):
    raise AssertionError("no board here has psram")

@pytest.mark.rig(count=2)
def test_two(rig_boards):
    assert len({board.serial_url for board in rig_boards}) == 2

def test_broker(rig_broker):
    heard = rig_broker.subscribe("a/*")
    rig_broker.publish("a/b", "21.5")
    assert heard.receive(60).payload == b"21.5"
"""
_FAILING = """
def test_fails(rig_board):
    with rig_board.repl() as repl:
        repl.exec("print('these were my last words')", deadline_s=60)
    raise AssertionError("it fails")
"""


_ON_A_LINE = """
APP = '''
from umotemq.fmqp import FmqpClient
from umotemq.uart import Uart
uart = Uart(id=1, baud=921600, tx=4, rx=5, quiet_ms=2500)
client = FmqpClient(uart, keepalive_ms=500, timeout_ms=10000)
client.publish("line/word", "21.5", retain=True, again=True)
while True:
    client.poll(1000)
'''

def test_by_a_bridge(rig_board, rig_broker, rig_faults, tmp_path):
    heard = rig_broker.subscribe("line/word")
    rig_board.install(tmp_path, {"main.py": APP})
    with rig_board.bridge(rig_faults.fmqp):
        rig_board.reset()
        assert heard.receive(200).payload == b"21.5"
    assert rig_faults.connections() >= 1
"""

_PLUGIN = ("-p", "boards.pytest_plugin")


def _pytest(
    folder: Path,
    tests: str,
    *arguments: str,
    plugin: Sequence[str] = _PLUGIN,
    path: Sequence[Path] = (),
) -> "subprocess.CompletedProcess[str]":
    (folder / "test_board.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", *plugin, "-q", "-rs"),
            *("-p", "no:cacheprovider", "-W", "error", "--junitxml", str(folder / "junit.xml")),
            *("--rig-out", str(folder / "out"), *arguments, "test_board.py"),
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        env={
            **os.environ,
            "MOTEMQ_RUNTIME_DIR": str(folder / "runtime"),
            "PYTHONPATH": os.pathsep.join([*map(str, path), *sys.path]),
        },
    )


@pytest.fixture(scope="module")
def esp32(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualBoard]:
    with running_esp32(tmp_path_factory.mktemp("desk") / "e1", "e1") as board:
        yield board


def test_it_is_inert_without_a_rig(tmp_path: Path) -> None:
    done = _pytest(tmp_path, _TESTS)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 4 deselected" in done.stdout
    assert not (tmp_path / "out").exists()


def test_every_board_is_taken_once_and_what_is_missing_is_named(
    tmp_path: Path, esp32: VirtualBoard
) -> None:
    rig = write_rig(tmp_path)
    with VirtualBoard.start("rp2040", "p1", tmp_path / "p1") as pico:  # blank: it is flashed
        write_virtual(tmp_path, esp32)
        write_virtual(tmp_path, pico)
        line = _pytest(
            *(tmp_path, _ON_A_LINE, "--rig", str(rig), "--rig-board", "p1"),
        )
        done = _pytest(tmp_path, _TESTS, "--rig", str(rig))
    assert line.returncode == 0, line.stdout
    assert "1 passed" in line.stdout
    assert done.returncode == 0, done.stdout
    assert "5 passed, 1 skipped" in done.stdout
    assert "the desk has 0 boards for caps psram, 1 are wanted" in done.stdout
    cases = ET.parse(tmp_path / "junit.xml").getroot().iter("testcase")
    (e1,) = [case for case in cases if case.get("name") == "test_says_who_it_is[e1]"]
    said = {one.get("name"): one.get("value") for one in e1.iter("property")}
    assert said["board"] == "e1"
    assert said["answers"] == "1 count"
    assert re.fullmatch("[0-9a-f]{64}", said["firmware_sha"] or "")


def test_a_failure_shows_what_the_board_said(tmp_path: Path, esp32: VirtualBoard) -> None:
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    done = _pytest(tmp_path, _FAILING, "--rig", str(rig), "--rig-no-flash")
    assert done.returncode == 1, done.stdout
    assert "what e1 said" in done.stdout
    assert "these were my last words" in done.stdout
    assert "out/logs/e1.serial.log" in done.stdout


_MISSING = """
import pytest

@pytest.mark.rig(caps={"psram"})
def test_psram(rig_board):
    raise AssertionError("no board here has psram")

@pytest.mark.rig(count=2)
def test_two(rig_boards):
    raise AssertionError("there is one board here")

def test_uid(rig_board):
    pass
"""


def test_a_board_that_the_desk_does_not_have_is_an_error_and_not_a_skip(
    tmp_path: Path, esp32: VirtualBoard
) -> None:
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    done = _pytest(tmp_path, _MISSING, "--rig", str(rig), "--rig-no-flash")
    assert done.returncode == 1, done.stdout
    assert "1 passed, 2 errors" in done.stdout
    assert "the desk has 0 boards for caps psram, 1 are wanted" in done.stdout
    assert "the desk has 1 boards for this choice, 2 are wanted" in done.stdout
    done = _pytest(tmp_path, _MISSING, "--rig", str(rig), "--rig-board", "e7")
    assert done.returncode == 4, done.stdout
    assert "no board 'e7' on this desk; there are: e1" in done.stdout


def test_workers_share_boards_and_not_their_tests(tmp_path: Path, esp32: VirtualBoard) -> None:
    """-n 2 alone: all tests of a board are in one worker, and count as proof."""
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    tests = "import os\n" + "".join(
        f"""
def test_{number}(rig_board, rig_measure):
    rig_measure("worker", float(os.environ["PYTEST_XDIST_WORKER"][2:]), "")
"""
        for number in range(3)
    )
    words = ("--rig", str(rig), "--rig-no-flash", "-n", "2")
    done = _pytest(tmp_path, tests, *words)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    found = ET.parse(tmp_path / "junit.xml").getroot().iter("property")
    workers = [one.get("value") for one in found if one.get("name") == "worker"]
    assert len(workers) == 3
    assert len(set(workers)) == 1
    done = _pytest(tmp_path, "def test_nothing(): pass", *words)
    assert done.returncode == 4, done.stdout
    assert "rig: no test ran on a board" in done.stdout


@pytest.mark.parametrize("plugin", [(), _PLUGIN], ids=["by its entry point", "named, too"])
def test_an_installed_motemq_brings_the_plugin_along(tmp_path: Path, plugin: Sequence[str]) -> None:
    """Its entry point of pyproject.toml, in metadata as pip writes them."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    (points,) = project["entry-points"].values()
    metadata = tmp_path / "site" / "installed_motemq-1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: installed-motemq\nVersion: 1\n"
    )
    (metadata / "entry_points.txt").write_text(
        "[pytest11]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
    )
    done = _pytest(tmp_path, _TESTS, plugin=plugin, path=[tmp_path / "site"])
    assert done.returncode == 0, done.stdout
    assert "1 passed, 4 deselected" in done.stdout


@pytest.mark.parametrize("arguments", [["--rig-cap", "psram"], ["-k", "without_a_board"]])
def test_a_session_without_a_board_proves_nothing(
    tmp_path: Path, esp32: VirtualBoard, arguments: list[str]
) -> None:
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    tests = _TESTS.replace("def test_broker", "def no").replace("count=2", "count=2, optional=True")
    tests = tests.replace("def test_says", "@pytest.mark.rig(optional=True)\ndef test_says")
    done = _pytest(tmp_path, tests, "--rig", str(rig), *arguments)
    assert done.returncode == 4, done.stdout
    assert "rig: no test ran on a board" in done.stdout


def test_a_wrong_board_is_an_error_and_not_a_skip(tmp_path: Path, esp32: VirtualBoard) -> None:
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32, identity="0123456789ab")
    boots = esp32.control.state()["boots"]
    done = _pytest(tmp_path, _FAILING, "--rig", str(rig))
    assert done.returncode == 1, done.stdout
    assert "1 error" in done.stdout
    assert f"says it is {esp32.address.uid}, expected 0123456789ab" in done.stdout
    assert esp32.control.state()["boots"] == boots


def test_a_wrong_desk_is_a_usage_error(tmp_path: Path) -> None:
    rig = write_rig(tmp_path, "colour = 1\n")
    done = _pytest(tmp_path, _FAILING, "--rig", str(rig))
    assert done.returncode == 4
    assert f"{rig}:2: unknown key colour" in done.stdout


@pytest.mark.parametrize("mark", ['cpas={"psram"}', '"psram"', 'caps="psram"'])
def test_a_mark_that_is_mistyped_chooses_no_board(tmp_path: Path, mark: str) -> None:
    rig = write_rig(tmp_path)
    tests = f"import pytest\n\n@pytest.mark.rig({mark})\n{_FAILING.lstrip()}"
    done = _pytest(tmp_path, tests, "--rig", str(rig))
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    assert '::test_fails: write its mark as rig(caps={"wifi"}, count=1' in done.stdout


def test_the_lock_is_the_rigs(tmp_path: Path, esp32: VirtualBoard) -> None:
    """A test that holds the board sees it locked by us, under pytest's name."""
    rig = write_rig(tmp_path)
    write_virtual(tmp_path, esp32)
    tests = f"""
from pathlib import Path
from boards.inventory.locks import holder

def test_held(rig_board):
    held = holder(Path({str(tmp_path / ".rig")!r}), "e1")
    assert held is not None
    assert held.what == "pytest --rig"
"""
    done = _pytest(tmp_path, tests, "--rig", str(rig), "--rig-no-flash")
    assert done.returncode == 0, done.stdout
    BoardLock.take(tmp_path / ".rig", "e1", "free again").release()
