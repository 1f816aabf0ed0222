"""What can go wrong with flashing."""

from boards.errors import RigError


class FlashError(RigError):
    """A board was not flashed; the text says at which point and why."""


class WrongBoard(FlashError):
    """What is there is not the board that was meant. Nothing was written."""


class NotThere(WrongBoard):
    """The board cannot be found, or more than one device could be it."""


class NoWayIn(FlashError):
    """The board cannot be brought into its loader while no program answers on it."""
