"""A desk in a folder: ``rig.toml``, a file per board, and virtual boards that are on it."""

import subprocess
import sys
from pathlib import Path

from boards.inventory.board_file import load_board
from boards.inventory.models import all_models
from boards.inventory.target import BoardHandle
from boards.virtual.board import VirtualBoard
from firmware.build import ensure


def write_rig(folder: Path, text: str = "") -> Path:
    (folder / "boards").mkdir(parents=True, exist_ok=True)
    path = folder / "rig.toml"
    path.write_text('name = "test"\n' + text)
    return path


def write_virtual(folder: Path, board: VirtualBoard, *, id: str = "", **changes: str) -> Path:
    """Put a running virtual board on the desk; ``changes`` are wrong words in its file."""
    address = board.address
    model = f"virtual-{address.kind}"
    kind = "mac" if all_models()[model].flash.method == "esptool" else "uid"
    lines = [
        f'id = "{id or address.id}"',
        f'model = "{model}"',
        f'serial_url = "{address.serial_url}"',
        changes.get("reset", ""),
        "[identity]",
        f'{kind} = "{changes.get("identity", address.uid)}"',
        "[virtual]",
        f"control_port = {address.control_port}",
        f'bootsel_dir = "{address.bootsel_dir or ""}"',
        f'data_url = "{address.data_url or ""}"',
        "[flash]",
        changes.get("flash", ""),
    ]
    path = folder / "boards" / f"{id or address.id}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def desk_board(folder: Path, board: VirtualBoard, **changes: str) -> BoardHandle:
    return BoardHandle(load_board(write_virtual(folder, board, **changes)))


def motemq_rig(
    *arguments: str | Path, timeout_s: float = 120.0
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "motemq", "rig", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
    )


def running_esp32(folder: Path, id: str) -> VirtualBoard:
    """Start a virtual ESP32 that has its firmware already, put there without esptool."""
    folder.mkdir()
    flash = b"\xff" * 0x1000 + ensure("vesp32").read_bytes()
    (folder / "flash.bin").write_bytes(flash + b"\xff" * (4 * 1024 * 1024 - len(flash)))
    return VirtualBoard.start("esp32", id, folder)
