"""pyserial's RFC 2217 server, for every kind of port and with bounded memory.

A pseudo-terminal has no modem lines, a line behind TCP not even a rate; a client should be able
to use both all the same.
"""

import contextlib
import struct
from collections.abc import Iterator
from typing import Any, cast

from serial import rfc2217

from boards.serial_port import ERRORS, SerialPort

_SUB_LIMIT = 256  # a Telnet sub-negotiation; pyserial itself has no limit

_SETTABLE = {
    "baudrate": 0,
    "bytesize": 8,
    "parity": "N",
    "stopbits": 1,
    "xonxoff": False,
    "rtscts": False,
    "dtr": True,
    "rts": True,
    "break_condition": False,
}
# Modem lines that cannot be read are as a board that is there and ready shows them.
_READABLE = {"cts": True, "dsr": True, "ri": False, "cd": True}


class _ControlLines:
    """``baudrate``, ``dtr``, ``cts`` … as pyserial's ``Serial`` has them, never refused.

    What the port cannot do is remembered only.
    """

    def __init__(self, port: SerialPort, baud: int) -> None:
        object.__setattr__(self, "_port", port)
        object.__setattr__(self, "_device", port.device)
        object.__setattr__(self, "_known", {**_SETTABLE, "baudrate": baud})

    def __getattr__(self, name: str) -> Any:
        if name in _READABLE:
            with _missing():
                if self._device is not None:
                    return getattr(self._device, name)
            return _READABLE[name]
        try:
            return self._known[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _SETTABLE:
            raise AttributeError(name)
        self._port.set(name, value)
        self._known[name] = value

    def reset_input_buffer(self) -> None:
        """Forget what the board sent and nobody has read."""
        self._purge("reset_input_buffer")

    def reset_output_buffer(self) -> None:
        """Forget what has not left the host yet."""
        self._purge("reset_output_buffer")

    def _purge(self, name: str) -> None:
        if self._device is not None:
            with _missing():
                getattr(self._device, name)()


class _Writer:
    """What pyserial's server writes its Telnet to."""

    def __init__(self) -> None:
        self.out = bytearray()

    def write(self, data: bytes) -> None:
        self.out += data


class Rfc2217Server:
    """The server's side of one connection to ``port``, which runs at ``baud`` bits/s."""

    def __init__(self, port: SerialPort, baud: int) -> None:
        self._writer = _Writer()
        # It asks both for a few names only; its types want whole serial ports.
        lines = cast(rfc2217.Serial, _ControlLines(port, baud))
        self._pyserial = rfc2217.PortManager(lines, cast(rfc2217.Serial, self._writer))

    def received(self, data: bytes) -> bytes:
        """Return the board's bytes in ``data``. Raises ``ValueError`` for broken Telnet."""
        out = bytearray()
        try:
            for part in self._pyserial.filter(data):
                out += part
        except Exception as error:
            # A client's numbers reach struct, ord() and termios; it can make them raise anything.
            raise ValueError(f"broken RFC 2217: {error!r}") from None
        if len(self._pyserial.suboption or b"") > _SUB_LIMIT:
            raise ValueError(f"a Telnet sub-negotiation of more than {_SUB_LIMIT} bytes")
        return bytes(out)

    def tick(self) -> None:
        """Tell the client of control lines that have changed."""
        self._pyserial.check_modem_lines()

    def take(self) -> bytes:
        """Return what is to be sent to the client, beside data."""
        out = bytes(self._writer.out)
        self._writer.out.clear()
        return out


@contextlib.contextmanager
def _missing() -> Iterator[None]:
    """Pass over what a device does not have (ENOTTY, EINVAL)."""
    with contextlib.suppress(*ERRORS, struct.error):
        yield
