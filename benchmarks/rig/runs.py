"""What one run of the rig came to, read from its events, and what many of them did."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Run:
    """One run. ``flakes``: what a healthy board failed, or needed a second try for."""

    code: int
    seconds: float
    checks: int  # that came to a verdict
    flakes: tuple[str, ...]
    untold: tuple[str, ...]  # fault boards that were taken for healthy ones

    @property
    def is_good(self) -> bool:
        """True if every verdict was right."""
        return not self.flakes and not self.untold

    def line(self, number: int) -> str:
        """Return one line for people."""
        wrong = "; ".join([*self.flakes, *(f"{id}: not told" for id in self.untold)]) or "good"
        return f"run {number}: {self.seconds:.0f} s, {self.checks} checks: {wrong}"


def read_run(
    out: Path,
    code: int,
    seconds: float,
    healthy: tuple[str, ...],
    recovering: tuple[str, ...],
    demanded: tuple[str, ...] = (),
) -> Run:
    """Read the only run below ``out``.

    ``healthy`` and ``recovering``: how ids of boards begin that must pass at once, and of those
    that may fail and may pass; all others must fail. ``demanded``: checks that each healthy board
    must have passed: one that was left out proves nothing.
    """
    rows = [
        json.loads(line)
        for path in (out / "rig").glob("date=*/rig=*/run=*/events.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    flakes = [
        f"{row['board_id']} {row['check'] or row['step']} {row['outcome']}"
        f" (attempt {row['attempt']}): {row['message']}"
        for row in rows
        if row["event"] in ("check_finished", "step_finished")
        and row["board_id"].startswith(healthy)
        and (row["outcome"] != "passed" or row["attempt"] > 1)
        and not _is_left_out(row)
    ]
    ended = {row["board_id"]: row["outcome"] for row in rows if row["event"] == "board_finished"}
    passed = {(row["board_id"], row["check"]) for row in rows if row["outcome"] == "passed"}
    flakes += [
        f"{id} {check} was not passed"
        for id in ended
        for check in demanded
        if id.startswith(healthy) and (id, check) not in passed
    ]
    if not ended:
        flakes.append(f"nothing ran, exit code {code}")
    return Run(
        code=code,
        seconds=seconds,
        checks=sum(row["event"] == "check_finished" and not _is_left_out(row) for row in rows),
        flakes=tuple(flakes),
        untold=tuple(
            id
            for id, outcome in ended.items()
            if outcome == "passed" and not id.startswith((*healthy, *recovering))
        ),
    )


def _is_left_out(row: Mapping[str, Any]) -> bool:
    """Whether a check was never begun: the board lacks what it needs, or its step had failed."""
    return row["outcome"] == "skipped" and not row["duration_s"]


def judge(runs: Sequence[Run], say: Callable[[str], None]) -> bool:
    """Say what the runs came to, as a table in Markdown; return whether all were good."""
    if not runs:
        say("no run was finished")
        return False
    times = sorted(run.seconds for run in runs)
    warm = sorted(run.seconds for run in runs[1:]) or times
    bad = [run for run in runs if not run.is_good]
    say("| runs | checks | first s | warm median s | slowest s | runs with a wrong verdict |")
    say("|---|---|---|---|---|---|")
    say(
        f"| {len(runs)} | {sum(run.checks for run in runs)} | {runs[0].seconds:.0f} | "
        f"{warm[len(warm) // 2]:.0f} | {times[-1]:.0f} | {len(bad)} |"
    )
    wrong = Counter(" ".join(flake.split()[:3]) for run in bad for flake in run.flakes)
    for what, count in wrong.most_common():
        say(f"- {count} x {what}")
    return not bad
