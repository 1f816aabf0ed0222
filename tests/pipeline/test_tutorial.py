"""docs/pipeline.md, "Five minutes", typed into one terminal as it is written."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from benchmarks.faults.processes import descendants, kill_all
from benchmarks.ports import port_for_later
from motemq_pipeline.delta import Table
from motemq_pipeline.storage import Storage

_PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
_END_S = 600.0


def _blocks(kind: str) -> list[str]:
    (part,) = re.findall(r"^## Five minutes\n(.*?)^## ", _PAGE.read_text(), re.DOTALL | re.M)
    return re.findall(rf"^```{kind}\n(.*?)^```", part, re.DOTALL | re.M)


def _until(happened: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + _END_S
    while not happened():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


class _Terminal:
    """A shell; what it and all that runs in it print is in ``lines``."""

    def __init__(self, folder: Path) -> None:
        programs = Path(sys.executable).parent
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        )
        self.lines: list[str] = []
        self._typed = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines += iter(self.process.stdout.readline, "")

    def close(self) -> None:
        """Kill what is left."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        kill_all(self.process)
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def printed(self, pattern: str) -> str:
        """Wait for something in a line; return the first."""
        found: list[str] = []

        def happened() -> bool:
            found[:] = [line for line in self.lines if re.search(pattern, line)]
            return bool(found)

        _until(happened, lambda: f"no '{pattern}' in {self.lines}")
        return found[0]

    def type(self, line: str) -> str:
        """Type a line, wait until the shell asks for the next; return what was printed."""
        assert self.process.stdin is not None
        self._typed += 1
        before = len(self.lines)
        self.process.stdin.write(f"{line}\necho did {self._typed}: $?\n")
        self.process.stdin.flush()
        said = self.printed(f"did {self._typed}: ")
        assert said == f"did {self._typed}: 0\n", f"{line}: {self.lines[before:]}"
        return "".join(self.lines[before : self.lines.index(said)])


@contextmanager
def _terminal(folder: Path) -> Iterator[_Terminal]:
    terminal = _Terminal(folder)
    try:
        yield terminal
    finally:
        terminal.close()


@pytest.mark.alone
@pytest.mark.timeout(1500)  # a Spark, on a machine that may be busy
def test_the_tutorial_runs(tmp_path: Path) -> None:
    port = str(port_for_later())
    for block in _blocks("toml"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block.replace("8765", port))
    background, sensor, looks, page, end = (
        [line for line in block.replace("8765", port).splitlines() if line]
        for block in _blocks("sh")
    )

    def in_tables(table: str, rows: int) -> bool:
        found = Table(Storage.at(tmp_path / "tables"), table)
        return found.exists() and found.count() >= rows

    with _terminal(tmp_path) as terminal:
        for line in background:
            terminal.type(line)
            terminal.printed("^listening auto")
        for line in sensor:
            terminal.type(line)
        assert '"value":34.0' in terminal.printed('"board":"north"')
        made = {"silver_telemetry": 201, "gold_board_health": 1, "gold_rollup_hour": 1}
        for table, count in made.items():
            _until(partial(in_tables, table, count), lambda: str(terminal.lines))
        status, _, rows, report = map(terminal.type, looks)
        assert status.startswith("running, process")
        assert "north" in rows
        assert "34.0" in rows
        assert "report.html" in report
        assert "north" in (tmp_path / "report.html").read_text()
        # Its usual port may be in use here.
        terminal.type(f"{page[0].removesuffix('&')} --listen 127.0.0.1:0 &")
        url = terminal.printed("^pipeline: http://").split()[1]
        with urllib.request.urlopen(f"{url}figure?board=north&span=all", timeout=_END_S) as answer:
            assert json.load(answer)["points"] > 0
        for line in end:
            terminal.type(line)
        assert descendants(terminal.process.pid) == []
        assert not [line for line in terminal.lines if "Traceback" in line]
