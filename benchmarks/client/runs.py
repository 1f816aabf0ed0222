"""Start MicroPython on the scripts in ``device/``, and the endpoint they talk to."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

DEVICE = Path(__file__).parent / "device"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)
_RUN_S = 60.0
_WHAT = "import sys; print(64 if sys.maxsize >> 32 else 32, *sys.implementation.version[:3])"


class RunFailed(Exception):
    """A script or the endpoint failed; the text has what it said."""


@dataclass(frozen=True, slots=True)
class Device:
    """One MicroPython that imports from ``lib``, and the endpoint's ports."""

    executable: Path
    lib: Path
    ports: dict[str, int]
    extra: Path | None = None  # more modules, found after those of ``lib``

    def has(self, module: str) -> bool:
        """Say whether there is such a module to be compared, in no package."""
        return (self.lib / f"{module}.mpy").exists()

    def start(self, heap: str, script: str, *arguments: object) -> "subprocess.Popen[str]":
        """Start a script; it ends with this process. stdout and stderr come as one."""
        folders = [self.lib.name, *([self.extra] if self.extra else []), DEVICE, ".frozen"]
        return subprocess.Popen(
            [self.executable, "-X", f"heapsize={heap}", DEVICE / script, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A module keeps its file's name: as long a one as on a board, wherever the files are.
            cwd=self.lib.parent,
            env={**os.environ, "MICROPYPATH": ":".join(map(str, folders))},
            preexec_fn=_die_with_parent,
        )

    def run(self, heap: str, script: str, *arguments: object) -> dict[str, float]:
        """Return the NAME VALUE lines that a script prints. Raises ``RunFailed``."""
        text = self.text(heap, script, *arguments)
        try:
            pairs = [line.split(" ") for line in text.splitlines()]
            values = {name: float(value) for name, value in pairs}
        except ValueError:
            values = {}
        if not values:
            raise RunFailed(f"{script} {arguments}: {text.strip()}")
        return values

    def text(self, heap: str, script: str, *arguments: object) -> str:
        """Return what a script prints. Raises ``RunFailed``."""
        with self.start(heap, script, *arguments) as process:
            try:
                text, _ = process.communicate(timeout=_RUN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise RunFailed(f"{script} {arguments}: not done in {_RUN_S:g} s") from None
        if process.returncode:
            raise RunFailed(f"{script} {arguments}: exit code {process.returncode}: {text.strip()}")
        return text

    def what(self) -> tuple[str, int]:
        """Return what this MicroPython is, and its width in bits."""
        command = [str(self.executable), "-c", _WHAT]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=True)
        width, *version = done.stdout.split()
        return f"MicroPython {'.'.join(version)}, unix port, {width}-bit", int(width)


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextlib.contextmanager
def endpoint() -> Iterator[dict[str, int]]:
    """Run the endpoint while the block lasts; yield its ports, by wire and behaviour."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.client.endpoint"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_die_with_parent,
    ) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise RunFailed("the endpoint did not start")
            yield json.loads(line)
        finally:
            process.communicate()  # closes its stdin, which ends it
