"""Children end with us, on time, and say why they did not start."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from motemq.children import ChildFailed, run, service


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_run_returns_the_exit_code() -> None:
    assert run(_python("raise SystemExit(7)"), deadline_s=30) == 7


def test_run_stops_a_child_at_its_deadline() -> None:
    with pytest.raises(ChildFailed, match="not done after 0 s"):
        run(_python("import signal; signal.pause()"), deadline_s=0.3)


def test_a_child_that_gets_on_has_as_long_as_it_takes(tmp_path: Path) -> None:
    """This one waits for a word that it gets when several deadlines are over."""
    way = tmp_path / "way"
    os.mkfifo(way)
    began = time.monotonic()

    def progress() -> int:
        if time.monotonic() > began + 0.3:
            with contextlib.suppress(OSError):  # it does not listen yet
                os.close(os.open(way, os.O_WRONLY | os.O_NONBLOCK))
        return time.monotonic_ns()

    code = f"open({str(way)!r}).read(); raise SystemExit(7)"
    assert run(_python(code), deadline_s=0.05, progress=progress) == 7


def test_a_child_that_does_not_get_on_is_stopped() -> None:
    seen = iter("aabb")
    with pytest.raises(ChildFailed, match="did not get on for 0 s"):
        run(
            _python("import signal; signal.pause()"),
            deadline_s=0.2,
            progress=lambda: next(seen, "b"),
        )
    assert next(seen, None) is None


def test_service_waits_for_its_lines_and_stops_the_child(tmp_path: Path) -> None:
    code = "import os, signal; print('up', os.getpid(), flush=True); signal.pause()"
    with service(
        _python(code), ready_count=1, ready_prefix="up ", log=tmp_path / "log", deadline_s=30
    ) as running:
        pid = int(running.ready_lines[0].split()[1])
        assert not _gone(pid)
    assert _gone(pid)


def test_service_that_ends_at_once_is_told_with_its_last_line(tmp_path: Path) -> None:
    code = "raise SystemExit('port 8765 is in use')"
    with (
        pytest.raises(ChildFailed, match="port 8765 is in use"),
        service(
            _python(code), ready_count=1, ready_prefix="up", log=tmp_path / "log", deadline_s=30
        ),
    ):
        pytest.fail("the block must not be entered")


def test_service_that_is_silent_for_too_long_is_told_so(tmp_path: Path) -> None:
    """It is we who end it then, so that its exit code says nothing."""
    code = "import signal, sys; signal.signal(15, lambda *_: sys.exit(0)); signal.pause()"
    with (
        pytest.raises(ChildFailed, match=r"was not ready within 0\.5 s"),
        service(
            _python(code), ready_count=1, ready_prefix="up", log=tmp_path / "log", deadline_s=0.5
        ),
    ):
        pytest.fail("the block must not be entered")


def test_service_that_fails_later_is_told(tmp_path: Path) -> None:
    code = "import sys; print('up', flush=True); sys.exit(9)"
    with (
        pytest.raises(ChildFailed, match="exit code 9"),
        service(
            _python(code), ready_count=1, ready_prefix="up", log=tmp_path / "log", deadline_s=30
        ) as running,
    ):
        running.process.wait(30)


def test_kill_9_of_the_parent_leaves_no_child() -> None:
    code = (
        "from motemq.children import run\n"
        "import sys\n"
        "run([sys.executable, '-c', 'import os, signal; print(os.getpid(), flush=True); "
        "signal.pause()'], deadline_s=60)"
    )
    parent = subprocess.Popen(_python(code), stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    pidfd = os.pidfd_open(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait(30)
    parent.stdout.close()
    try:
        # The child is no child of ours: a pidfd becomes readable when it has ended.
        import select

        assert select.select([pidfd], [], [], 30)[0], "the child outlived its parent"
    finally:
        os.close(pidfd)
