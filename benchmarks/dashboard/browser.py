"""A browser with one page, and the processor's time that it takes."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.faults.processes import Failed

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


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
                _, _, rest = (folder / "stat").read_text().rpartition(")")
                words = rest.split()
                used = (int(words[11]) + int(words[12])) / _TICKS_PER_S
                whole += used
                if b"--type=renderer" in command:
                    page += used
        return page, whole

    def _is_ours(self, folder: Path, command: bytes) -> bool:
        if self._mark in command:
            return True
        # The others are told of the profile by their environment's HOME.
        return b"--type=" in command and self._mark in (folder / "environ").read_bytes()


@contextlib.contextmanager
def page(profile: Path, nice: int) -> Iterator[tuple[Page, Processes]]:
    """Start a browser with an empty page for the block; ``nice``: as the command. ``Failed``."""
    found = [path for path in map(shutil.which, _NAMES) if path]
    if not found:
        raise Failed(f"none of {', '.join(_NAMES)} is installed")
    started = profile / "browser"
    started.write_text(f'#!/bin/sh\nexec nice -n {nice} {shlex.quote(found[0])} "$@"\n')
    started.chmod(0o755)
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile / "profile",
            executable_path=started,
            chromium_sandbox=os.geteuid() != 0,
            env={**os.environ, "HOME": str(profile)},
            viewport={"width": 1440, "height": 900},
        )
        try:
            yield context.pages[0], Processes(profile)
        finally:
            context.close()
