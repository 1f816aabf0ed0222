"""What is plugged in, read from sysfs: no probing, so nobody's board is disturbed."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from host_broker.printable import printable

_DEVICE = re.compile(r"\d+-[\d.]+")
# Who makes chips that join a UART to the USB: such a port stays while the board resets.
_ADAPTERS = {0x0403: "FTDI", 0x067B: "Prolific", 0x10C4: "Silicon Labs", 0x1A86: "WCH"}
_MOUNT_ESCAPES = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class UsbDevice:
    """One device on the USB."""

    name: str  # bus and ports, e.g. 1-1.2.3
    path: str  # controller and ports as in udev's ID_PATH: stays the same over boots
    controller: str
    vid: int
    pid: int
    serial: str
    product: str
    bus: int
    address: int
    ttys: tuple[str, ...]  # /dev/…
    drive: Path | None  # where its file system is mounted
    disk: str = ""  # /dev/… of that file system, mounted or not

    @property
    def is_adapter(self) -> bool:
        """True if the board is behind a USB-UART chip, False if the USB is its own."""
        return self.vid in _ADAPTERS

    @property
    def text(self) -> str:
        """For people, one line."""
        port = self.ttys[0] if self.ttys else (self.drive or "no port")
        return f"{self.vid:04x}:{self.pid:04x} {printable(self.product)} at {self.path} ({port})"


def read_usb(sys: Path = Path("/sys"), mounts: Path = Path("/proc/self/mounts")) -> list[UsbDevice]:
    """Return all devices, hubs left out; an empty list where there is no USB."""
    mounted = _mounted(mounts)
    found = []
    for link in sorted((sys / "bus/usb/devices").glob("*-*")):
        if not _DEVICE.fullmatch(link.name):
            continue  # an interface (1-1:1.0)
        device = _read(link, mounted)
        if device is not None:
            found.append(device)
    return found


def _read(link: Path, mounted: dict[str, Path]) -> UsbDevice | None:
    try:
        folder = link.resolve(strict=True)
        if _text(folder / "bDeviceClass") == "09":
            return None
        # …/0000:00:14.0/usb1/1-1/1-1.2: the controller is what the root hub hangs on.
        root = next(parent for parent in folder.parents if re.fullmatch(r"usb\d+", parent.name))
        controller = root.parent.name
        return UsbDevice(
            name=link.name,
            path=f"{controller}-usb-0:{link.name.partition('-')[2]}",
            controller=controller,
            vid=int(_text(folder / "idVendor"), 16),
            pid=int(_text(folder / "idProduct"), 16),
            serial=_text(folder / "serial"),
            product=_text(folder / "product"),
            bus=int(_text(folder / "busnum")),
            address=int(_text(folder / "devnum")),
            ttys=_ttys(folder),
            drive=_drive(folder, mounted),
            disk=next((f"/dev/{name}" for name in reversed(_disks(folder))), ""),
        )
    except (OSError, ValueError, StopIteration):
        return None  # it was unplugged while we looked


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _ttys(folder: Path) -> tuple[str, ...]:
    """CDC devices have INTERFACE/tty/ttyACM0, USB-UART chips INTERFACE/ttyUSB0."""
    names = {path.name for path in folder.glob("*:*/tty/tty*")}
    names |= {path.name for path in folder.glob("*:*/tty[A-Z]*")}
    return tuple(f"/dev/{name}" for name in sorted(names))


def _drive(folder: Path, mounted: dict[str, Path]) -> Path | None:
    found = (mounted.get(f"/dev/{name}") for name in _disks(folder))
    return next((place for place in found if place is not None), None)


def _disks(folder: Path) -> list[str]:
    """Return the names of its disks, each followed by its partitions."""
    names = []
    for disk in sorted(folder.glob("*:*/host*/target*/*/block/*")):
        names += [disk.name, *sorted(part.name for part in disk.glob(f"{disk.name}*"))]
    return names


def _mounted(mounts: Path) -> dict[str, Path]:
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    rows: Sequence[list[str]] = [line.split(" ") for line in lines]
    return {
        row[0]: Path(_MOUNT_ESCAPES.sub(lambda code: chr(int(code[1], 8)), row[1]))
        for row in rows
        if len(row) > 1 and row[0].startswith("/dev/")
    }
