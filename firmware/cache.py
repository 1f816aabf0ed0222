"""Build a thing once per content hash, in the user's cache folder, safely among processes.

An entry is a folder ``<cache>/<name>/<key>/``. It appears by one rename of a finished build and
goes by another one, so it is either whole or absent; a kernel lock keeps two processes from
building the same entry, and what is just being used from being pruned. The time of the folder is
that of its last use.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import platformdirs


def cache_dir() -> Path:
    """Return MoteMQ's cache folder: ``$MOTEMQ_CACHE``, or the user's cache folder."""
    override = os.environ.get("MOTEMQ_CACHE")
    return Path(override) if override else platformdirs.user_cache_path("motemq")


def build_once(name: str, key: str, build: Callable[[Path], None], *, has: str = "") -> Path:
    """Return the entry ``name/key``, calling ``build`` in an empty folder if it is absent.

    ``has``: what is in each whole entry; one without it is made anew, as cleaners of caches remove
    files and leave their folders. ``build`` gets a scratch folder on the same file system and fills
    it; what it raises is passed on and leaves no entry. A second process waits for the first one's
    build and then reuses it.
    """
    entry = cache_dir() / name / key
    if use(entry) and (entry / has).exists():
        return entry
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f"{key}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (entry / has).exists():
            os.utime(entry)
            return entry
        scratch = entry.parent / f"{key}.building"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        try:
            build(scratch)
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        shutil.rmtree(entry, ignore_errors=True)
        scratch.rename(entry)
    return entry


@dataclass(frozen=True, slots=True)
class Entry:
    """A finished entry of the cache."""

    path: Path
    size_bytes: int
    used_s: float  # when it was last used, as time.time()


def entries() -> list[Entry]:
    """Return all finished entries, the least recently used first."""
    found = []
    for lock in cache_dir().glob("*/*.lock"):
        path = lock.with_suffix("")
        try:
            used_s = path.stat().st_mtime
            size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
        except FileNotFoundError:
            continue  # not built, or pruned while we looked
        found.append(Entry(path, size, used_s))
    return sorted(found, key=lambda entry: entry.used_s)


def prune(
    *, older_than_s: float, max_bytes: int | None, keep: Collection[Path], dry_run: bool = False
) -> list[Entry]:
    """Remove entries that were not used for ``older_than_s`` seconds; return what was removed.

    ``max_bytes``: then more of them, the least recently used first, until the rest has no more
    bytes than this. Never removed: what is in ``keep``, what is being built, what was used within
    the last minute. ``dry_run``: only say what would go. What a killed build or a killed prune
    left goes too.
    """
    removed: list[Entry] = []
    now = time.time()
    there = entries()
    total = sum(entry.size_bytes for entry in there)
    for entry in there:
        too_much = max_bytes is not None and total > max_bytes
        if entry.path in keep or not (now - entry.used_s > older_than_s or too_much):
            continue
        if dry_run or _remove(entry.path):
            total -= entry.size_bytes
            removed.append(entry)
    if not dry_run:
        _sweep()
    return removed


_IN_USE_S = 60.0  # from asking for an entry to having opened its files


def use(entry: Path) -> bool:
    """Note that a finished entry is being used; False if there is none."""
    if not entry.is_dir():
        return False
    try:
        with _lock_path(entry).open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)
            os.utime(entry)
    except FileNotFoundError:
        return False  # pruned just now
    except OSError:
        return entry.is_dir()  # a cache that we may only read, and so nobody prunes
    return True


def _remove(entry: Path) -> bool:
    with _lock_path(entry).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            if time.time() - entry.stat().st_mtime < _IN_USE_S:
                return False
            gone = entry.with_name(f"{entry.name}.pruned")
            shutil.rmtree(gone, ignore_errors=True)
            entry.rename(gone)
        except FileNotFoundError:
            return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _sweep() -> None:
    """Remove what killed processes left half-done."""
    for lock_path in cache_dir().glob("*/*.lock"):
        with lock_path.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            for suffix in (".building", ".pruned"):
                shutil.rmtree(lock_path.with_suffix(suffix), ignore_errors=True)


def _lock_path(entry: Path) -> Path:
    return entry.parent / f"{entry.name}.lock"
