"""Which processes have a device open, as far as /proc tells us."""

import contextlib
import os
from pathlib import Path

_WORDS = 3  # of a command line: its program and what it does, no more of other people's arguments


def port_holders(device: str) -> list[str]:
    """Return e.g. ``["minicom -D /dev/ttyUSB0 (process 4711)"]``.

    ``device`` is a path; symbolic links are followed. Processes of other users are seen by root
    only; without /proc the list is empty.
    """
    target = os.path.realpath(device)
    return [
        _named(process)
        for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name))
        if _times_open(process, target)
    ]


def times_open(device: str) -> int:
    """Return how often a device is open, in this process and in others. As ``port_holders``."""
    target = os.path.realpath(device)
    return sum(_times_open(process, target) for process in Path("/proc").glob("[0-9]*"))


def _times_open(process: Path, target: str) -> int:
    count = 0
    try:
        with os.scandir(process / "fd") as entries:
            for entry in entries:
                # One that is closed meanwhile raises, and says nothing of the others.
                with contextlib.suppress(FileNotFoundError):
                    count += os.readlink(entry) == target
    except OSError:
        return 0  # it has ended, or belongs to another user
    return count


def _named(process: Path) -> str:
    if process.name == str(os.getpid()):
        return f"this very program (process {process.name})"
    return f"{command_of(process) or 'a program'} (process {process.name})"


def command_of(process: Path) -> str:
    """Return the beginning of a command line, printable; "" if it is not to be had.

    ``process`` is its folder in /proc.
    """
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = " ".join(word.decode(errors="replace") for word in words[:_WORDS] if word)
    return "".join(c if c.isprintable() else "?" for c in text[:120])
