"""A scratch folder goes with its process; of one that was killed, with the next process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from host_broker.scratch_folder import scratch_folder

_END_S = 60.0
_OWNER = """
import sys, time
from host_broker.scratch_folder import scratch_folder
with scratch_folder("motemq-try-") as folder:
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "deeper" / "file").write_text("words")
    (folder / "link").symlink_to("/")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def _owner() -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_it_is_there_for_its_block(place: Path) -> None:
    with scratch_folder("motemq-try-") as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").write_text("words")
    assert list(place.iterdir()) == []
    with pytest.raises(KeyError), scratch_folder("motemq-try-"):
        raise KeyError
    assert list(place.iterdir()) == []


def test_who_comes_after_a_kill_cleans_up(place: Path) -> None:
    with _owner() as (killed, left), _owner() as (_, alive):
        killed.send_signal(signal.SIGKILL)
        killed.wait(_END_S)
        assert (left / "deep" / "deeper" / "file").exists()
        with scratch_folder("motemq-other-"):
            assert left.exists()  # that is another command's to do
        with scratch_folder("motemq-try-") as folder:
            assert sorted(place.iterdir()) == sorted([alive, folder])
            assert (alive / "deep" / "deeper" / "file").exists()
    assert Path("/tmp").exists()


def test_an_owner_that_stands_still_keeps_its_folder() -> None:
    with _owner() as (owner, folder):
        owner.send_signal(signal.SIGSTOP)
        with scratch_folder("motemq-try-"):
            assert (folder / "deep" / "deeper" / "file").exists()
        owner.send_signal(signal.SIGCONT)


def test_a_child_that_goes_on_keeps_it() -> None:
    """It was forked, and works there."""
    with scratch_folder("motemq-try-") as folder:
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.read(reading, 1)
            os._exit(0)
        try:
            with _owner():
                assert folder.exists()
        finally:
            os.write(writing, b"x")
            os.waitpid(child, 0)
            os.close(reading)
            os.close(writing)


def test_what_is_nobodys_stays(place: Path) -> None:
    """It may be being made just now, or be no scratch folder at all."""
    (place / "motemq-try-young").mkdir()
    (place / "motemq-try-file.log").write_text("words")
    (place / "motemq-try-link").symlink_to(place / "motemq-try-young")
    with scratch_folder("motemq-try-"):
        pass
    assert {each.name for each in place.iterdir()} == {
        *("motemq-try-young", "motemq-try-file.log", "motemq-try-link")
    }


def test_many_at_once_take_nothing_from_each_other(place: Path) -> None:
    lost: list[Path] = []

    def use() -> None:
        for _ in range(50):
            with scratch_folder("motemq-try-") as folder:
                (folder / "mine").write_text("words")
                if not (folder / "mine").exists():
                    lost.append(folder)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_END_S)
    assert lost == []
    assert list(place.iterdir()) == []
