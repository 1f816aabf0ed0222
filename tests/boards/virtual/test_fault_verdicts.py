"""``motemq rig run`` on a desk full of faults: each is told, the healthy board passes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from firmware import build
from tests.boards.rig_process import QUICK_CHECKS, Broker, outcomes, processes_naming, rows, run_rig

_COMMAND_S = 120.0

# Of each kind of fault: the step in which it shows, and what is said of it.
_VERDICTS = {
    "silent": ("flash", "Failed to connect to Espressif device: No serial data received"),
    "babbling": ("flash", r"no raw REPL within .* \(\d{5,} bytes came\)"),
    "vanishing": ("install", "it vanished while mpremote used it; is the board plugged in"),
    "wrong-identity": ("flash", "says it is .* expected .*; nothing was written"),
    "wedged": ("flash", r"no raw REPL within .* \(\d{1,3} bytes came\)"),
    "corrupted-flash": ("flash", "MD5 of file does not match data in flash"),
    "flaky": ("flash", "Failed to connect to Espressif device: No serial data received"),
}


def _virtual(*arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "motemq", "rig", "virtual", *arguments],
        check=True,
        timeout=_COMMAND_S,
    )


def test_every_fault_is_told_and_the_healthy_board_passes(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.ensure("vesp32")
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    out = tmp_path / "out"
    (tmp_path / "rig.toml").write_text("virtual = true\n")
    _virtual("up", "esp32", *_VERDICTS)
    try:
        rig = ["--rig", str(tmp_path / "rig.toml"), "--retries", "0"]
        result = run_rig(out, broker, *rig, "--limit", "flash=25", "--limit", "install=60")
    finally:
        _virtual("down")
    assert result.returncode == 3, result.stdout
    assert outcomes(out, "vesp32-1", "check_finished", "check") == dict.fromkeys(
        QUICK_CHECKS, "passed"
    )
    for kind, (step, words) in _VERDICTS.items():
        steps = outcomes(out, f"{kind}-1", "step_finished", "step")
        first = next(name for name, outcome in steps.items() if outcome != "passed")
        assert (first, steps[first]) == (step, "error"), kind
        (said,) = [
            row["message"]
            for row in rows(out, "events.jsonl")
            if (row["event"], row["board_id"]) == ("step_finished", f"{kind}-1")
            and row["step"] == step
        ]
        assert re.search(words, said, re.DOTALL), f"{kind}: {said}"
    assert processes_naming(str(tmp_path)) == []
    assert os.listdir(tmp_path / "runtime" / "desk") == [".lock"]


def test_a_flaky_board_passes_at_the_third_attempt_and_is_called_flaky(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build.ensure("vesp32")
    monkeypatch.setenv("MOTEMQ_RUNTIME_DIR", str(tmp_path / "runtime"))
    out = tmp_path / "out"
    (tmp_path / "rig.toml").write_text("virtual = true\n")
    _virtual("up", "flaky")
    try:
        result = run_rig(out, broker, "--rig", str(tmp_path / "rig.toml"))
    finally:
        _virtual("down")
    assert result.returncode == 0, result.stdout
    attempts = [
        (row["attempt"], row["outcome"])
        for row in rows(out, "events.jsonl")
        if (row["event"], row["step"]) == ("step_finished", "flash")
    ]
    assert attempts == [(1, "error"), (2, "error"), (3, "passed")]
    assert "flash passed at attempt 3" in result.stdout
