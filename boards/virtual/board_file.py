"""A running virtual board as a board's file, by which the rig knows it (docs/rig.md)."""

import json
from typing import Literal

from boards.virtual.address import BoardAddress

Protocol = Literal["fmqp", "lightmq"]
LineMode = Literal["raw", "reliable"]
_MODELS = {"rp2040": "virtual-rp2040", "rp2040w": "virtual-rp2040w"}  # all others: virtual-esp32


def board_file(
    address: BoardAddress, protocol: Protocol, mode: LineMode, *, host: str = "", ssid: str = ""
) -> str:
    """Return the text of the file. TOML's basic strings are JSON's here.

    ``mode``: of the UART of a board that has one. ``host``: our address on the LAN of a board that
    is on one, whose name is ``ssid``.
    """
    lines = [
        f"# A virtual board ({address.kind}) that is up; 'motemq rig virtual down' removes this.",
        f"id = {json.dumps(address.id)}",
        f'model = "{_MODELS.get(address.kind, "virtual-esp32")}"',
        f"serial_url = {json.dumps(address.serial_url)}",
        *(['caps = ["wifi"]'] if address.lan else []),
        "[identity]",
        f'{"uid" if address.kind in _MODELS else "mac"} = "{address.uid}"',
        "[link]",
        f'protocol = "{protocol}"',
        *([f'mode = "{mode}"'] if address.kind == "rp2040" else []),
        "[virtual]",
        f"control_port = {address.control_port}",
    ]
    if address.bootsel_dir:
        lines.append(f"bootsel_dir = {json.dumps(str(address.bootsel_dir))}")
    if address.data_url:
        lines.append(f"data_url = {json.dumps(address.data_url)}")
    if address.lan:
        lines += [f'host = "{host}"', f'ssid = "{ssid}"']
    return "\n".join(lines) + "\n"
