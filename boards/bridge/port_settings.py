"""Which serial port a bridge has, and how it is opened."""

from dataclasses import dataclass

from boards.serial_port import PortError, SerialPort


@dataclass(frozen=True, slots=True)
class PortSettings:
    """A serial port: device or URL, bits/s, and whether RTS/CTS hold the board back."""

    url: str
    baud: int
    rtscts: bool = False

    def open(self) -> SerialPort:
        """Open it. Raises ``PortError``, also for URLs that nobody can wait for."""
        port = SerialPort.open(self.url, baud=self.baud, rtscts=self.rtscts)
        try:
            port.fileno()
        except PortError:
            port.close()
            raise
        return port
