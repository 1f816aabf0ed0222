"""docs/client-faults.md names checks that exist, and says where and how they are run."""

import re

import pytest

from tests.client_upy import test_boards, test_both_interpreters, test_broker
from tests.client_upy.interpreters import DEVICE, ROOT

_TEXT = (ROOT / "docs" / "client-faults.md").read_text()
_ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in _TEXT.splitlines()
    if line.startswith("| ")
][1:]
_COMPUTER = [
    *test_both_interpreters._DRIVEN,
    *((name,) for name in test_both_interpreters._NAMES + test_both_interpreters._DRIVERS),
    *((name,) for name in test_broker._NAMES),
    ("faults", "sync"),  # test_faults
    ("faults", "aio"),
]


def _drivers(file: str, runs: list[tuple[str, ...]]) -> str:
    """Return the words of a cell for where these runs are done."""
    last = [run[-1] for run in runs if run[0] == file]
    if not last:
        return "no"
    if "sync" in last or "aio" in last:
        found = ["sync"] * ("sync" in last) + ["asyncio"] * ("aio" in last)
        return ", ".join(found)
    return "asyncio" if file.startswith("aio") else "sync"


@pytest.mark.parametrize("row", _ROWS, ids=[row[1].strip("`") for row in _ROWS])
def test_it_is_run_as_the_table_says(row: tuple[str, ...]) -> None:
    _, named, *cells = row
    file, check = named.strip("`").split(".")
    code = (DEVICE / f"check_{file}.py").read_text()
    assert re.search(rf"^@(check|for_both)\ndef {check}\(", code, re.M)
    boards = [test_boards._RUNS["rp2040"], test_boards._RUNS["esp32"]]
    assert cells == [_drivers(file, runs) for runs in [_COMPUTER, *boards]]


def test_the_table_is_read() -> None:
    assert len(_ROWS) > 20
