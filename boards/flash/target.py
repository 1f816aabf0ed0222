"""A board as flashing sees it: what it must be, where it is now, and its buttons."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from boards.inventory.models import Model, UsbState

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


class Buttons(Protocol):
    """RESET and BOOT of a board, by whatever means the rig has."""

    def boot(self) -> None:
        """Make the board wait to be flashed."""

    def reset(self) -> None:
        """Make the board start what is in its flash."""


class Target(Protocol):
    """One board to flash."""

    @property
    def id(self) -> str:
        """The board's id on the desk."""

    @property
    def model(self) -> Model:
        """What it is."""

    @property
    def identity(self) -> Identity:
        """Which one it is."""

    @property
    def baud(self) -> int:
        """For esptool, bits/s."""

    @property
    def buttons(self) -> Buttons | None:
        """Buttons that need no cooperation of the board, or None."""

    @property
    def place_is_proof(self) -> bool:
        """True if only this board can be where it is looked for: a named hub path."""

    def answers(self) -> bool:
        """Return False if it is known that no program runs, so that nobody need ask."""

    def place(self) -> Place:
        """Look where the board is; raises ``WrongBoard`` unless there is exactly one."""
