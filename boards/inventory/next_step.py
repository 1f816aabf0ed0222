"""What a person types next, from what the doctor found: one thing, the most urgent."""

from collections.abc import Sequence

from boards.inventory.findings import Finding, is_blank, is_known
from boards.inventory.models import all_models
from boards.inventory.rig_file import Rig
from boards.inventory.states import BoardStatus
from boards.inventory.usb import UsbDevice

# Built here, by its name in firmware.build; by the USB product id of the chip's boot ROM.
_BUILDS = {0x0003: "rpi_pico"}


def next_step(
    rig: Rig | None,
    states: Sequence[BoardStatus],
    devices: Sequence[UsbDevice],
    found: Sequence[Finding],
    option: str = "",
) -> str:
    """Return commands, one a line, or what to do with one's hands.

    ``states`` are those of ``rig``'s boards and of devices that are none of them; ``option`` names
    the desk where it is not the nearest one, e.g. " --rig my.toml".
    """
    bad = next((one for one in found if one.level == "bad" and one.remedy), None)
    if bad is not None:
        return bad.remedy
    new = _new(states, devices, rig)
    for device in new:
        if is_blank(device):
            return _firmware(device, option)
    if new:
        return f"motemq rig add{option}"
    ready = [row.id for row in states if row.id and row.state in ("ready", "loader")]
    if ready:
        return _run(ready, len(rig.boards) if rig else 0, option)
    if any(row.state == "in use" for row in states):
        return f"motemq rig lock status{option}"
    return (
        "plug a board in and run this again; or take one that needs no cable:\n"
        "motemq rig virtual up rp2040:1"
    )


def _new(
    states: Sequence[BoardStatus], devices: Sequence[UsbDevice], rig: Rig | None
) -> list[UsbDevice]:
    """Return the devices that could be boards and are not on the desk."""
    if rig is None:
        return [device for device in devices if is_known(device)]
    unknown = {row.detail.split()[-1] for row in states if row.state == "unknown"}
    return [device for device in devices if device.path in unknown]


def _firmware(device: UsbDevice, option: str) -> str:
    """A blank board of the RP2 family takes what is copied onto its drive, and restarts."""
    if device.drive is None:
        disk = device.disk or "/dev/disk/by-label/RPI-RP2"
        return f"udisksctl mount -b {disk}\nmotemq rig doctor{option}"
    target = f"'{device.drive}/'"
    if build := _BUILDS.get(device.pid):
        return f'cp "$(motemq firmware build {build})" {target}\nmotemq rig add{option}'
    names = [
        model.flash.image
        for model in all_models().values()
        if any((usb.vid, usb.pid) == (device.vid, device.pid) for usb in model.usb)
    ]
    name = names[0] if names else "RPI_PICO"
    return f'cp "$(motemq firmware fetch {name})" {target}\nmotemq rig add{option}'


def _run(ready: Sequence[str], all_count: int, option: str) -> str:
    chosen = "" if len(ready) == all_count else "".join(f" --board {id}" for id in ready)
    return f"motemq rig run{option}{chosen}"
