"""Run a script of ``device/`` on CPython or MicroPython and read its result lines."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client_upy"
DEVICE = Path(__file__).parent / "device"
# 64-bit objects are twice the size of a board's: this is a board with about 64 KB of free heap.
HEAP = "128k"
HEAP_32 = "64k"
# What the fixture `interpreter` makes: from source, as `mip` installs it; from .mpy, as the rig
# installs it; with the object sizes of a board; on the next MicroPython; with a Pico W's sockets.
INTERPRETERS = (
    "cpython",
    "micropython",
    "micropython-mpy",
    "micropython-32",
    "micropython-1.26",
    "micropython-lwip",
)
_AT_ONCE = 4
_LWIP = Path(__file__).parent / "lwip"
_WRAPPING = Path(__file__).parent / "wrapping"


@dataclass(frozen=True)
class Interpreter:
    """A command line, and the folder whose ``umotemq`` it imports.

    ``modules``: a folder with MicroPython modules that take the place of built-in ones.
    """

    command: tuple[str, ...]
    client: Path = CLIENT
    modules: Path | None = None

    def start(self, script: Path, *arguments: str, cwd: Path | None = None) -> subprocess.Popen:
        """Start ``script``; stdout and stderr come as one text stream."""
        environment = {
            **os.environ,
            "MICROPYPATH": ":".join(map(str, filter(None, (self.modules, self.client, ".frozen")))),
            "PYTHONPATH": str(self.client),
            "PYTHONUNBUFFERED": "1",
        }
        return subprocess.Popen(
            [*self.command, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=cwd,
        )

    def output(
        self, script: Path, *arguments: str, cwd: Path | None = None, timeout: float = 400
    ) -> tuple[int, str]:
        """Run ``script`` to its end; return (exit code, all output)."""
        with self.start(script, *arguments, cwd=cwd) as process:
            try:
                text, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, text


def cpython() -> Interpreter:
    """Return the interpreter that runs this."""
    return Interpreter((sys.executable,))


def micropython(executable: Path, client: Path = CLIENT, heap: str = HEAP) -> Interpreter:
    """Return MicroPython with a small heap."""
    return Interpreter((str(executable), "-X", f"heapsize={heap}"), client)


def micropython_lwip(executable: Path, client: Path) -> Interpreter:
    """Return MicroPython with the sockets of lwIP ports, as a Pico W's."""
    return Interpreter((str(executable), "-X", f"heapsize={HEAP}"), client, _LWIP)


def micropython_32(executable: Path, client: Path = CLIENT) -> Interpreter:
    """Return 32-bit MicroPython with the heap of a small board."""
    return micropython(executable, client, HEAP_32)


def micropython_wrapping(executable: Path, client: Path) -> Interpreter:
    """Return 32-bit MicroPython whose ticks start again in the middle of each check.

    Not for asyncio, a part of which looks at the port's own clock.
    """
    return Interpreter((str(executable), "-X", f"heapsize={HEAP_32}"), client, _WRAPPING)


def run_checks(interpreter: Interpreter, name: str, *arguments: str) -> str:
    """Run ``device/check_NAME.py``; fail unless it ran checks and all passed. Return its output."""
    return judged(*interpreter.output(DEVICE / f"check_{name}.py", *arguments))


Run = tuple[str, ...]  # the name of a check file, and its arguments
Begun = dict[Run, "Future[tuple[int, str]]"]


@contextlib.contextmanager
def begun(
    interpreter: Interpreter, runs: Iterable[Run], at_once: int = _AT_ONCE
) -> Iterator[Begun]:
    """Run check files a few at a time, as they mostly wait; gives each one's (code, output).

    Those that nobody has waited for when the block ends are not begun any more.
    """
    with ThreadPoolExecutor(at_once) as pool:
        yield {
            run: pool.submit(interpreter.output, DEVICE / f"check_{run[0]}.py", *run[1:])
            for run in runs
        }
        pool.shutdown(wait=False, cancel_futures=True)


def judged(code: int, text: str) -> str:
    """Fail unless this is the output of checks that all passed. Return it."""
    passed = sum(line.startswith("ok ") for line in text.splitlines())
    assert code == 0, text
    assert "Warning: lwip" not in text, text
    assert passed > 0, text
    assert text.splitlines()[-1] == f"done {passed} checks, 0 failed", text
    return text
