"""The state of each board of the desk at this moment, without touching any of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from boards.flash.target import NotThere
from boards.inventory import unresponsive
from boards.inventory.locks import holder
from boards.inventory.models import models_seen_as
from boards.inventory.rig_file import Rig, virtual_rig
from boards.inventory.target import BoardHandle, Look, find
from boards.inventory.usb import UsbDevice, read_usb
from boards.port_users import port_users

NOT_ON_DESK = "not on desk"  # a virtual board that is up; its detail is the state it is in


@dataclass(frozen=True, slots=True)
class BoardStatus:
    """One board, or one device that no file names."""

    id: str  # "" for a device without a file
    model: str
    port: str
    state: str  # ready, in use, absent, ambiguous, wedged, loader, port busy, unknown, NOT_ON_DESK
    detail: str
    virtual: bool = False
    required: bool = True  # False: a run goes on, and passes, without it


def inventory_states(rig: Rig, look: Look = read_usb) -> list[BoardStatus]:
    """Return every board of the desk, then what is plugged in and could be a board of ours."""
    devices = look()
    known: set[str] = set()
    rows = []
    for board in rig.boards.values():
        target = BoardHandle(board, look=lambda: devices)
        if board.usb is not None:
            known |= _paths(target, devices)
        rows.append(_status(rig, target))
    rows += _virtual_beside(rig)
    new = [device for device in devices if device.path not in known]
    return rows + [
        _unknown(device, [model.id for model in fitting])
        for device in new
        if (fitting := models_seen_as(rig.models, device.vid, device.pid))
    ]


def _virtual_beside(rig: Rig) -> list[BoardStatus]:
    """Virtual boards that are up and not on this desk: nobody shall look for them in vain."""
    ours = {board.file for board in rig.boards.values()}
    virtual = virtual_rig()
    rows = []
    for board in virtual.boards.values() if virtual else []:
        state, port, _ = _state(virtual or rig, BoardHandle(board))
        if board.file not in ours and state != "absent":
            rows.append(BoardStatus(board.id, board.model.id, port, NOT_ON_DESK, state, True))
    return rows


def _paths(target: BoardHandle, devices: Sequence[UsbDevice]) -> set[str]:
    try:
        return {device.path for device in find(target.board, devices)}
    except NotThere:
        return set()


def _status(rig: Rig, target: BoardHandle) -> BoardStatus:
    state, port, detail = _state(rig, target)
    about = target.model.virtual, target.board.required
    return BoardStatus(target.id, target.model.id, port, state, detail, *about)


def _state(rig: Rig, target: BoardHandle) -> tuple[str, str, str]:
    port = target.board.serial_url
    if held := holder(rig.state_dir, target.id):
        return "in use", port, held.text
    if text := unresponsive.why(rig.state_dir, target.id):
        return "wedged", port, f"since {text}"
    try:
        place = target.place()
    except NotThere as error:
        state = "ambiguous" if "could be it" in str(error) else "absent"
        return state, port, str(error).removeprefix(f"{target.id}: ")
    port = place.serial_url or place.hub_path
    if place.state == "loader":
        return "loader", port, "waits to be flashed"
    # A virtual board's console is open in its own process.
    users = port_users(port) if port.startswith("/dev/") and not target.model.virtual else []
    if users:
        return "port busy", port, "open in " + ", ".join(user.text for user in users)
    return "ready", port, ""


def _unknown(device: UsbDevice, models: list[str]) -> BoardStatus:
    port = device.ttys[0] if device.ttys else str(device.drive or device.path)
    detail = f"{device.product} serial {device.serial or '-'} at {device.path}"
    return BoardStatus("", " or ".join(models), port, "unknown", detail)
