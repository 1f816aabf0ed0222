"""Run a real tool (esptool, mpremote) as a process, under a deadline, until it is gone.

A timeout is an exception here, never a return code: a caller must not take it for a verdict.
"""

import ctypes
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

from boards.errors import RigError

_KEPT_BYTES = 65536
_KILL_S = 5.0
_PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child between fork and exec must not import or allocate much.
_LIBC = ctypes.CDLL(None)

OnLine = Callable[[str], None]


class ToolError(RigError):
    """A tool failed; the text holds its name, how it ended and its last words."""

    def __init__(self, name: str, what: str, output: str) -> None:
        words = " / ".join(line for line in output.strip().splitlines()[-4:] if line.strip())
        super().__init__(f"{name}: {what}: {words or 'it printed nothing'}")
        self.output = output


class ToolTimeout(ToolError):
    """A tool was not done in time and was killed."""


def run_tool(
    name: str,
    argv: Sequence[str],
    *,
    deadline_s: float,
    env: Mapping[str, str] | None = None,
    on_line: OnLine | None = None,
) -> str:
    """Run ``argv`` to its end and return the tail of what it printed (stdout and stderr).

    ``on_line`` gets each line, and each redrawn progress line, as it comes. Raises ``ToolError``
    for an exit code other than 0, ``ToolTimeout`` after ``deadline_s`` seconds. The tool dies
    with us, however we end.
    """
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        preexec_fn=die_with_parent,
    )
    output = bytearray()
    try:
        done = _read_all(process, output, time.monotonic() + deadline_s, on_line)
    finally:
        process.kill()
        process.wait(_KILL_S)
        if process.stdout is not None:
            process.stdout.close()
    text = output.decode(errors="replace")
    if not done:
        raise ToolTimeout(name, f"not done within {deadline_s:g} s and killed", text)
    if process.returncode != 0:
        raise ToolError(name, f"exit code {process.returncode}", text)
    return text


def die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_all(
    process: "subprocess.Popen[bytes]", output: bytearray, until: float, on_line: OnLine | None
) -> bool:
    """Read to the end of the tool; False if it is not over by ``until``."""
    if process.stdout is None:
        raise ValueError("the tool's output is not a pipe")
    pending = b""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            return False
        data = os.read(process.stdout.fileno(), 65536)
        if not data:
            break
        output += data
        del output[:-_KEPT_BYTES]
        *lines, pending = re.split(rb"[\r\n]+", pending + data)
        if on_line is not None:
            for line in filter(None, lines):
                on_line(line.decode(errors="replace"))
    try:
        process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True
