"""A browser with one page, in a process of its own, and the processor's time that it takes.

Who looks has a machine of their own; here it is the broker's. So all of it gives way to those who
are measured, also the program that drives the browser and is told of every frame, and shares no
interpreter with them.
"""

import contextlib
import ctypes
import multiprocessing
import os
import shutil
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.faults.processes import Failed

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_START_S = 60.0
_PR_CAPBSET_DROP = 24
_CAP_SYS_NICE = 23


class Processes:
    """The browser's: the one that runs the page, and all others together."""

    def __init__(self, profile: Path) -> None:
        self._mark = os.fsencode(profile)

    def used_s(self) -> tuple[float, float]:
        """Return the seconds of processor that the page's process and the whole browser had."""
        page = whole = 0.0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                if not self._is_ours(folder, command):
                    continue
                used = time.clock_gettime(_clock_of(int(folder.name)))
                whole += used
                if b"--type=renderer" in command:
                    page += used
        return page, whole

    def _is_ours(self, folder: Path, command: bytes) -> bool:
        if self._mark in command:
            return True
        # The others are told of the profile by their environment's HOME.
        return b"--type=" in command and self._mark in (folder / "environ").read_bytes()


def _clock_of(process: int) -> int:
    """Return the clock of another process's processor time, to the nanosecond: what
    ``clock_getcpuclockid`` gives. /proc counts hundredths of a second, more than a page may need.
    """
    return ~process << 3 | 2


class Viewer:
    """Somebody who looks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def show(self, url: str) -> None:
        """Show a view of the dashboard, and return when it is live. Raises ``Failed``."""
        self._ask(url, "header .tag.good")

    def show_nothing(self) -> None:
        """Show an empty page. Raises ``Failed``."""
        self._ask("about:blank", "")

    def _ask(self, url: str, awaited: str) -> None:
        self._connection.send((url, awaited))
        _answer(self._connection)


@contextlib.contextmanager
def viewer(profile: Path, nice: int) -> Iterator[tuple[Viewer, Processes]]:
    """Start a browser with an empty page for the block; ``nice``: as the command. ``Failed``."""
    found = [path for path in map(shutil.which, _NAMES) if path]
    if not found:
        raise Failed(f"none of {', '.join(_NAMES)} is installed")
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_look, args=(theirs, profile, found[0], nice), daemon=True
    )
    process.start()
    theirs.close()
    try:
        _answer(ours)
        yield Viewer(ours), Processes(profile)
    finally:
        ours.close()  # that ends it
        process.join(_START_S)
        process.kill()


def _answer(connection: Connection) -> None:
    if not connection.poll(_START_S):
        raise Failed(f"the browser did nothing for {_START_S:g} s")
    try:
        trouble = connection.recv()
    except EOFError:
        raise Failed("the browser could not be driven") from None
    if trouble:
        raise Failed(trouble)


def _look(connection: Connection, profile: Path, executable: str, nice: int) -> None:
    """Drive the browser: what the process does."""
    from playwright.sync_api import Error, sync_playwright

    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    os.nice(nice)
    # What draws gives itself a priority above everybody's (-8), where it may; root may.
    ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_SYS_NICE, 0, 0, 0)
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile / "profile",
            executable_path=executable,
            chromium_sandbox=os.geteuid() != 0,
            env={**os.environ, "HOME": str(profile)},
            viewport={"width": 1440, "height": 900},
        )
        connection.send("")
        with contextlib.suppress(EOFError):
            while True:
                url, awaited = connection.recv()
                try:
                    context.pages[0].goto(url)
                    if awaited:
                        context.pages[0].wait_for_selector(awaited)
                except Error as error:
                    connection.send(str(error))
                else:
                    connection.send("")
        context.close()
