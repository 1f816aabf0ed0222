"""An access point as a child: it ends with the block, or with our process however that ends."""

import sys
from pathlib import Path
from typing import Self

from boards.child import Child, ChildError, read_ready
from boards.virtual.address import tail
from boards.virtual.lan.client import LanControl
from boards.virtual.lan.nic import LanError

_START_S = 30.0
LOG = "lan.log"
SSID = "virtual"


def command(folder: Path, ssid: str = SSID, key_file: Path | None = None) -> list[str]:
    """Return the command line of an access point's process."""
    argv = [sys.executable, "-m", "boards.virtual.lan", "--state-dir", str(folder), "--ssid", ssid]
    return [*argv, "--key-file", str(key_file)] if key_file else argv


class VirtualLan(Child):
    """A running access point; leaving the ``with`` block stops it.

    ``host`` is this machine's address on the LAN, where a broker has to listen for its boards;
    ``folder`` is what a board's ``lan`` is.
    """

    folder: Path
    host: str
    control: LanControl

    @classmethod
    def start(cls, folder: Path, *, ssid: str = SSID, key_file: Path | None = None) -> Self:
        """Start it and wait until its network is there. Raises ``LanError``."""
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lan = cls(command(folder, ssid, key_file), folder / LOG, _START_S)
        except ChildError:
            raise _no_lan(folder) from None
        lan.folder, lan.host, lan.control = folder, str(lan.ready["host"]), LanControl(folder)
        return lan


def read_host(stdout: int, folder: Path) -> str:
    """Read the ready line of an access point from a descriptor. Raises ``LanError``."""
    try:
        return str(read_ready(stdout, _START_S)["host"])
    except (ChildError, KeyError):
        raise _no_lan(folder) from None


def _no_lan(folder: Path) -> LanError:
    # Its one line says what is needed; there is no more to know.
    words = tail(folder / LOG).rpartition("Error: ")[2].strip() or "it said nothing"
    return LanError(f"no LAN for virtual boards: {words}")
