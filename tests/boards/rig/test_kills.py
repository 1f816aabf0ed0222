"""The rig is killed at random instants; the next one finds free boards and passes.

The boards' own files are then as they were before the first life, and of the lives that were cut
off nothing is left in the temporary directory.

``MOTEMQ_RIG_KILLS`` says how often (default 2); ``MOTEMQ_RIG_SEED`` repeats a run.
"""

import ast
import os
import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from boards.inventory import unresponsive
from boards.inventory.locks import holder
from boards.repl import Repl
from boards.virtual.board import VirtualBoard
from tests.boards.desk_files import write_rig, write_virtual
from tests.boards.rig_process import (
    Broker,
    eventually,
    processes_naming,
    rig_command,
    rows,
    run_rig,
)

_KILLS = int(os.environ.get("MOTEMQ_RIG_KILLS", "2"))
_BOARDS = ("e1", "p1")
# One that talks, one that ends: the other steps have more of the time in which it is killed.
_CHECKS = ("--checks", "pubsub_up,will_clean")
_OWN_FILES = {"main.py": "greenhouse = 1\n" * 90, "boot.py": "# the board's own\n"}


def test_a_rig_that_is_killed_at_any_instant_leaves_boards_for_the_next(
    broker: Broker,
    tmp_path: Path,
    say: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    seed = int(os.environ.get("MOTEMQ_RIG_SEED", time.time_ns() % 1_000_000))
    say(f"{_KILLS} kills, MOTEMQ_RIG_SEED={seed}")
    chance = random.Random(seed)
    rig, out = write_rig(tmp_path), tmp_path / "out"
    with (
        VirtualBoard.start("esp32", "e1", tmp_path / "e1") as esp32,
        VirtualBoard.start("rp2040", "p1", tmp_path / "p1") as pico,
    ):
        for board in (esp32, pico):
            write_virtual(tmp_path, board)
        began = time.monotonic()
        first = run_rig(out, broker, "--rig", str(rig), *_CHECKS)
        assert first.returncode == 0, first.stdout
        whole_s = time.monotonic() - began
        for board in (esp32, pico):
            _write_own_files(board)
        for number in range(_KILLS):
            at_s = chance.uniform(0.0, whole_s)
            # --force: each life writes flash, so that some die in the middle of it.
            _kill_after(at_s, rig_command(out, broker, "--rig", str(rig), "--force", *_CHECKS))
            where = f"kill {number}, after {at_s:.2f} of {whole_s:.2f} s, seed {seed}"
            eventually(lambda: not _left_over(out), 60, f"{where}: {_left_over(out)}")
            for id in _BOARDS:
                assert holder(tmp_path / ".rig", id) is None, where
                assert unresponsive.why(tmp_path / ".rig", id) == "", where
            if list((out / "rig").glob("date=*/rig=*/run=*/events.jsonl")):
                assert rows(out, "events.jsonl"), where
            again = run_rig(out, broker, "--rig", str(rig), *_CHECKS)
            assert again.returncode == 0, f"{where}\n{again.stdout}"
            assert list(scratch.glob("motemq-*")) == [], where
            for board in (esp32, pico):
                assert _own_files(board) == _OWN_FILES, where


def _write_own_files(board: VirtualBoard) -> None:
    with Repl.open(board.address.serial_url, deadline_s=60) as repl:
        for name, text in _OWN_FILES.items():
            repl.exec(f"with open('/{name}', 'w') as f: f.write({text!r})", deadline_s=60)


def _own_files(board: VirtualBoard) -> dict[str, str]:
    with Repl.open(board.address.serial_url, deadline_s=60) as repl:
        said = repl.exec(f"print([open('/' + n).read() for n in {[*_OWN_FILES]}])", deadline_s=60)
    return dict(zip(_OWN_FILES, ast.literal_eval(said), strict=True))


def _kill_after(seconds: float, command: list[str]) -> None:
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as rig:
        try:
            rig.wait(seconds)
        except subprocess.TimeoutExpired:
            rig.kill()


def _left_over(out: Path) -> list[str]:
    # The virtual boards are the test's own; everything of a rig names its --out.
    return processes_naming(str(out))
