"""Locks and permits among processes: who holds what, and that death frees it."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from boards.inventory import unresponsive
from boards.inventory.locks import BoardLock, Locked, NoPermit, flash_permit, holder, radio


@contextmanager
def _process(code: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """Run ``code``, which prints a line when it has what it wants and waits for its stdin."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            assert process.stdout.readline() == "got it\n"
            yield process
        finally:
            process.kill()
            process.wait(20)


_HOLD = """
import sys
from pathlib import Path
from boards.inventory.locks import BoardLock
with BoardLock.take(Path(sys.argv[1]), "b", "an experiment"):
    print("got it", flush=True)
    sys.stdin.read()
"""
_MEASURE = """
import sys
from pathlib import Path
from boards.inventory.locks import radio
with radio(Path(sys.argv[1]), alone=sys.argv[2] == "alone", deadline_s=60):
    print("got it", flush=True)
    sys.stdin.read()
"""


def test_the_second_is_told_who_is_first(tmp_path: Path) -> None:
    with _process(_HOLD, tmp_path) as first:
        with pytest.raises(Locked, match=f"b is in use by an experiment .process {first.pid} of"):
            BoardLock.take(tmp_path, "b", "mine")
        held = holder(tmp_path, "b")
        assert held is not None
        assert (held.pid, held.what) == (first.pid, "an experiment")
        # A loser wipes nothing: the third is told too.
        with pytest.raises(Locked, match=f"process {first.pid}"):
            BoardLock.take(tmp_path, "b", "mine")
        BoardLock.take(tmp_path, "c", "another board").release()


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with _process(_HOLD, tmp_path) as first:
        os.kill(first.pid, signal.SIGKILL)
        first.wait(20)
        assert holder(tmp_path, "b") is None  # although its record is still there
        assert json.loads((tmp_path / "locks" / "b.lock").read_text())["pid"] == first.pid
        with BoardLock.take(tmp_path, "b", "mine"):
            held = holder(tmp_path, "b")
            assert held is not None
            assert held.pid == os.getpid()
    assert holder(tmp_path, "b") is None
    assert (tmp_path / "locks" / "b.lock").exists()  # a removed file could be locked twice


def test_a_lock_between_taking_and_record_is_somebodys(tmp_path: Path) -> None:
    with BoardLock.take(tmp_path, "b", "x"):
        (tmp_path / "locks" / "b.lock").write_text("")
        held = holder(tmp_path, "b")
        assert held is not None
        assert "another rig" in held.text
        with pytest.raises(Locked, match="in use by another rig"):
            BoardLock.take(tmp_path, "b", "y")


def test_a_lock_is_not_inherited_by_tools(tmp_path: Path) -> None:
    lock = BoardLock.take(tmp_path, "b", "x")
    with _process("import sys; print('got it', flush=True); sys.stdin.read()"):
        lock.release()
        BoardLock.take(tmp_path, "b", "y").release()


def test_flash_permits_are_counted_per_controller(tmp_path: Path) -> None:
    with flash_permit(tmp_path, "0000:00:14.0", 2, deadline_s=1):
        with flash_permit(tmp_path, "0000:00:14.0", 2, deadline_s=1):
            with (
                pytest.raises(NoPermit, match=r"2 boards on controller 0000:00:14\.0"),
                flash_permit(tmp_path, "0000:00:14.0", 2, deadline_s=0.2),
            ):
                pytest.fail("three of two")
            with flash_permit(tmp_path, "0000:00:15.0", 2, deadline_s=1):
                pass
        with flash_permit(tmp_path, "0000:00:14.0", 2, deadline_s=1):
            pass


def test_off_the_usb_nobody_waits(tmp_path: Path) -> None:
    with flash_permit(tmp_path, "", 1, deadline_s=0), flash_permit(tmp_path, "", 1, deadline_s=0):
        assert not (tmp_path / "permits").exists()


def test_a_permit_is_waited_for(tmp_path: Path) -> None:
    got = threading.Event()

    def wait() -> None:
        with flash_permit(tmp_path, "0000:00:14.0", 1, deadline_s=60):
            got.set()

    with flash_permit(tmp_path, "0000:00:14.0", 1, deadline_s=1):
        thread = threading.Thread(target=wait)
        thread.start()
        assert not got.wait(0.2)
    assert got.wait(20)
    thread.join(20)


def test_who_measures_is_alone(tmp_path: Path) -> None:
    with (
        radio(tmp_path, alone=False, deadline_s=1),
        radio(tmp_path, alone=False, deadline_s=1),
        pytest.raises(NoPermit, match="others measure"),
        radio(tmp_path, alone=True, deadline_s=0.2),
    ):
        pytest.fail("not alone")
    with _process(_MEASURE, tmp_path, "alone") as measuring:
        with pytest.raises(NoPermit), radio(tmp_path, alone=False, deadline_s=0.2):
            pytest.fail("together with one who is alone")
        measuring.kill()
        measuring.wait(20)
        with radio(tmp_path, alone=True, deadline_s=60):
            pass


def test_a_stream_of_others_does_not_starve_who_wants_to_measure(tmp_path: Path) -> None:
    """Others come and go so that one of them is always there."""
    stop, measured = threading.Event(), threading.Event()

    def share() -> None:
        while not stop.is_set():
            with radio(tmp_path, alone=False, deadline_s=30):
                stop.wait(0.1)

    def measure() -> None:
        with radio(tmp_path, alone=True, deadline_s=30):
            measured.set()

    threads = [threading.Thread(target=share) for _ in range(6)]
    for number, thread in enumerate(threads):
        thread.start()
        stop.wait(0.015 * number)
    last = threading.Thread(target=measure)
    last.start()
    assert measured.wait(20)
    stop.set()
    for thread in [*threads, last]:
        thread.join(20)


def test_a_wedge_mark_refuses_until_there_is_evidence(tmp_path: Path) -> None:
    unresponsive.refuse(tmp_path, "b")
    unresponsive.mark(tmp_path, "b", "asked: no raw REPL; rts: no raw REPL")
    with pytest.raises(
        unresponsive.Unresponsive, match=r"rts: no raw REPL; .*motemq rig recover b"
    ):
        unresponsive.refuse(tmp_path, "b")
    with pytest.raises(ValueError, match="by evidence only"):
        unresponsive.clear(tmp_path, "b", "")
    assert "asked: no raw REPL" in unresponsive.why(tmp_path, "b")
    unresponsive.clear(tmp_path, "b", "it says it is 1234")
    unresponsive.refuse(tmp_path, "b")
    (tmp_path / "wedged" / "b.json").write_text("{")
    with pytest.raises(unresponsive.Unresponsive, match="is damaged"):
        unresponsive.refuse(tmp_path, "b")


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    with _process(_HOLD, tmp_path) as first:
        with pytest.raises(Locked):
            BoardLock.take(tmp_path, "b", "mine", wait_s=0.2)
        killer = threading.Timer(0.3, first.kill)
        killer.start()
        BoardLock.take(tmp_path, "b", "mine", wait_s=20).release()
        killer.join(20)
