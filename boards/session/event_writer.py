"""Turns what workers say into the run's files (docs/rig-events.md) and the state that is shown.

Every line has every column and is flushed at once: a run killed at any time leaves whole lines.
"""

import datetime
import json
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from boards.inventory.models import Model
from boards.reports.axes import amount, percentile
from boards.reports.board_state import BoardState
from boards.reports.console import read_sections
from boards.reports.record import NOT_RUN
from boards.session.plan import STEPS, Job

_SCHEMA_VERSION = 1
_BOARD_COLUMNS: dict[str, Any] = {
    "board_id": "",
    "model": "",
    "port": "",
    "virtual": False,
    "firmware": "",
    "fw_sha": "",
    "client_sha": "",
}
_EVENT_COLUMNS: dict[str, Any] = {
    "event": "",
    "step": "",
    "check": "",
    "attempt": 1,
    "outcome": "",
    "duration_s": None,
    "message": "",
}
_SAMPLE_COLUMNS: dict[str, Any] = {
    "check": "",
    "attempt": 1,
    "metric": "",
    "unit": "",
    "value": None,
    "seq": 0,
    "outcome": "",
    "better": "",
    "limit": None,
}


def stamp() -> dict[str, Any]:
    """Return the columns ``ts`` and ``mono_ns`` for now."""
    now = datetime.datetime.now(datetime.UTC)
    return {"ts": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "mono_ns": time.monotonic_ns()}


class RunFiles:
    """The two files of one run, made in ``OUT/rig/date=…/rig=NAME/run=RUN_ID/``."""

    def __init__(self, out: Path, rig: str) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self.run_id = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
        self.folder = out / "rig" / f"date={now:%Y-%m-%d}" / f"rig={rig}" / f"run={self.run_id}"
        self.folder.mkdir(parents=True)
        self._lead = {"schema_version": _SCHEMA_VERSION, "run_id": self.run_id, "rig": rig}
        self._events = (self.folder / "events.jsonl").open("w", encoding="utf-8")
        self._samples = (self.folder / "samples.jsonl").open("w", encoding="utf-8")

    def event(self, **columns: Any) -> None:
        """Append one event; unknown columns raise ``TypeError``."""
        self._write(self._events, _EVENT_COLUMNS, columns)

    def sample(self, **columns: Any) -> None:
        """Append one sample; unknown columns raise ``TypeError``."""
        self._write(self._samples, _SAMPLE_COLUMNS, columns)

    def close(self) -> None:
        """Close both files."""
        self._events.close()
        self._samples.close()

    def _write(self, file: TextIO, known: dict[str, Any], columns: dict[str, Any]) -> None:
        row = {**self._lead, **stamp(), **_BOARD_COLUMNS, **known}
        if unknown := columns.keys() - row.keys():
            raise TypeError(f"no such columns: {sorted(unknown)}")
        row.update(columns)
        file.write(json.dumps(row) + "\n")
        file.flush()


Message = dict[str, Any]
_FACTS = ("port", "firmware")
# What a board, or a check of a user's own, says at any length. A report leaves out lines that are
# too long, and with them a verdict.
_SAID = {"message", *_FACTS}
_MESSAGE_CHARACTERS = 10_000


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
        for name in _SAID & message.keys():
            message[name] = _shortened(message[name])
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
        if board.check:  # what it was doing, and never ended
            words = {"step": step, "check": board.check, "message": message["message"]}
            took_s = time.monotonic() - board.since_s
            check: Message = {"event": "check_finished", **words, "outcome": "error"}
            check["duration_s"] = took_s
            self._files.event(**self._columns(job), **check)
            lines += _event(board, check)
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


def _shortened(text: str) -> str:
    left_out = len(text) - _MESSAGE_CHARACTERS
    if left_out <= 0:
        return text
    return f"{text[:_MESSAGE_CHARACTERS]} … {left_out} more characters"


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
