"""``motemq`` commands as processes, as a shell would run them."""

import os
import re
import select
import subprocess
import time
from collections.abc import Callable

from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import motemq, spawn

END_S = 60.0

Process = subprocess.Popen[bytes]


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run to the end; no mistake of a user is worth a traceback."""
    done = subprocess.run(motemq(*arguments), input=stdin, capture_output=True, timeout=END_S)
    assert b"Traceback" not in done.stderr
    return done


def opened(*arguments: str) -> Process:
    """Start a command whose stdin is a pipe that stays open."""
    return spawn(motemq(*arguments), stdin=subprocess.PIPE)


def started(*arguments: str, says: bytes) -> Process:
    """Open a command and return when it has said a line on stderr."""
    process = opened(*arguments)
    line = error_line(process)
    assert re.search(says, line), line
    return process


def subscribed(*arguments: str) -> Process:
    """Start ``motemq sub`` and return when its subscription is active."""
    process = spawn(motemq("sub", *arguments))
    assert error_line(process) == b"subscribed\n"
    return process


def error_line(process: Process) -> bytes:
    """Return the next line of stderr; fails after ``END_S``."""
    assert process.stderr is not None
    ready, _, _ = select.select([process.stderr], [], [], END_S)
    return process.stderr.readline() if ready else b""


def ended(process: Process, stdin: bytes | None = None) -> tuple[int, bytes, bytes]:
    stdout, stderr = process.communicate(stdin, timeout=END_S)
    assert b"Traceback" not in stderr
    return process.returncode, stdout, stderr


def fmqp(url: str) -> Client:
    client = connect(url)
    return client


def read_until(file: int, found: Callable[[bytes], bool], timeout_s: float = END_S) -> bytes:
    """Read a file descriptor until ``found`` says so; fails after ``timeout_s``."""
    data = b""
    deadline = time.monotonic() + timeout_s
    while not found(data):
        ready, _, _ = select.select([file], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"only this came: {data!r}"
        data += os.read(file, 65536)
    return data
