"""One interface for every kind of virtual board: start it, know its address, press its buttons.

A board is a process of its own, ``python -m boards.virtual.CHIP --id ID --state-dir DIR``. It
prints one JSON line when it is ready (``serial_url``, ``serial_urls``, ``data_url``,
``control_port``, ``bootsel_dir``, ``uid``) and stops, with all its children, when its standard
input ends. So a parent that is killed leaves no board behind. Boards with a fault are ESP32s
(``esp32/faults.py``), each fault a kind of its own.
"""

from pathlib import Path

from boards.child import Child, ChildError
from boards.virtual.address import (
    KINDS,
    LOG,
    BoardAddress,
    BoardKind,
    address_of,
    command,
    not_started,
)
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


class VirtualBoard(Child):
    """A running virtual board; leaving the ``with`` block stops it."""

    address: BoardAddress
    control: BoardControl

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
        try:
            board = cls(command(kind, id, state_dir, lan), state_dir / LOG, timeout_s)
        except ChildError as error:
            raise not_started(kind, id, state_dir, error) from None
        board.address = address_of(kind, id, board.ready)
        board.control = BoardControl(board.address.control_port)
        return board
