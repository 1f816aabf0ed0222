"""EN of an ESP board, pulled low by RTS with IO0 left high: the usual two-transistor circuit."""

import time

import serial

from boards.serial_port import PortError

_LOW_S = 0.1


def pulse_reset(url: str) -> None:
    """Reset the board at ``url`` into its program. Raises ``PortError``."""
    port = serial.serial_for_url(url, do_not_open=True, exclusive=True)
    port.dtr, port.rts = False, True
    try:
        port.open()
        time.sleep(_LOW_S)
        port.rts = False
    except (OSError, ValueError) as error:
        raise PortError(f"serial port {url}: its RTS cannot be driven: {error}") from None
    finally:
        port.close()
