"""``python -m benchmarks reliability`` in its short form, and what it must notice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main
from benchmarks.reliability import kills, page
from benchmarks.reliability.acknowledged import LEVELS, ROWS, measure
from benchmarks.reliability.kills import campaign
from benchmarks.reliability.power_loss import Disk


def _take(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["reliability", "--seed", "7", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_kills_lose_nothing(tmp_path: Path) -> None:
    said = _take("kills", "--short", "--folder", str(tmp_path))
    cells = said.splitlines()[-2].strip("| ").split(" | ")
    assert cells[0] == "3"
    assert int(cells[1].replace(",", "")) > 0
    assert cells[3:7] == ["0"] * 4
    assert list(tmp_path.iterdir()) == []


def test_losses_of_power_lose_nothing(tmp_path: Path) -> None:
    said = _take("power", "--short", "--folder", str(tmp_path))
    assert said.splitlines()[-2].strip("| ").split(" | ")[3:7] == ["0"] * 4


_WRITER = """
import os, sys
os.chdir(sys.argv[1])
for name, after in (("synced", b""), ("longer", b" and more"), ("unsynced", b"")):
    file = os.open(name, os.O_WRONLY | os.O_CREAT)
    os.write(file, b"some")
    if name != "unsynced":
        os.fsync(file)
    os.write(file, after)
os.rename("old", "renamed")
os.mkdir("folder")
if len(sys.argv) > 2:
    os.fsync(os.open(".", os.O_RDONLY))
"""


@pytest.mark.parametrize("folder_synced", [False, True])
def test_the_disk_keeps_what_was_synced_and_nothing_else(
    tmp_path: Path, folder_synced: bool
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_text("old")
    disk = Disk(root, tmp_path / "notes")
    argv = [sys.executable, "-c", _WRITER, str(root), *(["and the folder"] * folder_synced)]
    subprocess.run(argv, check=True, env=dict(disk.environment))
    disk.lose_power()
    found = {path.name: path.is_dir() or path.read_text() for path in root.iterdir()}
    if folder_synced:
        named = {"renamed": "old", "folder": True, "unsynced": ""}
        assert found == {"synced": "some", "longer": "some", **named}
    else:
        assert found == {"old": "old"}


def test_faults_are_measured(tmp_path: Path) -> None:
    said = _take("faults", "--short", "--folder", str(tmp_path))
    rows = [line for line in said.splitlines() if line.startswith("| ")][1:]
    assert len(rows) == 4
    assert all(re.search(r"\| \d[\d.]* (s|MiB|ms) ?(\(.*\) )?\| ≤ ", row) for row in rows), said


def test_each_level_is_measured() -> None:
    row = next(each for each in ROWS if each.name == "retained")
    found = measure(row, 1, 0.1)
    assert list(found) == list(LEVELS)
    assert all(figures.per_second > 0 for each in found.values() for figures in each)


@pytest.mark.parametrize(
    ("said", "tails"),
    [
        ("", 0),
        (
            "broker: journal: torn: /d/p0000/00000000000000000010.mjl, offset 64: the last 7 bytes "
            "were never whole (messages 10 to 12); message 10 is the next one\n",
            1,
        ),
        (
            "broker: journal: torn: /d/p0000/00000000000000000010.mjl: the segment header is cut "
            "short; it has no message\n",
            1,
        ),
        ("broker: journal: torn: /d/groups.json: it is not what the broker writes\n", None),
        ("broker: something else\n", None),
    ],
)
def test_a_torn_tail_is_all_that_a_broker_may_say(said: str, tails: int | None) -> None:
    if tails is None:
        with pytest.raises(RuntimeError, match="the broker said"):
            kills.torn_tails(said.encode())
    else:
        assert kills.torn_tails(said.encode()) == tails


def test_a_broker_that_ends_by_itself_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "broker.lock").mkdir()
    with pytest.raises(RuntimeError, match="did not start: broker: error: cannot use --data"):
        campaign(tmp_path, 1, 7)


def test_the_page_has_a_place_for_every_table() -> None:
    text = page.PAGE.read_text()
    for name in ("cost", "faults", "kills", "power"):
        once = page.replaced(text, name, "| a table |")
        assert "| a table |" in once
        assert page.replaced(once, name, "| a table |") == once
        assert page.replaced(text, name, r"\1") != once
    with pytest.raises(ValueError, match="no place for the table 'others'"):
        page.replaced(text, "others", "")
