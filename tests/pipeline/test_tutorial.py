"""docs/pipeline.md, "Five minutes", done as it is written."""

import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
_END_S = 600.0


def _blocks(kind: str) -> list[str]:
    (part,) = re.findall(r"^## Five minutes\n(.*?)^## ", _PAGE.read_text(), re.DOTALL | re.M)
    return re.findall(rf"^```{kind}\n(.*?)^```", part, re.DOTALL | re.M)


@contextmanager
def _in_the_background(lines: list[str], folder: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start the commands one after the other; the first is the broker, which says when it is up."""
    started: list[subprocess.Popen[str]] = []
    try:
        for line in lines:
            process = subprocess.Popen(_argv(line), stdout=subprocess.PIPE, text=True, cwd=folder)
            started.append(process)
            if "broker" in line:
                assert process.stdout is not None
                assert process.stdout.readline().startswith("listening auto")
        yield started
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.communicate(timeout=_END_S)


def _argv(line: str) -> list[str]:
    return [sys.executable, "-m", *shlex.split(line.removesuffix("&"))]


def _done(line: str, folder: Path) -> str:
    done = subprocess.run(_argv(line), capture_output=True, text=True, timeout=_END_S, cwd=folder)
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


@pytest.mark.alone
@pytest.mark.timeout(1500)  # a Spark for the run, and one for the question
def test_the_tutorial_runs(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    for block in _blocks("toml"):
        name = block.splitlines()[0].removeprefix("# ")
        (tmp_path / name).write_text(block.replace("8765", port))
    background, sensor, looks = (
        [line for line in block.replace("8765", port).splitlines() if line]
        for block in _blocks("sh")
    )
    with _in_the_background(background, tmp_path) as (_, _, subscriber):
        for line in sensor:
            _done(line, tmp_path)
        said, _ = subscriber.communicate(timeout=_END_S)
        assert subscriber.returncode == 0
        assert '"board":"north"' in said
        assert '"value":34.0' in said
        deadline = time.monotonic() + _END_S
        while not _in_tables(tmp_path, "silver_telemetry", 201):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        while not _in_tables(tmp_path, "gold_board_health", 1):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        status, _, rows, report = (_done(line, tmp_path) for line in looks)
    assert status.startswith("running, process")
    assert "north" in rows
    assert "34.0" in rows
    assert "report.html" in report
    assert "north" in (tmp_path / "report.html").read_text()


def _in_tables(folder: Path, table: str, rows: int) -> bool:
    from motemq_pipeline.delta import Table
    from motemq_pipeline.storage import Storage

    found = Table(Storage.at(folder / "tables"), table)
    return found.exists() and found.count() >= rows
