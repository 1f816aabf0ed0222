"""A sysfs tree as the kernel lays it out, with boards of our choice plugged in."""

from pathlib import Path

_ROOT = "devices/pci0000:00/{controller}/usb{bus}"


def plug(
    sys: Path,
    name: str,
    *,
    vid: int,
    pid: int,
    serial: str = "",
    product: str = "Board",
    tty: str = "",
    disk: str = "",
    address: int = 7,
    device_class: str = "ef",
    controller: str = "0000:00:14.0",
) -> Path:
    """Plug a device in at ``name`` (e.g. 1-1.2); return its folder."""
    bus, _, ports = name.partition("-")
    folder = sys / _ROOT.format(controller=controller, bus=bus)
    parts = ports.split(".")
    for count in range(1, len(parts) + 1):
        folder = folder / f"{bus}-{'.'.join(parts[:count])}"
    interface = folder / f"{name}:1.0"
    interface.mkdir(parents=True)
    values = {
        "idVendor": f"{vid:04x}",
        "idProduct": f"{pid:04x}",
        "serial": serial,
        "product": product,
        "busnum": bus,
        "devnum": str(address),
        "bDeviceClass": device_class,
    }
    for key, value in values.items():
        if value:
            (folder / key).write_text(value + "\n")
    if tty.startswith("ttyACM"):
        (interface / "tty" / tty).mkdir(parents=True)
    elif tty:
        (interface / tty / "tty" / tty).mkdir(parents=True)
    if disk:
        (interface / "host0/target0:0:0/0:0:0:0/block" / disk / f"{disk}1").mkdir(parents=True)
    links = sys / "bus/usb/devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / name).symlink_to(folder)
    (links / f"{name}:1.0").symlink_to(interface)
    return folder
