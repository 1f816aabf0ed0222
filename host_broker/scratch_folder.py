"""A folder in the temporary directory that is there as long as its process, and not much longer.

Who is killed with -9 cleans up nothing; who comes next does it. The owner of a folder has a lock on
a file in it. That is the kernel's: it is free when its process has ended, however that happened.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_OWNER = ".owner"


@contextlib.contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Make a folder for us alone, and remove it when the block ends.

    First those of the same ``prefix`` and user are removed whose owners are gone. The folder is
    empty but for the owner's lock, of a hidden name. What cannot be removed is left to who is next.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        # Its owner lives, it is no such folder, somebody else has just removed it.
        with contextlib.suppress(OSError):
            _remove_if_left(left)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    descriptor = _own(folder)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            _remove(folder)
        os.close(descriptor)


def _own(folder: Path) -> int:
    """Return the descriptor of the owner's lock."""
    try:
        descriptor, unnamed = tempfile.mkstemp(dir=folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        Path(unnamed).rename(folder / _OWNER)  # only now, so that nobody finds it with no lock
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return descriptor


def _remove_if_left(folder: Path) -> None:
    if folder.lstat().st_uid != os.getuid():
        return
    descriptor = os.open(folder / _OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(folder)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove all, the owner's lock last: by that it is found again, if something has stayed."""
    for each in folder.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each, ignore_errors=True)
        elif each.name != _OWNER:
            each.unlink(missing_ok=True)
    if [each.name for each in folder.iterdir()] == [_OWNER]:
        (folder / _OWNER).unlink()
        folder.rmdir()
