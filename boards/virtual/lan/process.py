"""An access point as a child: it ends with the block, or with our process however that ends."""

import subprocess
import sys
from pathlib import Path
from typing import Self

from boards.virtual.address import read_ready, tail
from boards.virtual.board import end_process
from boards.virtual.control import BoardError
from boards.virtual.lan.client import LanControl
from boards.virtual.lan.nic import LanError

_START_S = 30.0
LOG = "lan.log"
SSID = "virtual"


def command(folder: Path, ssid: str = SSID, key_file: Path | None = None) -> list[str]:
    """Return the command line of an access point's process."""
    argv = [sys.executable, "-m", "boards.virtual.lan", "--state-dir", str(folder), "--ssid", ssid]
    return [*argv, "--key-file", str(key_file)] if key_file else argv


class VirtualLan:
    """A running access point; leaving the ``with`` block stops it.

    ``host`` is this machine's address on the LAN, where a broker has to listen for its boards;
    ``folder`` is what a board's ``lan`` is.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path, host: str) -> None:
        self._process = process
        self.folder = folder
        self.host = host
        self.control = LanControl(folder)

    @classmethod
    def start(cls, folder: Path, *, ssid: str = SSID, key_file: Path | None = None) -> Self:
        """Start it and wait until its network is there. Raises ``LanError``."""
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LOG).open("wb") as stderr:
            process = subprocess.Popen(
                command(folder, ssid, key_file),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the parent; it ends by its stdin
            )
        try:
            if process.stdout is None:
                raise LanError("the access point's output is not a pipe")
            return cls(process, folder, read_host(process.stdout.fileno(), folder))
        except BaseException:
            end_process(process)
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def stop(self) -> None:
        """End it; harmless when it has ended."""
        end_process(self._process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()


def read_host(stdout: int, folder: Path) -> str:
    """Read the ready line of an access point from a descriptor. Raises ``LanError``."""
    try:
        return str(read_ready(stdout, _START_S)["host"])
    except (BoardError, ValueError, KeyError):
        # Its one line says what is needed; there is no more to know.
        words = tail(folder / LOG).rpartition("Error: ")[2].strip() or "it said nothing"
        raise LanError(f"no LAN for virtual boards: {words}") from None
