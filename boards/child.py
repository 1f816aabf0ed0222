"""Programs of ours as children: each says where it is, and ends with its standard input.

So none of them outlives us, however we end.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_STOP_S = 10.0  # for a clean stop; then the process group is killed
_READY_LIMIT_BYTES = 65536


class ChildError(Exception):
    """A program did not say where it is; the text says what it did instead."""


class Child:
    """A running program; leaving the ``with`` block stops it."""

    def __init__(self, argv: Sequence[str], log: Path, start_s: float) -> None:
        """Start it with its stderr in ``log`` and read its ready line, ``self.ready``.

        Raises ``ChildError`` if there is none within ``start_s`` seconds.
        """
        with log.open("wb") as stderr:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for us; it ends by its stdin
            )
        try:
            if self._process.stdout is None:
                raise ChildError("its output is not a pipe")
            self.ready = read_ready(self._process.stdout.fileno(), start_s)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self) -> None:
        """Stop it and everything it started; harmless when it has ended already."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            # Its own session was made for it, so this reaches its children and nobody else.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(_STOP_S)
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def read_ready(stdout: int, timeout_s: float) -> Mapping[str, Any]:
    """Read the JSON line that a program prints when it is ready. Raises ``ChildError``."""
    deadline = time.monotonic() + timeout_s
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([stdout], [], [], left)[0]:
            raise ChildError(f"it printed no ready line within {timeout_s:g} s")
        chunk = os.read(stdout, 4096)
        if not chunk:
            raise ChildError("it ended before it was ready")
        line += chunk
        if len(line) > _READY_LIMIT_BYTES:
            raise ChildError("it printed something else than a ready line")
    try:
        ready = json.loads(line)
    except ValueError:
        ready = None
    if not isinstance(ready, dict):
        raise ChildError(f"its ready line is no JSON object: {line!r}")
    return ready
