"""Runs as the rig writes them, by its own writer, with times of our choice."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from boards.session.event_writer import RunFiles

S = 1_000_000_000
_STEPS = ("start", "flash", "install", "check", "telemetry", "stop")


class MadeRun:
    """Writes a run's two files; times are seconds after the beginning of the run."""

    def __init__(self, out: Path, rig: str = "made", run_id: str = "") -> None:
        self._files = RunFiles(out, rig)
        self.folder = self._files.folder
        if run_id:  # else two runs of the same second have no order
            self.folder = self.folder.rename(self.folder.with_name(f"run={run_id}"))
        self._board: dict[str, Any] = {}
        self.event(0, event="run_started")

    def environment(self, **facts: str) -> None:
        self.event(0, event="environment", message=json.dumps(facts))

    def board(self, id: str, *, virtual: bool = True, model: str = "virtual-rp2040") -> None:
        self._board = {
            **{"board_id": id, "model": model, "virtual": virtual, "port": "/dev/pts/7"},
            **{"fw_sha": "f" * 64, "client_sha": "c" * 64},
        }

    def event(self, at: float, **columns: Any) -> None:
        of_run = str(columns["event"]).startswith(("run_", "environment"))
        board = {} if of_run else self._board
        self._files.event(**board, mono_ns=int((100 + at) * S), **columns)

    def step(
        self, name: str, began: float, took: float, outcome: str = "passed", **columns: Any
    ) -> None:
        self.event(began, event="step_started", step=name)
        finished = {"event": "step_finished", "step": name, "outcome": outcome, "duration_s": took}
        self.event(began + took, **finished, **columns)

    def check(
        self, name: str, began: float, took: float, outcome: str = "passed", message: str = ""
    ) -> None:
        finished = {"event": "check_finished", "step": "check", "check": name}
        words = {"outcome": outcome, "duration_s": took, "message": message}
        self.event(began + took, **finished, **words)

    def samples(
        self, check: str, metric: str, unit: str, values: Sequence[float], at: float, **columns: Any
    ) -> None:
        about = {"check": check, "metric": metric, "unit": unit, "outcome": "passed"}
        for seq, value in enumerate(values):
            row = {**about, "value": value, "seq": seq, "mono_ns": int((100 + at) * S), **columns}
            self._files.sample(**self._board, **row)

    def end(self, at: float, outcome: str = "passed") -> Path:
        self.event(at, event="run_finished", outcome=outcome, duration_s=at)
        self._files.close()
        return self.folder

    def abort(self) -> Path:
        self._files.close()
        return self.folder


def passing_board(
    run: MadeRun, id: str, *, rtt_us: Sequence[float] = (), seconds: float = 2
) -> None:
    """Write a board that passes everything, ``seconds`` per step."""
    run.board(id)
    run.event(0, event="board_started")
    for number, step in enumerate(_STEPS):
        run.step(step, number * seconds, seconds)
    for number, check in enumerate(("pubsub_up", "ping")):
        run.check(check, 3 * seconds + number * seconds / 2, seconds / 2)
    if rtt_us:
        run.samples("ping", "rtt", "us", rtt_us, 3.9 * seconds)
    run.event(6 * seconds, event="board_finished", outcome="passed", duration_s=6 * seconds)
