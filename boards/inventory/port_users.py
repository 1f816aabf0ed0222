"""Who has a serial port open, read from /proc: the question behind most failed mornings."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from boards.port_holder import command_of

_HERE = re.compile(r"socket://(?:127\.0\.0\.1|localhost):(\d+)")
_ESTABLISHED = "01"  # in /proc/net/tcp


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
    """Return the processes, we ourselves left out, that have ``port`` open.

    ``port``: a device, or ``socket://`` on this machine: then who is connected to it. Of other URLs
    nobody is known. Without root only processes of one's own account are seen.
    """
    local = _HERE.match(port)
    if local is None and "://" in port:
        return []
    wanted = _clients_of(int(local[1]), proc) if local else {os.path.realpath(port)}
    found = [
        PortUser(int(folder.name), command_of(folder) or "?")
        for folder in proc.glob("[0-9]*")
        if folder.name != str(os.getpid()) and _has_open(folder, wanted)
    ]
    return sorted(found, key=lambda user: user.pid)


def _clients_of(port: int, proc: Path) -> set[str]:
    """Return the near ends of TCP connections to ``port`` here, as /proc/PID/fd names them."""
    found = set()
    for line in (proc / "net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[2] == f"0100007F:{port:04X}" and words[3] == _ESTABLISHED:
            found.add(f"socket:[{words[9]}]")
    return found


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


def _has_open(folder: Path, wanted: set[str]) -> bool:
    try:
        descriptors = list((folder / "fd").iterdir())
    except OSError:  # another account's, or gone
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(descriptor) in wanted:
                return True
        except OSError:
            continue
    return False
