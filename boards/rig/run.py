"""One run of the rig: start the crew, write down what it says, come to a verdict."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from boards.models import Model
from boards.rig.checks.registry import CHECKS
from boards.rig.console import read_sections
from boards.rig.crew import Crew, Message
from boards.rig.environment import environment
from boards.rig.events import RunFiles
from boards.rig.plan import STEPS, Job
from boards.rig.report.history import FORMER, runs_before
from boards.rig.report.page import write_page
from boards.rig.show import BoardState, Show

PASSED, FAILED, FAULT, NOTHING_RAN = 0, 1, 3, 4


def run(
    jobs: Sequence[Job], models: Mapping[str, Model], *, out: Path, rig: str, console: Console
) -> tuple[int, Path]:
    """Run all jobs in parallel; return an exit code and the folder of the run's files.

    0 passed, 1 a check failed, 3 rig fault, 4 nothing ran. Writes the files below
    ``out``. Ends every process it started, whatever happens.
    """
    files = RunFiles(out, rig)
    boards = {
        job.board.id: BoardState(job, models[job.board.model].id, models[job.board.model].virtual)
        for job in jobs
    }
    clerk = _Clerk(files, boards, models)
    began = time.monotonic()
    files.event(event="run_started", message=", ".join(boards))
    files.event(event="environment", message=json.dumps(environment(sys.argv)))
    try:
        wanted = {name for job in jobs for name in job.checks}
        checks = [name for name in CHECKS if name in wanted]
        with Show(console, boards, checks) as show, Crew(jobs) as crew:
            for said in crew.messages():
                if said is None:
                    show.refresh()
                    continue
                for line in clerk.write_down(*said):
                    show.line(line)
        code = verdict(boards)
        files.event(
            event="run_finished",
            outcome={PASSED: "passed", FAILED: "failed"}.get(code, "error"),
            duration_s=time.monotonic() - began,
        )
    finally:
        files.close()
    show.summary()
    for line in (f"rig: {files.folder}", f"report: {_page(files.folder)}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return code, files.folder


def _page(folder: Path) -> str:
    try:
        return str(write_page(folder, former=runs_before(folder, FORMER)))
    except OSError as error:
        return f"none: {error}"  # the verdict stands without it


def verdict(boards: dict[str, BoardState]) -> int:
    """Return the exit code: a failed check outranks a rig fault, as it is a verdict."""
    outcomes = [
        outcome
        for board in boards.values()
        for outcome in [*board.steps.values(), *board.checks.values()]
    ]
    if "failed" in outcomes:
        return FAILED
    if "error" in outcomes:
        return FAULT
    if not any(board.checks for board in boards.values()):
        return NOTHING_RAN
    return PASSED


class _Clerk:
    """Turns what workers say into lines of the run's files and the state that is shown."""

    def __init__(
        self, files: RunFiles, boards: dict[str, BoardState], models: Mapping[str, Model]
    ) -> None:
        self._files = files
        self._boards = boards
        self._models = models
        self._ports: dict[str, str] = {}

    def write_down(self, job: Job, message: Message) -> list[str]:
        """Write one message of a worker; return plain lines to show."""
        board = self._boards[job.board.id]
        kind = message.pop("kind")
        if kind == "progress":
            board.detail = message["text"]
        elif kind == "about":
            self._ports[job.board.id] = message["port"]
        elif kind == "samples":
            self._samples(job, board, message)
        elif kind == "lost":
            return self._lost(job, board, message)
        else:
            if message["event"] == "board_finished":
                self._console(job)
            self._files.event(**self._columns(job), **message)
            return self._event(board, message)
        return []

    def _console(self, job: Job) -> None:
        """Keep what the board said with the run: its log is written over by the next one."""
        for said in read_sections(Path(job.log_dir) / f"{job.board.id}.serial.log"):
            words = {"step": said.step, "check": said.check, "message": said.text}
            self._files.event(**self._columns(job), event="console", **words)

    def _columns(self, job: Job) -> dict[str, object]:
        model = self._models[job.board.model]
        return {
            "board_id": job.board.id,
            "model": model.id,
            "port": self._ports.get(job.board.id, ""),
            "virtual": model.virtual,
            "fw_sha": job.fw_sha,
            "client_sha": job.client_sha,
        }

    def _samples(self, job: Job, board: BoardState, message: Message) -> None:
        values = message.pop("values")
        for seq, value in enumerate(values):
            self._files.sample(**self._columns(job), **message, value=value, seq=seq)
        if message["metric"] == "rtt":
            board.rtt_us = values

    def _event(self, board: BoardState, message: Message) -> list[str]:
        id, outcome = board.job.board.id, message.get("outcome", "")
        what = f"{message.get('step', '')} {message.get('check', '')}".strip()
        if message["event"] == "step_started":
            board.step, board.detail = message["step"], ""
            return [f"{id}: {what} …"]
        if message["event"] == "board_finished":
            board.ended_s = time.monotonic()
            board.step, board.detail = outcome, ""
            return [f"{id}: {outcome} in {message['duration_s']:.1f} s"]
        if message["event"] not in ("step_finished", "check_finished"):
            return []
        if message["event"] == "check_finished":
            board.checks[message["check"]] = outcome
        else:
            board.steps[message["step"]] = outcome
        text = message["message"]
        attempt = message.get("attempt", 1)
        if outcome == "passed" and attempt > 1:
            board.flaky.append(f"{what} passed at attempt {attempt}")
        elif outcome != "passed":
            board.failures.append(f"{what} {outcome}: {text}")
        return [f"{id}: {what} {outcome} in {message['duration_s']:.1f} s" + (text and f": {text}")]

    def _lost(self, job: Job, board: BoardState, message: Message) -> list[str]:
        """A worker is gone: its step and all later ones are errors."""
        lines = []
        step = message["step"] or STEPS[0]
        for name in STEPS[STEPS.index(step) :]:
            text = message["message"] if name == step else f"not run: step {step} failed"
            finished: Message = {"event": "step_finished", "step": name, "outcome": "error"}
            finished |= {"message": text, "duration_s": 0.0}
            self._files.event(**self._columns(job), **finished)
            lines += self._event(board, finished)
        duration_s = time.monotonic() - board.started_s
        ended: Message = {"event": "board_finished", "outcome": "error", "duration_s": duration_s}
        self._console(job)
        self._files.event(**self._columns(job), **ended)
        return [*lines, *self._event(board, ended)]
