"""Who has a serial port open, read from /proc: the question behind most failed mornings."""

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PortUser:
    """A process that has a port open."""

    pid: int
    command: str

    @property
    def text(self) -> str:
        """For people."""
        return f"process {self.pid} ({self.command})"


def port_users(port: str, proc: Path = Path("/proc")) -> list[PortUser]:
    """Return the processes, we ourselves left out, that have the device ``port`` open.

    Without root only those of one's own account are seen.
    """
    device = os.path.realpath(port)
    found = [
        PortUser(int(folder.name), _command(folder))
        for folder in proc.glob("[0-9]*")
        if folder.name != str(os.getpid()) and _has_open(folder, device)
    ]
    return sorted(found, key=lambda user: user.pid)


def running_programs(names: set[str], proc: Path = Path("/proc")) -> dict[str, int]:
    """Return which of the programs ``names`` run, each with one process id."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
        except OSError:
            continue
        if name in names:
            found[name] = int(folder.name)
    return found


def _has_open(folder: Path, device: str) -> bool:
    try:
        descriptors = list((folder / "fd").iterdir())
    except OSError:  # another account's, or gone
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(descriptor) == device:
                return True
        except OSError:
            continue
    return False


def _command(folder: Path) -> str:
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    return " ".join(word.decode(errors="replace") for word in words if word)[:120] or "?"
