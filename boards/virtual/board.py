"""One interface for every kind of virtual board: start it, know its address, press its buttons.

A board is a process of its own, ``python -m boards.virtual.CHIP --id ID --state-dir DIR``. It
prints one JSON line when it is ready (``serial_url``, ``serial_urls``, ``data_url``,
``control_port``, ``bootsel_dir``, ``uid``) and stops, with all its children, when its standard
input ends. So a parent that is killed leaves no board behind. Boards with a fault are ESP32s
(``esp32/faults.py``), each fault a kind of its own.
"""

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from boards.virtual.address import KINDS, BoardAddress, BoardKind, command, read_address
from boards.virtual.control import BoardControl, BoardError, BoardState
from boards.virtual.lifetime import handle as process_handle
from boards.virtual.rp2040.node import NodeError, find_node

__all__ = [
    "KINDS",
    "BoardAddress",
    "BoardControl",
    "BoardError",
    "BoardKind",
    "BoardState",
    "NodeError",
    "VirtualBoard",
    "find_node",
    "process_handle",
]

_STOP_S = 5.0  # for a clean stop; then the process group is killed


class VirtualBoard:
    """A running virtual board; leaving the ``with`` block stops it."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: BoardAddress) -> None:
        self._process = process
        self.address = address
        self.control = BoardControl(address.control_port)

    @classmethod
    def start(
        cls,
        kind: BoardKind,
        id: str,
        state_dir: Path,
        *,
        lan: Path | None = None,
        timeout_s: float = 30.0,
    ) -> "VirtualBoard":
        """Start a board and wait until its console and control port answer.

        ``state_dir`` is made if absent and holds the board's flash and its ``board.log``; a board
        started again on it finds its files. ``lan``: the folder of the access point that it can
        join (``VirtualLan``); without, a board that has a network uses this machine's sockets.
        ``timeout_s`` is in seconds. Raises ``BoardError`` with the end of the log when the board
        does not come up.
        """
        state_dir = state_dir.absolute()
        state_dir.mkdir(parents=True, exist_ok=True)
        log = state_dir / "board.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command(kind, id, state_dir, lan),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the parent; the board stops by its stdin
            )
        try:
            if process.stdout is None:
                raise BoardError("the board's output is not a pipe")
            stdout = process.stdout.fileno()
            return cls(process, read_address(kind, id, stdout, state_dir, timeout_s))
        except BaseException:
            end_process(process)
            raise

    @property
    def pid(self) -> int:
        """Process id of the board's supervisor."""
        return self._process.pid

    def stop(self) -> None:
        """Stop the board and everything it started; harmless when it has stopped already."""
        end_process(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def end_process(process: "subprocess.Popen[bytes]") -> None:
    """End a process that ends with its standard input, and leads a session of its own."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        # Its own session was made for it at start, so this reaches its children and nobody else.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=_STOP_S)
    if process.stdout is not None:
        process.stdout.close()
