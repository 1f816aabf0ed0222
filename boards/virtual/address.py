"""The kinds of virtual boards, how a board's process is called, and where it says that it is."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from boards.child import ChildError, read_ready
from boards.virtual.control import BoardError

BoardKind = Literal[
    "rp2040",
    "rp2040w",
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

LOG = "board.log"  # in its state folder
_LOG_TAIL_BYTES = 2000


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
    uart0_url: str | None = None  # UART0 as socket://127.0.0.1:PORT, where the console is not on it
    lan: Path | None = None  # the folder of the access point that it can join


def command(kind: BoardKind, id: str, state_dir: Path, lan: Path | None = None) -> list[str]:
    """Return the command line of a board's process; ``lan``: the folder of its access point."""
    is_chip = kind in ("rp2040", "rp2040w", "esp32")
    chip, fault = (kind, []) if is_chip else ("esp32", ["--fault", kind])
    where = ["--id", id, "--state-dir", str(state_dir)]
    network = ["--lan", str(lan)] if lan is not None and has_network(kind) else []
    return [sys.executable, "-m", f"boards.virtual.{chip}", *where, *fault, *network]


def has_network(kind: BoardKind) -> bool:
    """Return whether boards of this kind have a network."""
    return kind != "rp2040"


def read_address(
    kind: BoardKind, id: str, stdout: int, state_dir: Path, timeout_s: float
) -> BoardAddress:
    """Read the ready line of a board's process from the descriptor ``stdout``.

    Raises ``BoardError`` with the end of the board's log if none comes in ``timeout_s`` seconds.
    """
    try:
        return address_of(kind, id, read_ready(stdout, timeout_s))
    except (ChildError, ValueError, KeyError, TypeError) as error:
        raise not_started(kind, id, state_dir, error) from None


def not_started(kind: BoardKind, id: str, state_dir: Path, error: Exception) -> BoardError:
    """Return the error of a board that did not come up, with the end of its log."""
    log = tail(state_dir / LOG)
    return BoardError(f"virtual {kind} board {id!r} did not start: {error}{log}")


def address_of(kind: BoardKind, id: str, ready: Mapping[str, Any]) -> BoardAddress:
    """Return what a board's ready line says. Raises ``ValueError``, ``KeyError``, ``TypeError``."""
    data_url, bootsel_dir = ready.get("data_url"), ready.get("bootsel_dir")
    uart0_url, lan = ready.get("uart0_url"), ready.get("lan")
    return BoardAddress(
        id=id,
        kind=kind,
        uid=str(ready["uid"]),
        serial_url=str(ready["serial_url"]),
        data_url=str(data_url) if data_url else None,
        bootsel_dir=Path(str(bootsel_dir)) if bootsel_dir else None,
        control_port=int(str(ready["control_port"])),
        serial_urls={str(way): str(url) for way, url in ready["serial_urls"].items()},
        uart0_url=str(uart0_url) if uart0_url else None,
        lan=Path(str(lan)) if lan else None,
    )


def tail(log: Path) -> str:
    """Return the end of a log, for the message that says what went wrong."""
    text = log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
    return f"\nend of {log}:\n{text}" if text else f" (nothing in {log})"
