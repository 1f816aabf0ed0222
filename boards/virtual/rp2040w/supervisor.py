"""A virtual Pico W: what differs from a virtual ESP32."""

from pathlib import Path

from boards.virtual.esp32.flash import SIZE
from boards.virtual.esp32.supervisor import Supervisor
from boards.virtual.rp2040.bootsel import BootselDrive
from boards.virtual.rp2040.supervisor import board_uid
from firmware.build.vesp32 import UF2_FAMILY


class PicoW(Supervisor):
    """It is flashed by a drive, and its id is its flash chip's."""

    def label(self, board_id: str) -> bytes:
        """Return the id of its flash chip; a MAC address that begins with "rt" is local, too."""
        return bytes.fromhex(board_uid(board_id))

    def drive(self, state_dir: Path) -> BootselDrive:
        """Return its drive, which takes UF2 files for virtual Pico Ws only."""
        return BootselDrive(state_dir / "bootsel", UF2_FAMILY, SIZE)
