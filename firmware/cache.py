"""Build a thing once per content hash, in the user's cache folder, safely among processes.

An entry is a folder ``<cache>/<name>/<key>/``. It appears by one rename of a finished build, so
it is either whole or absent; a kernel lock keeps two processes from building the same entry.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return MoteMQ's cache folder: ``$MOTEMQ_CACHE``, or the user's cache folder."""
    override = os.environ.get("MOTEMQ_CACHE")
    return Path(override) if override else platformdirs.user_cache_path("motemq")


def build_once(name: str, key: str, build: Callable[[Path], None]) -> Path:
    """Return the entry ``name/key``, calling ``build`` in an empty folder if it is absent.

    ``build`` gets a scratch folder on the same file system and fills it; what it raises is passed
    on and leaves no entry. A second process waits for the first one's build and then reuses it.
    """
    entry = cache_dir() / name / key
    if entry.is_dir():
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f"{key}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if entry.is_dir():
            return entry
        scratch = entry.parent / f"{key}.building"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            build(scratch)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        scratch.rename(entry)
    return entry
