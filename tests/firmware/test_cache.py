"""An entry of the cache is whole or absent, and built once."""

import threading
from pathlib import Path

import pytest

from firmware.cache import build_once, cache_dir


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTEMQ_CACHE", str(tmp_path / "cache"))


def test_a_second_call_reuses_the_entry() -> None:
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "result").write_text("built")

    first = build_once("thing", "key", build)
    assert build_once("thing", "key", build) == first
    assert (first / "result").read_text() == "built"
    assert first == cache_dir() / "thing" / "key"
    assert len(calls) == 1


def test_a_failed_build_leaves_nothing_behind() -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        build_once("thing", "key", fail)
    assert [path.name for path in (cache_dir() / "thing").iterdir()] == ["key.lock"]


def test_an_interrupted_build_is_begun_again_in_an_empty_folder() -> None:
    leftover = cache_dir() / "thing" / "key.building"
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("half")

    entry = build_once("thing", "key", lambda folder: (folder / "whole").touch())
    assert [path.name for path in entry.iterdir()] == ["whole"]


def test_two_that_want_the_same_build_it_once() -> None:
    calls = []
    started, go_on = threading.Event(), threading.Event()

    def build(folder: Path) -> None:
        calls.append(folder)
        started.set()
        assert go_on.wait(10)

    entries: list[Path] = []
    threads = [
        threading.Thread(target=lambda: entries.append(build_once("thing", "key", build)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    assert started.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(calls) == 1
    assert len(set(entries)) == 1
    assert len(entries) == 2
