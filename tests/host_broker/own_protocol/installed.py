"""Packages with protocols, installed where only the processes of a test find them; and ``nc``."""

import select
import subprocess
import sys
from pathlib import Path

from tests.host_broker.net.broker_process import END_S, spawn

PACKAGE = Path(__file__).parents[1] / "line_protocol"


def install(target: Path, package: str = str(PACKAGE)) -> None:
    """Install a folder as pip does, without the network, into ``target``."""
    flags = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *flags]
    done = subprocess.run(
        [*pip, "--target", str(target), package], capture_output=True, timeout=300, text=True
    )
    assert done.returncode == 0, done.stderr


def write_package(
    target: Path, name: str, code: str, entry: str, group: str = "motemq.protocols"
) -> None:
    """Write an installed package by hand: a module and its entry point."""
    info = target / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (target / f"{name}.py").write_text(code)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")


def finding(target: Path) -> str:
    """Return what a shell command begins with so that it finds what is installed there."""
    return f"PYTHONPATH='{target}'"


class Netcat:
    """A person with ``nc``."""

    def __init__(self, *where: str) -> None:
        self.process = spawn(["nc", *where], stdin=subprocess.PIPE)

    def say(self, *lines: str) -> None:
        """Type lines."""
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())

    def hear(self) -> str:
        """Return the next line that is printed; fails after ``END_S``."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], END_S)
        line = self.process.stdout.readline() if ready else b""
        assert line.endswith(b"\n"), line
        return line.decode().removesuffix("\n")

    def rest(self) -> str:
        """Return what is printed until the broker closes."""
        stdout, stderr = self.process.communicate(timeout=END_S)
        assert (self.process.returncode, stderr) == (0, b"")
        return bytes(stdout).decode()

    def close(self) -> None:
        """Kill it, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()
        self.process.wait(END_S)
