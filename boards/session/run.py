"""One run of the rig: start the pool, write down what it says, come to a verdict."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from boards.checks.declared import Check
from boards.inventory.models import Model
from boards.reports.board_state import BoardState
from boards.reports.environment import environment
from boards.reports.history import FORMER, read_runs, runs_before, usual_seconds
from boards.reports.live_table import LiveTable, TimeEstimate
from boards.reports.page import write_page
from boards.reports.summary import print_summary
from boards.session.event_writer import EventWriter, RunFiles
from boards.session.plan import Job
from boards.session.worker_pool import WorkerPool

_PACE_RUNS = 5  # former runs that say how long things take
PASSED, FAILED, FAULT, NOTHING_RAN = 0, 1, 3, 4


def run(
    jobs: Sequence[Job],
    checks: Sequence[Check],
    models: Mapping[str, Model],
    *,
    out: Path,
    rig: str,
    console: Console,
) -> tuple[int, Path]:
    """Run all jobs in parallel; return an exit code and the folder of the run's files.

    ``checks``: those that were chosen, which the jobs have by their names.

    0 passed, 1 a check failed, 3 rig fault, 4 nothing ran. Writes the files below
    ``out``. Ends every process it started, whatever happens.
    """
    files = RunFiles(out, rig)
    boards = {
        job.board.id: BoardState(job, models[job.board.model].id, models[job.board.model].virtual)
        for job in jobs
    }
    writer = EventWriter(files, boards, models)
    meetings = [check.name for check in checks if "peer" in check.needs]
    former = runs_before(files.folder, _PACE_RUNS)
    pace = TimeEstimate(usual_seconds(read_runs(former, samples=False)))
    began = time.monotonic()
    files.event(event="run_started", message=", ".join(boards))
    files.event(event="environment", message=json.dumps(environment(sys.argv)))
    try:
        with LiveTable(console, list(boards.values()), pace) as show, WorkerPool(jobs) as pool:
            for said in pool.messages():
                if said is None:
                    show.refresh()
                    continue
                for line in writer.write_down(*said):
                    show.line(line)
        code = verdict(boards, meetings)
        files.event(
            event="run_finished",
            outcome={PASSED: "passed", FAILED: "failed"}.get(code, "error"),
            duration_s=time.monotonic() - began,
        )
    finally:
        files.close()
    print_summary(console, list(boards.values()), [check.name for check in checks], sys.argv)
    for name in unmet(boards, meetings):
        line = f"rig: error: {name}: no two boards met, so it proves nothing"
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    for line in (f"rig: {files.folder}", f"report: {_page(files.folder)}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return code, files.folder


def _page(folder: Path) -> str:
    try:
        return str(write_page(folder, former=runs_before(folder, FORMER)))
    except Exception as error:  # the verdict stands without a page, whatever is wrong with it
        return f"none: {type(error).__name__}: {error}"


def verdict(boards: Mapping[str, BoardState], meetings: Sequence[str] = ()) -> int:
    """Return the exit code: a failed check outranks a rig fault, as it is a verdict.

    ``meetings``: the checks that boards do together.
    """
    outcomes = [
        outcome
        for board in boards.values()
        for outcome in [*board.steps.values(), *board.checks.values()]
    ]
    if "failed" in outcomes:
        return FAILED
    if "error" in outcomes or "invalid" in outcomes:
        return FAULT
    ran = [outcome for board in boards.values() for outcome in board.checks.values()]
    if all(outcome == "skipped" for outcome in ran):
        return NOTHING_RAN
    return FAULT if unmet(boards, meetings) else PASSED


def unmet(boards: Mapping[str, BoardState], meetings: Sequence[str]) -> list[str]:
    """Return the meetings for which boards were there that have not met: they prove nothing."""
    there = [board for board in boards.values() if not board.absent]
    found = []
    for name in meetings:
        ended = [board.checks.get(name) for board in there if name in board.job.checks]
        if len(ended) > 1 and set(ended) == {"skipped"}:
            found.append(name)
    return found
