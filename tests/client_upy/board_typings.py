"""Type checks of programs for boards: the client's stubs, and stubs of what boards have."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import mypy

from tests.client_upy.interpreters import CLIENT

_WAIT_S = 120.0
# What MicroPython adds to modules of the same name. An editor has it from `micropython-stubs`.
_ADDED = {
    "time.pyi": (
        "def ticks_ms() -> int: ...\n"
        "def ticks_add(ticks: int, delta: int, /) -> int: ...\n"
        "def ticks_diff(end: int, start: int, /) -> int: ...\n"
        "def sleep_ms(ms: int, /) -> None: ...\n"
    ),
    "asyncio/__init__.pyi": "async def sleep_ms(ms: int, /) -> None: ...\n",
}
_BOARDS_OWN = {
    "machine.pyi": (
        "def deepsleep(ms: int) -> None: ...\n"
        "def lightsleep(ms: int) -> None: ...\n"
        "class WDT:\n"
        "    def __init__(self, timeout: int) -> None: ...\n"
        "    def feed(self) -> None: ...\n"
    ),
    "ntptime.pyi": "def settime() -> None: ...\n",
}


def write_typings(folder: Path) -> None:
    """Write stubs of what programs for boards import besides the client."""
    stdlib = Path(mypy.__path__[0]) / "typeshed" / "stdlib"
    shutil.copy(stdlib / "time.pyi", folder)
    shutil.copytree(stdlib / "asyncio", folder / "asyncio")
    for name, text in _ADDED.items():
        with (folder / name).open("a") as file:
            file.write(text)
    for name, text in _BOARDS_OWN.items():
        (folder / name).write_text(text)
    shutil.copy(CLIENT / "examples" / "config.example.py", folder / "config.py")


def run_module(*arguments: str, cwd: Path, path: str = "") -> tuple[int, str]:
    """Run ``python -m`` and the arguments; return the exit code and all output."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=cwd,
        env={**os.environ, "MYPYPATH": path, "PYTHONPATH": str(cwd)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_WAIT_S,
    )
    return done.returncode, done.stdout


def check_types(files: list[str], cwd: Path, typings: Path) -> tuple[int, str]:
    """Run mypy over ``files``; return its exit code and what it said."""
    # Strict, but for annotations: what runs on boards has none.
    lenient = ["--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls"]
    cache = ["--cache-dir", str(typings / ".mypy_cache"), "--config-file", ""]
    return run_module(
        *("mypy", "--strict", *lenient, *cache, *files), cwd=cwd, path=f"{typings}:{CLIENT}"
    )
