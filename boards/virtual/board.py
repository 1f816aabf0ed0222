"""One interface for every kind of virtual board: start it, know its address, press its buttons.

A board is a process of its own, ``python -m boards.virtual.CHIP --id ID --state-dir DIR``. It
prints one JSON line when it is ready (``serial_url``, ``serial_urls``, ``data_url``,
``control_port``, ``bootsel_dir``, ``uid``) and stops, with all its children, when its standard
input ends. So a parent that is killed leaves no board behind. Boards with a fault are ESP32s
(``esp32/faults.py``), each fault a kind of its own.
"""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from boards.virtual.control import BoardControl, BoardError, BoardState

__all__ = [
    "KINDS",
    "BoardAddress",
    "BoardControl",
    "BoardError",
    "BoardKind",
    "BoardState",
    "VirtualBoard",
]

BoardKind = Literal[
    "rp2040",
    "esp32",
    "silent",
    "babbling",
    "vanishing",
    "wrong-identity",
    "slow",
    "wedged",
    "corrupted-flash",
    "flaky",
]
KINDS: tuple[BoardKind, ...] = get_args(BoardKind)

_STOP_S = 5.0  # for a clean stop; then the process group is killed
_LOG_TAIL_BYTES = 2000
_READY_LIMIT_BYTES = 65536


@dataclass(frozen=True, slots=True)
class BoardAddress:
    """Where a running virtual board is found; plain data that may be sent to other processes."""

    id: str
    kind: BoardKind
    uid: str  # lower-case hex, as machine.unique_id() of the board shows it
    serial_url: str  # the console, for pyserial and mpremote
    data_url: str | None  # UART1 as socket://127.0.0.1:PORT, or None
    bootsel_dir: Path | None  # appears with INFO_UF2.TXT while the board waits for a UF2
    control_port: int  # for BoardControl, on 127.0.0.1
    # The same console by other ways: "socket", "pty", and "rfc2217" where DTR and RTS matter.
    serial_urls: Mapping[str, str] = field(default_factory=dict)


class VirtualBoard:
    """A running virtual board; leaving the ``with`` block stops it."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: BoardAddress) -> None:
        self._process = process
        self.address = address
        self.control = BoardControl(address.control_port)

    @classmethod
    def start(
        cls, kind: BoardKind, id: str, state_dir: Path, *, timeout_s: float = 30.0
    ) -> "VirtualBoard":
        """Start a board and wait until its console and control port answer.

        ``state_dir`` is made if absent and holds the board's flash and its ``board.log``; a board
        started again on it finds its files. ``timeout_s`` is in seconds. Raises ``BoardError``
        with the end of the log when the board does not come up.
        """
        state_dir = state_dir.absolute()
        state_dir.mkdir(parents=True, exist_ok=True)
        log = state_dir / "board.log"
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                command(kind, id, state_dir),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the parent; the board stops by its stdin
            )
        try:
            ready = _read_ready(process, time.monotonic() + timeout_s, timeout_s)
            return cls(process, _address(kind, id, ready))
        except (BoardError, ValueError, KeyError, TypeError) as error:
            _end(process)
            raise BoardError(
                f"virtual {kind} board {id!r} did not start: {error}{_tail(log)}"
            ) from None
        except BaseException:
            _end(process)
            raise

    @property
    def pid(self) -> int:
        """Process id of the board's supervisor."""
        return self._process.pid

    def stop(self) -> None:
        """Stop the board and everything it started; harmless when it has stopped already."""
        _end(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def command(kind: BoardKind, id: str, state_dir: Path) -> list[str]:
    """Return the command line of a board's process."""
    chip, fault = (kind, []) if kind in ("rp2040", "esp32") else ("esp32", ["--fault", kind])
    where = ["--id", id, "--state-dir", str(state_dir)]
    return [sys.executable, "-m", f"boards.virtual.{chip}", *where, *fault]


def _read_ready(
    process: "subprocess.Popen[bytes]", deadline: float, timeout_s: float
) -> Mapping[str, Any]:
    if process.stdout is None:
        raise BoardError("its output is not a pipe")
    line = b""
    while not line.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise BoardError(f"it printed no ready line within {timeout_s:g} s")
        chunk = os.read(process.stdout.fileno(), 4096)
        if not chunk:
            raise BoardError("it ended before it was ready")
        line += chunk
        if len(line) > _READY_LIMIT_BYTES:
            raise BoardError("it printed something else than a ready line")
    ready = json.loads(line)
    if not isinstance(ready, dict):
        raise BoardError(f"its ready line is no JSON object: {line!r}")
    return ready


def _address(kind: BoardKind, id: str, ready: Mapping[str, Any]) -> BoardAddress:
    data_url, bootsel_dir = ready.get("data_url"), ready.get("bootsel_dir")
    return BoardAddress(
        id=id,
        kind=kind,
        uid=str(ready["uid"]),
        serial_url=str(ready["serial_url"]),
        data_url=str(data_url) if data_url else None,
        bootsel_dir=Path(str(bootsel_dir)) if bootsel_dir else None,
        control_port=int(str(ready["control_port"])),
        serial_urls={str(way): str(url) for way, url in ready["serial_urls"].items()},
    )


def _end(process: "subprocess.Popen[bytes]") -> None:
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


def _tail(log: Path) -> str:
    text = log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return f"\nend of {log}:\n{text}" if text else f" (nothing in {log})"
