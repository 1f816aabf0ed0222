"""``motemq rig run`` as a process, its results, and what it leaves running."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

RUN_S = 240.0
# What a run does here unless a test says otherwise: each way of a message, and the board's end.
QUICK_CHECKS = ["pubsub_up", "pubsub_down", "ping", "will_clean", "will_abrupt"]


@dataclass(frozen=True)
class Broker:
    fmqp: str
    lightmq: str

    def options(self) -> list[str]:
        return ["--fmqp", self.fmqp, "--lightmq", self.lightmq]


def rig_command(out: Path, broker: Broker, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "motemq", "rig", "run", "--out", str(out)]
    if "--checks" not in arguments:
        command += ["--checks", ",".join(QUICK_CHECKS)]
    return [*command, *broker.options(), *arguments]


def run_rig(out: Path, broker: Broker, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        rig_command(out, broker, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_S,
    )


def rows(out: Path, name: str) -> list[dict[str, Any]]:
    paths = sorted((out / "rig").glob(f"date=*/rig=*/run=*/{name}"))
    return [json.loads(line) for line in paths[-1].read_text().splitlines()]


def outcomes(out: Path, board: str, event: str, column: str) -> dict[str, str]:
    return {
        row[column]: row["outcome"]
        for row in rows(out, "events.jsonl")
        if row["board_id"] == board and row["event"] == event
    }


def processes_naming(word: str) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            work = os.readlink(folder / "cwd") + str(_stdin_job(folder))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if word in command + work and int(folder.name) != os.getpid():
            found.append(command)
    return found


def _stdin_job(folder: Path) -> list[str]:
    # A worker's command line names no folder, but the log that is its stderr does.
    return [os.readlink(fd) for fd in (folder / "fd").glob("2")]


def eventually(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def start_and_wait_for(line: str, command: list[str]) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen = []
    for text in process.stdout:
        seen.append(text)
        if line in text:
            return process
    process.wait(20)
    pytest.fail(f"no {line!r} in: " + "".join(seen))


def link_of(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
