"""What a person types next, from what the doctor found: one thing, the most urgent."""

from collections.abc import Sequence

from boards.inventory.findings import Finding, is_blank, usb_id
from boards.inventory.models import Models, all_models, models_seen_as
from boards.inventory.rig_file import Rig
from boards.inventory.states import BoardStatus
from boards.inventory.usb import UsbDevice

# Built here, by the name of its model; the others take MicroPython's own.
_BUILDS = {"RPI_PICO": "rpi_pico"}


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
    models = rig.models if rig else all_models()
    new = _new(states, devices, rig)
    for device in new:
        if is_blank(device, models):
            return _firmware(device, models, option)
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
        return [device for device in devices if usb_id(device, all_models())]
    unknown = {row.detail.split()[-1] for row in states if row.state == "unknown"}
    return [device for device in devices if device.path in unknown]


def _firmware(device: UsbDevice, models: Models, option: str) -> str:
    """A blank board of the RP2 family takes what is copied onto its drive, and restarts.

    In its boot ROM it says which chip it is, and not which board: a Pico W is told from a Pico by
    whoever has it before his eyes.
    """
    if device.drive is None:
        disk = device.disk or "/dev/disk/by-label/RPI-RP2"
        return f"udisksctl mount -b {disk}\nmotemq rig doctor{option}"
    fitting = models_seen_as(models, device.vid, device.pid)
    lines = []
    for model in fitting:
        build = _BUILDS.get(model.id)
        image = f"firmware build {build}" if build else f"firmware fetch {model.flash.image}"
        note = f"  # if it is a {model.about}" if len(fitting) > 1 else ""
        lines.append(f"cp \"$(motemq {image})\" '{device.drive}/'{note}")
    return "\n".join([*lines, f"motemq rig add{option}"])


def _run(ready: Sequence[str], all_count: int, option: str) -> str:
    chosen = "" if len(ready) == all_count else "".join(f" --board {id}" for id in ready)
    return f"motemq rig run{option}{chosen}"
