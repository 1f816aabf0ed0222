"""The workers as the parent sees them: started, listened to, brought together, and surely gone."""

import contextlib
import json
import os
import secrets
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from boards.session.plan import Job
from boards.virtual.board import process_handle

WAIT_S = 60.0  # for others, from when the first has come


class Meeting:
    """One check's meeting. ``ids``: the boards that have the check."""

    def __init__(self, ids: list[str], wait_s: float = WAIT_S) -> None:
        self._coming = set(ids)
        self._here: list[str] = []
        self._wait_s = wait_s
        self._until: float | None = None

    def arrive(self, id: str, now: float) -> None:
        """A board is there and waits."""
        self._coming.discard(id)
        self._here.append(id)
        if self._until is None:
            self._until = now + self._wait_s

    def leave(self, id: str) -> None:
        """A board will not come, or waits no longer."""
        self._coming.discard(id)
        if id in self._here:
            self._here.remove(id)

    def group(self, now: float) -> list[str]:
        """Return the boards that begin now, in order, each once; empty while they wait."""
        if not self._here or self._until is None:
            return []
        if self._coming and now < self._until:
            return []
        group, self._here, self._until = sorted(self._here), [], None
        return group


_FIRST_WORD_S = 60.0
_GRACE_S = 20.0  # beyond a step's own limit, before the worker is given up
_STOP_S = 15.0
_BOARD_ENDS_S = 5.0  # at least, whose worker is gone
_LOOK_S = 0.25

_OURS = ("time", "meet")  # messages that are for the pool

Message = dict[str, Any]


@dataclass(slots=True)
class _Member:
    """One worker process and what it is doing."""

    job: Job
    process: "subprocess.Popen[bytes]"
    give_up_at: float
    step: str = ""
    pending: bytes = b""
    finished: bool = False
    board: BinaryIO | None = None  # a virtual board's process, see ``process_handle``
    reason: str = field(default="")


class WorkerPool:
    """One worker process per job; leaving the ``with`` block ends all of them."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._members: list[_Member] = []
        self._selector = selectors.DefaultSelector()
        self._meetings = {
            check: Meeting([job.board.id for job in jobs if check in job.checks])
            for check in {check for job in jobs for check in job.checks}
        }

    def __enter__(self) -> "WorkerPool":
        try:
            for job in self._jobs:
                self._members.append(self._start(job))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._end()

    def messages(self) -> Iterator[tuple[Job, Message] | None]:
        """Yield what workers say until all are done, and ``None`` in between to draw by.

        A worker that ends without ``board_finished``, or overstays a step, yields
        ``{"kind": "lost", "step": …, "message": …}`` once and is killed.
        """
        while any(not member.finished for member in self._members):
            yield None
            for key, _ in self._selector.select(_LOOK_S):
                member: _Member = key.data
                yield from ((member.job, message) for message in self._read(member))
            self._bring_together()
            now = time.monotonic()
            for member in self._members:
                if not member.finished and now > member.give_up_at:
                    self._kill(member)
                    yield member.job, self._lost(member, "the worker overstayed its time")

    def _start(self, job: Job) -> _Member:
        log = Path(job.log_dir) / f"{job.board.id}.worker.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "boards.session.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is ours; workers end by their stdin
            )
        member = _Member(job, process, time.monotonic() + _FIRST_WORD_S)
        if process.stdin is None or process.stdout is None:
            raise ValueError("a worker's stdin and stdout are pipes")
        process.stdin.write(job.to_json().encode() + b"\n")
        process.stdin.flush()
        self._selector.register(process.stdout, selectors.EVENT_READ, member)
        return member

    def _read(self, member: _Member) -> list[Message]:
        if member.process.stdout is None:
            raise ValueError("a worker's stdout is a pipe")
        data = os.read(member.process.stdout.fileno(), 65536)
        if not data:
            self._selector.unregister(member.process.stdout)
            if member.finished:
                return []
            return [self._lost(member, "the worker process ended unexpectedly")]
        *lines, member.pending = (member.pending + data).split(b"\n")
        messages: list[Message] = [json.loads(line) for line in lines]
        for message in messages:
            self._follow(member, message)
        return [message for message in messages if message["kind"] not in _OURS]

    def _bring_together(self) -> None:
        members = {member.job.board.id: member for member in self._members}
        for check, meeting in self._meetings.items():
            group = meeting.group(time.monotonic())
            token = secrets.token_hex(6)
            for id in group:
                peers = [(each, members[each].job.board.protocol) for each in group]
                self._tell(members[id], {"check": check, "peers": peers, "token": token})

    def _tell(self, member: _Member, message: Message) -> None:
        if member.process.stdin is None:
            raise ValueError("a worker's stdin is a pipe")
        with contextlib.suppress(OSError):  # it is gone: its end is told elsewhere
            member.process.stdin.write(json.dumps(message).encode() + b"\n")
            member.process.stdin.flush()

    def _leave(self, member: _Member, check: str = "") -> None:
        for name, meeting in self._meetings.items():
            if check in ("", name):
                meeting.leave(member.job.board.id)

    def _follow(self, member: _Member, message: Message) -> None:
        if message["kind"] == "meet":
            self._meetings[message["check"]].arrive(member.job.board.id, time.monotonic())
        if message["kind"] == "time":
            member.give_up_at = time.monotonic() + message["limit_s"] + _GRACE_S
        if message["kind"] != "event":
            return
        if message["event"] == "step_started":
            member.step = message["step"]
            member.give_up_at = time.monotonic() + message.pop("limit_s") + _GRACE_S
        elif message["event"] == "step_finished" and message["step"] == "start":
            self._watch_board(member)
        elif message["event"] == "check_finished":
            self._leave(member, message["check"])
        elif message["event"] == "step_finished" and message["step"] == "check":
            self._leave(member)
        elif message["event"] == "board_finished":
            member.finished = True
            self._leave(member)

    def _watch_board(self, member: _Member) -> None:
        """A virtual board of a worker that is killed ends by itself, and is waited for."""
        if member.board is None and not member.job.board.file:
            member.board = process_handle(Path(member.job.state_dir))

    def _lost(self, member: _Member, reason: str) -> Message:
        member.finished = True
        self._watch_board(member)
        self._leave(member)
        log = Path(member.job.log_dir) / f"{member.job.board.id}.worker.log"
        return {"kind": "lost", "step": member.step, "message": f"{reason}; its log: {log}"}

    def _kill(self, member: _Member) -> None:
        if member.process.poll() is None:
            # Its own session was made for it: this reaches its tools and nobody else. The
            # virtual board, in a session of its own, ends by its stdin.
            os.killpg(member.process.pid, signal.SIGKILL)

    def _end(self) -> None:
        for member in self._members:
            if member.process.stdin is not None:
                member.process.stdin.close()
        until = time.monotonic() + _STOP_S
        for member in self._members:
            try:
                member.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._kill(member)
                member.process.wait(_STOP_S)
            if member.process.stdout is not None:
                member.process.stdout.close()
            if member.board is not None:
                left = max(_BOARD_ENDS_S, until - time.monotonic())
                with member.board as board:
                    if not select.select([board], [], [], left)[0]:
                        with contextlib.suppress(ProcessLookupError):  # it ended just now
                            signal.pidfd_send_signal(board.fileno(), signal.SIGKILL)
                        select.select([board], [], [], _BOARD_ENDS_S)
        self._selector.close()
