"""A real ``motemq broker`` for tests."""

import contextlib
import ctypes
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

START_S = 60.0
END_S = 60.0

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def motemq(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "motemq", *arguments]


class BrokerProcess:
    """A running broker; ``urls[protocol]`` and ``ports[protocol]`` say where."""

    def __init__(self, *arguments: str, shell_prefix: str = "") -> None:
        argv = motemq("broker", *arguments)
        if shell_prefix:
            argv = ["sh", "-c", f'{shell_prefix} exec "$@"', "sh", *argv]
        self.process = spawn(argv)
        self.urls: dict[str, str] = {}
        self.ports: dict[str, int] = {}
        for _ in range(max(1, arguments.count("--listen"))):
            line = line_of(self.process, START_S)
            listening, protocol, address = line.split()
            assert listening == "listening"
            self.urls[protocol] = f"{protocol}://{address}"
            self.ports[protocol] = int(address.rpartition(":")[2]) if ":" in address else 0

    def end(self, sent: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """Signal it and return its exit code and what it said on stderr."""
        if self.process.poll() is None:
            self.process.send_signal(sent)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        _, stderr = self.process.communicate(timeout=END_S)
        return self.process.returncode, stderr.decode()

    def rss_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def waited_s(self) -> float:
        """Return for how long the threads of the broker, and ours, have been ready to run while
        others ran (proc(5)): what a busy machine takes is not the broker's doing."""
        ours = Path("/proc/self/task").glob("*/schedstat")
        its = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        waited_ns = 0
        for file in (*ours, *its):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                waited_ns += int(file.read_text().split()[1])
        return waited_ns / 1e9

    def raw(self, protocol: str) -> socket.socket:
        """Return a plain socket to the broker, every wait of which ends after 30 s."""
        return socket.create_connection(("127.0.0.1", self.ports[protocol]), timeout=30)


def spawn(argv: list[str], stdin: int | None = None) -> "subprocess.Popen[bytes]":
    """Start a process that ends with pytest; ``stdin`` as for Popen."""
    # Unbuffered: a line that select() promises must not already be in a buffer of ours.
    return subprocess.Popen(
        argv,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        preexec_fn=_end_with_pytest,
    )


def _end_with_pytest() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def line_of(process: "subprocess.Popen[bytes]", timeout_s: float) -> str:
    """Return the next line of stdout (line by line writers only); fails after ``timeout_s``."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], timeout_s)
    line = process.stdout.readline() if ready else b""
    if not line.endswith(b"\n"):
        process.kill()
        _, stderr = process.communicate(timeout=END_S)
        raise AssertionError(f"no line on stdout; stderr: {stderr.decode()}")
    return line.decode()


@contextlib.contextmanager
def broker(*arguments: str, shell_prefix: str = "") -> Iterator[BrokerProcess]:
    """Run a broker on two free ports while the block lasts."""
    listen = [] if "--listen" in arguments else ["--listen", "fmqp://127.0.0.1:0"]
    if listen:
        listen += ["--listen", "lightmq://127.0.0.1:0"]
    if "--data" not in arguments:
        listen.append("--ephemeral")
    running = BrokerProcess(*listen, *arguments, shell_prefix=shell_prefix)
    try:
        yield running
    finally:
        if running.process.poll() is None:
            running.process.kill()
        if not running.process.stdout.closed:  # type: ignore[union-attr]
            running.process.communicate(timeout=END_S)


def until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Look until ``condition`` holds; fails after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s"
        time.sleep(0.02)
