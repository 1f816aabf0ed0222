"""Turns what workers say into lines of the run's files and the state that is shown."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boards.inventory.models import Model
from boards.reports.axes import amount
from boards.reports.board_state import BoardState
from boards.reports.console import read_sections
from boards.reports.percentiles import percentile
from boards.reports.record import NOT_RUN
from boards.session.events import RunFiles
from boards.session.plan import STEPS, Job

Message = dict[str, Any]
_FACTS = ("port", "firmware")


class EventWriter:
    """Writes one run's files and keeps the states of its boards."""

    def __init__(
        self, files: RunFiles, boards: dict[str, BoardState], models: Mapping[str, Model]
    ) -> None:
        self._files = files
        self._boards = boards
        self._models = models
        self._facts: dict[str, dict[str, str]] = {}  # of a board: its port, its firmware

    def write_down(self, job: Job, message: Message) -> list[str]:
        """Write one message of a worker; return plain lines to show."""
        board = self._boards[job.board.id]
        kind = message.pop("kind")
        if kind == "progress":
            _progress(board, message["text"])
        elif kind == "about":
            facts = self._facts.setdefault(job.board.id, {})
            facts |= {name: message[name] for name in _FACTS if name in message}
        elif kind == "samples":
            self._samples(job, board, message)
        elif kind == "lost":
            return self._lost(job, board, message)
        else:
            if message["event"] == "board_finished":
                self._leave_out(job, board)
                self._console(job)
            self._files.event(**self._columns(job), **message)
            return _event(board, message)
        return []

    def _leave_out(self, job: Job, board: BoardState) -> None:
        """Say of each check that was to be run and was not, why."""
        ended = "the board is absent" if board.absent else "the step check ended before it"
        for step, outcome in board.steps.items():
            if outcome in ("failed", "error") and step != "check":
                ended = f"step {step} {'failed' if outcome == 'failed' else 'had an error'}"
                break
        for name in (*job.checks, *job.left_out):
            if name not in board.checks:
                why = job.left_out.get(name, ended)
                words = {"step": "check", "check": name, "outcome": "skipped", "message": why}
                finished: Message = {"event": "check_finished", **words, "duration_s": 0.0}
                self._files.event(**self._columns(job), **finished)
                _event(board, finished)

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
            **dict.fromkeys(_FACTS, ""),
            **self._facts.get(job.board.id, {}),
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
        if values:
            figure = amount(percentile(values, 50), message["unit"])
            board.figures.setdefault(message["check"], figure)

    def _lost(self, job: Job, board: BoardState, message: Message) -> list[str]:
        """A worker is gone: its step and all later ones are errors."""
        lines = []
        step = message["step"] or STEPS[0]
        for name in STEPS[STEPS.index(step) :]:
            text = message["message"] if name == step else f"{NOT_RUN}{step} failed"
            finished: Message = {"event": "step_finished", "step": name, "outcome": "error"}
            finished |= {"message": text, "duration_s": 0.0}
            self._files.event(**self._columns(job), **finished)
            lines += _event(board, finished)
        ended: Message = {"event": "board_finished", "outcome": "error"}
        ended["duration_s"] = board.elapsed_s
        self._leave_out(job, board)
        self._console(job)
        self._files.event(**self._columns(job), **ended)
        return [*lines, *_event(board, ended)]


def _progress(board: BoardState, text: str) -> None:
    if board.step == "check" and text in board.job.checks:
        board.check, board.detail, board.since_s = text, "", time.monotonic()
    else:
        board.detail = text


def _event(board: BoardState, message: Message) -> list[str]:
    """Change the board's state; return lines for people."""
    event, outcome = message["event"], message.get("outcome", "")
    attempt = message.get("attempt", 1)
    what = f"{message.get('step', '')} {message.get('check', '')}".strip()
    if event == "step_started":
        board.step, board.check, board.detail = message["step"], "", ""
        board.since_s = time.monotonic()
        if attempt == 1:
            return [f"{board.id}: {what} …"]
        board.retries += 1
        return [f"{board.id}: {what}, attempt {attempt} …"]
    if event == "board_finished":
        board.ended_s, board.outcome = time.monotonic(), outcome
        board.step = board.check = board.detail = ""
        return [f"{board.id}: {outcome} in {message['duration_s']:.1f} s"]
    if event not in ("step_finished", "check_finished"):
        return []
    text = message["message"]
    if event == "check_finished":
        board.checks[message["check"]] = outcome
        if outcome == "passed" and text and board.job.repeat > 1:
            board.repeated.append(f"{message['check']}: {text}")
        board.check, board.since_s = "", time.monotonic()
    else:
        board.steps[message["step"]] = "not run" if text.startswith(NOT_RUN) else outcome
    if outcome == "passed" and attempt > 1:
        board.flaky.append(f"{what} passed at attempt {attempt}")
    elif outcome == "absent":
        board.absent = text
    elif outcome == "skipped":
        board.skipped[message["check"]] = text
    elif outcome != "passed" and not text.startswith(NOT_RUN):
        board.failures.append(f"{what} {outcome}: {text}")
    took = f"{board.id}: {what} {outcome} in {message['duration_s']:.1f} s"
    return [f"{took}: {text}" if text else took]
