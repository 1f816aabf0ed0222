"""Files that survive the machine's loss of power."""

import os
from pathlib import Path
from typing import TextIO


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk. Raises ``OSError``."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private(path: Path) -> TextIO:
    """Open a file anew for writing, readable for our user only. Raises ``OSError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "w")


def replace(path: Path, text: str) -> None:
    """Give a file this content: whatever happens, it has the old one or the new one.

    On the disk when it returns. Raises ``OSError``.
    """
    unborn = path.with_suffix(".new")
    with private(unborn) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unborn.replace(path)
    sync(path.parent)
