"""The proxy as a child of the rig: it ends with the run, however that ends."""

import json
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

from boards.faults.control import ProxyControl, ProxyError

_START_S = 60.0
_STOP_S = 10.0


def can_stand_at(host: str) -> bool:
    """Return whether ``host`` is an address of this machine, so that a proxy can listen there."""
    try:
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind((host, 0))
    except OSError:
        return False
    return True


class FaultProxy:
    """A running proxy; leaving the ``with`` block stops it. ``port`` is its control port."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self._process = process
        self.port = port
        self.control = ProxyControl(port)

    @classmethod
    def start(cls, log: Path) -> Self:
        """Start it, with its trace and its complaints in ``log``. Raises ``ProxyError``."""
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "boards.faults"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the rig; the proxy ends by its stdin
            )
        try:
            if process.stdout is None:
                raise ProxyError("the proxy's output is not a pipe")
            ready, _, _ = select.select([process.stdout], [], [], _START_S)
            line = os.read(process.stdout.fileno(), 4096) if ready else b""
            if not line:
                raise ProxyError(f"the fault proxy did not start; its log: {log}")
            return cls(process, int(json.loads(line)["control_port"]))
        except BaseException:
            _end(process)
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self) -> None:
        """End it; harmless when it has ended already."""
        _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_S)
    if process.stdout is not None:
        process.stdout.close()
