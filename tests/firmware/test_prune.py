"""Old entries of the cache go; what is current, in use or being built stays."""

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from firmware.build.ensure import current_entries
from firmware.cache import build_once, cache_dir, entries, prune

_DAY_S = 86400.0


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTEMQ_CACHE", str(tmp_path / "cache"))


def _entry(key: str, *, days: float, size: int = 1000) -> Path:
    """Make an entry that was last used ``days`` ago."""
    entry = build_once("thing", key, lambda folder: (folder / "file").write_bytes(bytes(size)))  # type: ignore[func-returns-value, return-value]
    when = time.time() - days * _DAY_S
    os.utime(entry, (when, when))
    return entry


def _pruned(days: float = 14, max_bytes: int | None = None, **more: object) -> list[str]:
    keep = more.get("keep", ())
    assert isinstance(keep, tuple)
    removed = prune(
        older_than_s=days * _DAY_S,
        max_bytes=max_bytes,
        keep=keep,
        dry_run=bool(more.get("dry_run")),
    )
    return [entry.path.name for entry in removed]


def test_what_was_not_used_for_long_goes() -> None:
    old, new = _entry("old", days=15), _entry("new", days=13)
    assert _pruned() == ["old"]
    assert not old.exists()
    assert (new / "file").exists()


def test_use_makes_an_entry_young() -> None:
    old = _entry("old", days=15)
    assert build_once("thing", "old", pytest.fail) == old
    assert _pruned() == []


def test_what_is_current_stays() -> None:
    current = _entry("current", days=100)
    assert _pruned(keep=(current,)) == []
    assert _pruned(max_bytes=0, keep=(current,)) == []


def test_too_much_goes_from_the_least_recently_used_on() -> None:
    for number in range(5):
        _entry(f"e{number}", days=5 - number)
    assert _pruned(max_bytes=2500) == ["e0", "e1", "e2"]
    assert sum(entry.size_bytes for entry in entries()) == 2000


def test_a_dry_run_removes_nothing() -> None:
    old = _entry("old", days=15)
    assert _pruned(dry_run=True) == ["old"]
    assert old.exists()


def test_what_was_just_used_and_what_is_locked_stays() -> None:
    used, locked = _entry("used", days=0), _entry("locked", days=15)
    with (locked.parent / "locked.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert _pruned(days=0, max_bytes=0) == []
    assert used.exists()
    assert locked.exists()


def test_what_killed_processes_left_goes_and_a_running_build_stays() -> None:
    _entry("any", days=0)
    left = [cache_dir() / "thing" / f"any.{suffix}" for suffix in ("building", "pruned")]
    for folder in left:
        (folder / "half").mkdir(parents=True)
    begun, go_on = threading.Event(), threading.Event()

    def build(folder: Path) -> None:
        begun.set()
        go_on.wait(20)
        (folder / "file").write_text("whole")

    builder = threading.Thread(target=build_once, args=("thing", "slow", build))
    builder.start()
    assert begun.wait(20)
    try:
        assert _pruned(days=0) == []
        assert [folder.exists() for folder in left] == [False, False]
        assert (cache_dir() / "thing" / "slow.building").exists()
    finally:
        go_on.set()
        builder.join(20)
    assert (cache_dir() / "thing" / "slow" / "file").read_text() == "whole"


def test_who_asks_while_others_prune_has_a_whole_entry() -> None:
    def build(folder: Path) -> None:
        for number in range(3):
            (folder / str(number)).write_text("x")

    def ask(key: str, asked: list[Path]) -> None:
        asked.append(build_once("thing", key, build))

    for number in range(60):
        key = f"k{number}"
        entry = build_once("thing", key, build)
        os.utime(entry, (0, 0))
        asked: list[Path] = []
        users = [threading.Thread(target=ask, args=(key, asked)) for _ in range(2)]
        for user in users:
            user.start()
        _pruned()
        for user in users:
            user.join(20)
        # Either it was used before it could go, or it went before and was built again.
        assert asked == [entry, entry]
        assert sorted(path.name for path in entry.iterdir()) == ["0", "1", "2"]


def test_the_command_keeps_what_this_version_builds(tmp_path: Path) -> None:
    old = _entry("0123456789abcdef0123", days=30, size=2_000_000)
    current = current_entries()
    for path in current:
        build_once(path.parent.name, path.name, lambda folder: None)
        os.utime(path, (0, 0))
    done = subprocess.run(
        [sys.executable, "-m", "motemq", "firmware", "prune", "--max-mb", "0"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    first, total = done.stdout.splitlines()
    assert first.startswith("thing/0123456789abcdef0123: 2.0 MB, last used ")
    assert total == "1 builds, 2.0 MB removed"
    assert not old.exists()
    assert all(path.exists() for path in current)
