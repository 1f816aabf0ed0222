"""Whether a board is there at all; one that need not be may be absent."""

from boards.flash.errors import NotThere
from boards.flash.target import Place
from boards.inventory.target import BoardHandle
from boards.serial_port import PortError, SerialPort


class Absent(Exception):
    """A board that need not be there is not; the text says what is missing."""


def find_place(target: BoardHandle) -> Place:
    """Return where the board is. Raises ``NotThere``, or ``Absent`` if it need not be there."""
    if target.board.required:
        return target.place()
    try:
        place = target.place()
        # Of a board elsewhere only its port tells whether it is there.
        if target.board.usb is None and "://" in place.serial_url:
            SerialPort.open(place.serial_url).close()
    except (NotThere, PortError) as error:
        raise Absent(str(error)) from None
    return place
