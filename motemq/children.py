"""Child processes that never outlive us, and never outstay their deadline.

A child is stopped with SIGTERM, then SIGKILL; if we are killed ourselves, the kernel tells it
(PR_SET_PDEATHSIG), so that no way of ending leaves a process behind.
"""

import contextlib
import ctypes
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_STOP_GRACE_S = 15.0
_LOOK_S = 1.0  # between looks at progress

# Loaded before any fork: a child between fork and exec must not import or allocate much.
_LIBC = ctypes.CDLL(None)


class ChildFailed(Exception):
    """A child did not do its part; the text says which, how it ended and where its log is."""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def motemq(*arguments: str) -> list[str]:
    """Return the argv that runs ``motemq ARGUMENTS`` with this very interpreter."""
    return [sys.executable, "-m", "motemq", *arguments]


def stop(process: subprocess.Popen[str]) -> int:
    """End a child: SIGTERM, and SIGKILL 15 s later. Returns its exit code."""
    if process.poll() is None:
        process.terminate()
    try:
        return process.wait(_STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def run(
    argv: Sequence[str], *, deadline_s: float, progress: Callable[[], object] | None = None
) -> int:
    """Run a child in the foreground and return its exit code.

    The child shares our terminal. Raises ``ChildFailed`` if it is still running after
    ``deadline_s`` seconds (it is then stopped). With ``progress`` that is the time without any: as
    often as what this returns is another value than before, it begins again.
    """
    process = subprocess.Popen(argv, text=True, preexec_fn=_die_with_parent)
    try:
        seen = progress() if progress is not None else None
        until = time.monotonic() + deadline_s
        while True:
            left_s = until - time.monotonic()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(max(0.0, min(left_s, _LOOK_S)))
            now_seen = progress() if progress is not None else None
            if now_seen != seen:
                seen, until = now_seen, time.monotonic() + deadline_s
            elif left_s <= 0:
                name = " ".join(argv[1:5])
                how = "did not get on for" if progress is not None else "was not done after"
                raise ChildFailed(f"'{name} …' {how} {deadline_s:.0f} s and was stopped")
    finally:
        stop(process)


@dataclass(frozen=True, slots=True)
class Service:
    """A running background child and the lines of its start-up that were waited for."""

    process: subprocess.Popen[str]
    ready_lines: list[str]


@contextlib.contextmanager
def service(
    argv: Sequence[str], *, ready_count: int, ready_prefix: str, log: Path, deadline_s: float
) -> Iterator[Service]:
    """Run a child in the background while the block lasts.

    Enters the block when the child has printed ``ready_count`` lines that begin with
    ``ready_prefix`` on stdout; everything else it says goes to ``log``. Raises ``ChildFailed`` if
    it ends or stays silent for ``deadline_s`` seconds first, or if stopping it gave a non-zero
    exit code other than that of SIGTERM.
    """
    with log.open("w") as log_file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            text=True,
            preexec_fn=_die_with_parent,
        )
        name = " ".join(argv[2:4])
        output = _StandardOutput(process, ready_count, ready_prefix, log_file)
        try:
            if not output.ready(deadline_s):
                is_late = not output.is_over
                code = stop(process)
                if is_late:
                    raise ChildFailed(f"'{name}' was not ready within {deadline_s:g} s")
                tail = log.read_text().strip().splitlines()[-1:] or ["it said nothing"]
                raise ChildFailed(f"'{name}' did not start (exit code {code}): {tail[0]}")
            yield Service(process, output.lines)
            if process.poll() is not None:
                code = process.returncode
                raise ChildFailed(f"'{name}' ended too early, exit code {code}; its log: {log}")
        finally:
            code = stop(process)
            output.join()
        if code not in (0, -signal.SIGTERM):
            raise ChildFailed(f"'{name}' ended with exit code {code}; its log: {log}")


class _StandardOutput:
    """Reads a child's stdout to its end, so that the child never blocks on a full pipe.

    The first ``count`` lines that begin with ``prefix`` are kept in ``lines``, the rest is logged.
    """

    def __init__(
        self, process: subprocess.Popen[str], count: int, prefix: str, log_file: IO[str]
    ) -> None:
        self.lines: list[str] = []
        self.is_over = False  # nothing more comes
        self._count = count
        self._decided = threading.Event()
        self._thread = threading.Thread(
            target=self._drain, args=(process.stdout, prefix, log_file), daemon=True
        )
        self._thread.start()

    def ready(self, deadline_s: float) -> bool:
        """Wait until all lines are here (True), or the output ended or time is up (False)."""
        self._decided.wait(deadline_s)
        return len(self.lines) == self._count

    def join(self) -> None:
        """Wait for the end of the output of a child that has ended."""
        self._thread.join(_STOP_GRACE_S)

    def _drain(self, stream: IO[str], prefix: str, log_file: IO[str]) -> None:
        with stream:
            for line in stream:
                if line.startswith(prefix) and len(self.lines) < self._count:
                    self.lines.append(line.rstrip("\n"))
                    if len(self.lines) == self._count:
                        self._decided.set()
                else:
                    log_file.write(line)
        self.is_over = True
        self._decided.set()
