"""Who has a serial port open, read from /proc: the question behind most failed mornings.

psutil cannot answer it: its ``open_files`` lists regular files only.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_HERE = re.compile(r"socket://(?:127\.0\.0\.1|localhost):(\d+)")
_ESTABLISHED = "01"  # in /proc/net/tcp
_WORDS = 3  # of a command line: its program and what it does, no more of other people's arguments
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class PortUser:
    """A process that has a port open; ``command`` is how its command line begins, printable."""

    pid: int
    command: str

    @property
    def text(self) -> str:
        """For people."""
        return f"process {self.pid} ({self.command})"


def port_users(port: str) -> list[PortUser]:
    """Return the processes, we ourselves left out, that have ``port`` open, by their ids.

    ``port``: a device (links are followed), or ``socket://`` on this machine: then who is connected
    to it. Of other URLs nobody is known. Without root only processes of one's own account are
    seen; without /proc nobody is.
    """
    local = _HERE.match(port)
    if local is None and "://" in port:
        return []
    wanted = _clients_of(int(local[1])) if local else {os.path.realpath(port)}
    return [
        PortUser(int(process.name), _command(process))
        for process in sorted(_processes(), key=lambda process: int(process.name))
        if process.name != str(os.getpid()) and _times_open(process, wanted)
    ]


def times_open(device: str) -> int:
    """Return how often a device is open, in this process and in others. As ``port_users``."""
    wanted = {os.path.realpath(device)}
    return sum(_times_open(process, wanted) for process in _processes())


def is_open_here(device: str) -> bool:
    """Return whether this very process has the device open."""
    return _times_open(_PROC / "self", {os.path.realpath(device)}) > 0


def running_programs(names: set[str], proc: Path = _PROC) -> dict[str, int]:
    """Return which of the programs ``names`` run, each with one process id."""
    found = {}
    for process in _processes(proc):
        with contextlib.suppress(OSError):
            name = (process / "comm").read_text().strip()
            if name in names:
                found[name] = int(process.name)
    return found


def _processes(proc: Path = _PROC) -> Iterator[Path]:
    return proc.glob("[0-9]*")


def _clients_of(port: int) -> set[str]:
    """Return the near ends of TCP connections to ``port`` here, as /proc/PID/fd names them."""
    rows = [line.split() for line in (_PROC / "net/tcp").read_text().splitlines()[1:]]
    to = f"0100007F:{port:04X}"
    return {f"socket:[{row[9]}]" for row in rows if row[2] == to and row[3] == _ESTABLISHED}


def _times_open(process: Path, wanted: set[str]) -> int:
    count = 0
    try:
        with os.scandir(process / "fd") as entries:
            for entry in entries:
                # One that is closed meanwhile raises, and says nothing of the others.
                with contextlib.suppress(FileNotFoundError):
                    count += os.readlink(entry) in wanted
    except OSError:
        return 0  # it has ended, or belongs to another user
    return count


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "?"
    text = " ".join(word.decode(errors="replace") for word in words[:_WORDS] if word)
    return "".join(c if c.isprintable() else "?" for c in text[:120]) or "?"
