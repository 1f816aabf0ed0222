"""``motemq bridge`` as a process that dies with its test."""

import contextlib
import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.boards.serial_board import DEADLINE_S

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def motemq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "motemq", *arguments]


class Process:
    """A running command and the lines that it has said."""

    def __init__(self, arguments: list[str], runtime: Path | None) -> None:
        environment = dict(os.environ, PYTHONUNBUFFERED="1")
        if runtime is not None:
            environment["MOTEMQ_RUNTIME_DIR"] = str(runtime)
        self.popen = subprocess.Popen(
            motemq(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            preexec_fn=_die_with_parent,
        )
        self.lines: list[str] = []
        self._queue: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with self.popen.stdout as stream:
            for line in stream:
                self._queue.put(line.rstrip("\n"))

    def wait_for(self, words: str) -> str:
        """Return the next line that has ``words``."""
        until = time.monotonic() + DEADLINE_S
        while True:
            left = until - time.monotonic()
            try:
                line = self._queue.get(timeout=max(left, 0.001))
            except queue.Empty:
                raise AssertionError(f"no line with {words!r} among {self.lines}") from None
            self.lines.append(line)
            if words in line:
                return line

    def log(self) -> str:
        """All that it has said."""
        with contextlib.suppress(queue.Empty):
            while True:
                self.lines.append(self._queue.get_nowait())
        return "\n".join(self.lines)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it and return its exit code."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        code = self.popen.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        self.log()
        return code


@contextlib.contextmanager
def running(*arguments: str, runtime: Path | None = None) -> Iterator[Process]:
    process = Process(list(arguments), runtime)
    try:
        yield process
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.end()


def status(runtime: Path) -> list[dict[str, Any]]:
    """What ``motemq bridge --status --json`` says of all ports."""
    done = subprocess.run(
        motemq("bridge", "--status", "--json", "--runtime-dir", str(runtime)),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    return [port for process in json.loads(done.stdout)["processes"] for port in process["ports"]]
