"""Files that survive the machine's loss of power."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk. Raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace(path: Path, text: str) -> None:
    """Give a file this content: whatever happens, it has the old one or the new one.

    On the disk when it returns. Raises ``OSError``.
    """
    unborn = path.with_suffix(".new")
    with unborn.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unborn.replace(path)
    sync(path.parent)
