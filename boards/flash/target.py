"""Which chip a board must be, where it is now, and what can go wrong with flashing it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boards.errors import RigError
from boards.inventory.models import UsbState


class FlashError(RigError):
    """A board was not flashed; the text says at which point and why."""


class WrongBoard(FlashError):
    """What is there is not the board that was meant. Nothing was written."""


class NotThere(WrongBoard):
    """The board cannot be found, or more than one device could be it."""


class NoWayIn(FlashError):
    """The board cannot be brought into its loader while no program answers on it."""


Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Identity:
    """What the chip itself must say: lower-case hex without separators; "" is not known."""

    mac: str = ""  # of ESP chips
    uid: str = ""  # machine.unique_id(): of RP2 chips the flash chip's id

    @property
    def text(self) -> str:
        """The one that is known, for people."""
        return self.uid or self.mac


@dataclass(frozen=True, slots=True)
class Place:
    """Where a board is found at this moment."""

    state: UsbState | None  # None where USB tells nothing: only the port can be asked
    serial_url: str = ""  # "" for a loader without a serial port
    hub_path: str = ""  # e.g. 1-1.2.3, "" off the USB
    bus: int = 0  # USB, for picotool; 0 off the USB
    address: int = 0
    drive: Path | None = None  # the BOOTSEL drive, which may be still to appear
    own_usb: bool = False  # the chip's own, which leaves the bus when it resets
