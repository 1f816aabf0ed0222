"""One board's process: ``python -m boards.session.worker``, a ``Job`` as the first line of stdin.

It owns the board's serial port for the whole run and prints JSON lines: ``{"kind": "event", …}``,
``"samples"``, ``"progress"``, ``"about"``, ``"time"`` (it needs so much more). When stdin ends (the
parent is gone, or wants us gone) it stops its board and ends.
"""

import datetime
import faulthandler
import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from boards.checks.declared import Check
from boards.checks.limits import limits_of
from boards.checks.registry import known_checks
from boards.inventory.locks import radio
from boards.inventory.models import all_models, models_of
from boards.inventory.target import Absent
from boards.repl import ReplError
from boards.serial_port import PortError
from boards.session.board_session import BoardSession, CheckFailed, Group, NotRun
from boards.session.plan import Job
from boards.session.steps import BoardRun
from boards.session.verdicts import FAULTS, VERDICTS, Repeated, Result, StepFailed, attempted, judge
from boards.session.worker_line import Channel, ParentLine, Reporter
from boards.tool import ToolError
from boards.virtual.control import BoardError

# Of these, what may be over at the next try. A wrong board or image, or a lock, is not.
_TRANSIENT = (BoardError, PortError, ReplError, ToolError)
_RETRIED = ("flash", "install")
_REVIVE_S = 120.0  # for the whole reset ladder, each rung with a boot after it
_HUNG_S = 10.0  # beyond a step's limit; the parent gives up a little later


