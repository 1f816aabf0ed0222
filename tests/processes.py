"""The processes of this machine, as /proc lists them."""

import os
from pathlib import Path


def command_lines(word: str) -> dict[int, str]:
    """Return the command lines that contain ``word``, by process id; this process is left out."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if word in line and int(folder.name) != os.getpid():
            found[int(folder.name)] = line
    return found