class _Worker:
    """Runs the steps of one board and reports each."""

    def __init__(self, job: Job, channel: Channel, parent: ParentLine) -> None:
        self._job = job
        self._parent = parent
        self._channel = channel
        models = models_of(Path(job.models_dir)) if job.models_dir else all_models()
        self._run = BoardRun(job, models, Reporter(channel))
        self._outcomes: list[str] = []
        self._broken = ""  # why the remaining steps cannot run

    def stop_board(self) -> None:
        """Stop the board, from whatever thread."""
        self._run.stop()

    def run(self) -> None:
        """Run all steps; the last one, stop, always."""
        began = time.monotonic()
        self._event("board_started")
        self._step("start", self._run.start)
        if "absent" in self._outcomes:
            self._run.stop()
            self._event("board_finished", outcome="absent", duration_s=time.monotonic() - began)
            return
        self._step("flash", self._run.flash)
        self._step("install", self._run.install)
        self._step("check", self._check)
        self._step("telemetry", self._run.telemetry)
        self._broken = ""
        self._step("stop", self._stop)
        outcome = next((o for o in ("error", "failed") if o in self._outcomes), "passed")
        self._event("board_finished", outcome=outcome, duration_s=time.monotonic() - began)

    def _step(self, step: str, body: Callable[[float], str]) -> None:
        tries = 1 + (self._job.retries if step in _RETRIED else 0)
        for attempt in range(1, tries + 1):
            outcome, transient = self._attempt(step, body, attempt)
            if outcome != "error" or not transient or attempt == tries:
                break
            # A step that took all of its time has none left for the ladder.
            self._need_time(_REVIVE_S)
            try:
                self._run.revive()
            except FAULTS:
                break  # no reset brought it back: that is the board's end in this run
        self._outcomes.append(outcome)
        if outcome == "error":
            self._broken = f"not run: step {step} failed"

    def _attempt(self, step: str, body: Callable[[float], str], attempt: int) -> tuple[str, bool]:
        """Run a step once; return its outcome, and whether another try could end otherwise."""
        began = time.monotonic()
        limit_s = self._job.limits_s[step]
        self._event("step_started", step=step, attempt=attempt, limit_s=limit_s)
        _tell_where(limit_s)
        self._run.log.mark(f"step {step}")
        outcome, message, transient = "passed", "", False
        if self._broken:
            outcome, message = "error", self._broken
        else:
            try:
                message = body(began + limit_s)
            except VERDICTS as error:
                outcome, message = "failed", str(error)
            except Absent as error:
                outcome, message = "absent", str(error)
            except FAULTS as error:
                outcome, message = "error", f"{type(error).__name__}: {error}"
                transient = isinstance(error, _TRANSIENT)
            except Exception as error:
                # A mistake of ours, or of a user's check: the board still gets its own files back.
                traceback.print_exc()
                outcome = "error"
                message = f"{type(error).__name__}: {error} (see the worker's log)"
        self._event(
            "step_finished",
            step=step,
            attempt=attempt,
            outcome=outcome,
            duration_s=time.monotonic() - began,
            message=message,
        )
        return outcome, transient

    def _need_time(self, limit_s: float) -> None:
        self._channel.send("time", limit_s=limit_s)
        _tell_where(limit_s)

    def _stop(self, until: float) -> str:
        self._need_time(_REVIVE_S)  # a board may have to be revived first
        try:
            self._run.restore(until)
        finally:
            self._run.stop()
        return ""

    def _check(self, until: float) -> str:
        board = self._run.open_session(until)
        failed, unproven, skipped = [], [], 0
        known = known_checks(self._job.check_files)
        checks = [known[name] for name in self._job.checks]
        try:
            for check in checks:
                if time.monotonic() > until:
                    raise StepFailed(f"no time was left for check {check.name}")
                self._channel.send("progress", text=check.name)
                self._run.log.mark(f"check {check.name}")
                outcome = self._try(board, check, until)
                if outcome == "failed":
                    failed.append(check.name)
                elif outcome == "error":
                    unproven.append(check.name)
                elif outcome == "skipped":
                    skipped += 1
        finally:
            self._run.close_session()
        if failed:
            raise CheckFailed(f"{len(failed)} of {len(checks)} failed: {', '.join(failed)}")
        if unproven:
            raise StepFailed(f"the rig could not do its part of {', '.join(unproven)}")
        return f"{len(checks) - skipped} checks" + (f", {skipped} not run" if skipped else "")

    def _try(self, board: BoardSession, check: Check, until: float) -> str:
        # Peers do it once: nobody would be met a second time.
        tries = 1 if "peer" in check.needs else 1 + self._job.retries
        repeated = Repeated(1 if "peer" in check.needs else self._job.repeat)
        with self._air(check, until):
            return attempted(
                lambda number: self._one_check(board, check, number, repeated),
                board.recover,
                tries=tries,
            )

    def _meet(self, check: Check, board: BoardSession) -> Group | None:
        """Wait for the boards with which this one does the check."""
        if "peer" not in check.needs:
            return None
        self._channel.send("meet", check=check.name)
        while (said := self._parent.wait(board.until - time.monotonic())) is not None:
            if said["check"] == check.name:
                peers = [(id, protocol) for id, protocol in said["peers"]]
                return Group(peers, said["token"])
        raise NotRun("nobody said with whom")

    def _air(self, check: Check, until: float) -> AbstractContextManager[None]:
        """Boards with Wi-Fi share one air: who measures has it alone."""
        if "wifi" not in self._run.target.board.caps:
            return nullcontext()
        left = max(0.0, until - time.monotonic())
        return radio(Path(self._job.rig_dir), alone=check.alone, deadline_s=left)

    def _one_check(self, board: BoardSession, check: Check, number: int, repeated: Repeated) -> str:
        began = time.monotonic()
        name = check.name
        limits = limits_of(self._run.model.kind, self._run.target.board.limits)

        def once() -> Result:
            board.until = time.monotonic() + check.deadline_s
            board.group = self._meet(check, board)
            return judge(check, board, limits)

        def progress(text: str) -> None:
            self._channel.send("progress", text=text)

        try:
            result = repeated.run(once, board.recover, progress)
        except NotRun as error:
            result = Result("skipped", str(error), [])
        outcome, message = result.outcome, result.message
        if outcome == "failed":
            outcome, message = self._quarantined(name, message)
        for each in result.samples:
            limit = each.of.limit
            bound = limit.of(limits) if limit is not None else None
            self._channel.send(
                "samples",
                check=name,
                attempt=number,
                metric=each.of.metric,
                unit=each.of.unit,
                better=each.of.better,
                limit=None if limit is None or bound is None else bound * limit.per_unit,
                values=list(each.values),
                outcome=outcome,
            )
        self._event(
            "check_finished",
            step="check",
            check=name,
            attempt=number,
            outcome=outcome,
            duration_s=time.monotonic() - began,
            message=message,
        )
        if result.fault is not None:
            raise StepFailed(f"check {name}: {message}")
        return outcome

    def _quarantined(self, name: str, message: str) -> tuple[str, str]:
        """A failure that is known and excused until a date does not count until then."""
        excuse = self._run.target.board.quarantine.get(name)
        if excuse is None:
            return "failed", message
        if datetime.date.today() > excuse.until:
            return "failed", f"{message} (its quarantine ended on {excuse.until})"
        return "quarantined", f"{message} (quarantined until {excuse.until}: {excuse.reason})"

    def _event(self, event: str, **columns: Any) -> None:
        self._channel.send("event", event=event, **columns)


def _tell_where(limit_s: float) -> None:
    """If nothing else is allowed until then, say in the worker's log where it hangs."""
    wait_s = min(limit_s + _HUNG_S, threading.TIMEOUT_MAX)
    faulthandler.dump_traceback_later(wait_s, file=2)  # a check may have replaced sys.stderr


def main() -> None:
    """Run the job that stdin names."""
    parent = ParentLine()
    job = Job.from_json(parent.first())
    Path(job.log_dir).mkdir(parents=True, exist_ok=True)
    Path(job.state_dir).mkdir(parents=True, exist_ok=True)
    worker = _Worker(job, Channel(), parent)

    def stop() -> None:
        worker.stop_board()
        # Tools that still run die with us (PR_SET_PDEATHSIG).
        os._exit(130)

    parent.follow(stop)
    worker.run()


if __name__ == "__main__":
    main()
