"""What a running virtual ESP32 is wired to: its pins, a watchdog, and the data line.

The interpreter's fakes (``firmware/unixport/vesp32/vesp32_machine.py``) hold the far ends of two
socket pairs. On one go messages of six bytes: what, which pin, value. To us: ``D`` a pin drives,
``R`` it is an input again (value: its pull-up), ``W`` watchdog on (milliseconds), ``F`` fed, ``Z``
reset, ``B`` reset into the boot loader. From us: ``L`` the level that a pin has from outside. On
the other go the bytes of UART 1.
"""

import selectors
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

PIN_COUNT = 40
_MESSAGE = struct.Struct("<BBI")
_CHUNK_BYTES = 16 * 1024


@dataclass(slots=True)
class _Pin:
    """One pin: what the chip drives (None: an input), its pull-up, what comes from outside."""

    driven: bool | None = None
    pulled_up: bool = False
    outside: bool | None = None

    @property
    def level(self) -> bool:
        if self.driven is not None:
            return self.driven
        return self.pulled_up if self.outside is None else self.outside


class Wires:
    """The socket pairs, from the board's side. Its owner runs the selector and the clock.

    ``on_uart`` is called with what the board sends on UART 1, ``on_change`` with a pin's number
    and new level. ``selector`` keys carry a callable as data, to be called with the ready events.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_uart: Callable[[bytes], None],
        on_change: Callable[[int, bool], None],
        now: Callable[[], float],
    ) -> None:
        self._selector = selector
        self._on_uart = on_uart
        self._on_change = on_change
        self._now = now
        self._wires, self._chip_wires = _pair()
        self._uart, self._chip_uart = _pair()
        self._pins = [_Pin() for _ in range(PIN_COUNT)]
        self._heard = bytearray()
        self._watchdog_s: float | None = None
        self._bites_at: float | None = None
        self.asks_reset = False  # the program called machine.reset()
        self.asks_loader = False  # or machine.bootloader()
        selector.register(self._wires, selectors.EVENT_READ, self._wires_ready)
        selector.register(self._uart, selectors.EVENT_READ, self._uart_ready)

    @property
    def descriptors(self) -> tuple[int, int]:
        """The chip's ends: wires and UART, to be inherited by the interpreter."""
        return self._chip_wires.fileno(), self._chip_uart.fileno()

    @property
    def bites_at(self) -> float | None:
        """When the watchdog resets the board (seconds, on the clock ``now``), if it is on."""
        return self._bites_at

    def reset(self, *, hard: bool) -> None:
        """Begin as an interpreter does that starts: all pins inputs; ``hard``: no watchdog."""
        # A soft reset keeps the watchdog, as on the chip.
        if hard:
            self._watchdog_s = self._bites_at = None
        for end in (self._wires, self._uart, self._chip_wires, self._chip_uart):
            _drain(end)
        self._heard.clear()
        self.asks_reset = self.asks_loader = False
        for number, pin in enumerate(self._pins):
            self._change(number, pin, None, pulled_up=False)
            if pin.outside is not None:
                self._send_level(number, pin.outside)

    def level(self, number: int) -> bool:
        """Return the level on a pin, driven or seen."""
        return self._pins[number].level

    def set_outside(self, number: int, level: bool) -> None:
        """Hold a pin at ``level`` from outside; where the chip drives it, the chip wins."""
        pin = self._pins[number]
        before = pin.level
        pin.outside = level
        self._send_level(number, level)
        if pin.level != before:
            self._on_change(number, pin.level)

    def send_uart(self, data: bytes) -> None:
        """Send to UART 1; what the board does not take in time is lost, as on a wire."""
        try:
            self._uart.send(data)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Take the wires away."""
        for end in (self._wires, self._uart):
            self._selector.unregister(end)
        for end in (self._wires, self._chip_wires, self._uart, self._chip_uart):
            end.close()

    def _send_level(self, number: int, level: bool) -> None:
        try:
            self._wires.send(_MESSAGE.pack(ord("L"), number, level))
        except BlockingIOError:
            return  # a chip that has not looked at its pins for ten thousand changes

    def _uart_ready(self, _events: int) -> None:
        self._on_uart(self._uart.recv(_CHUNK_BYTES))

    def _wires_ready(self, _events: int) -> None:
        self._heard += self._wires.recv(_CHUNK_BYTES)
        whole = len(self._heard) // _MESSAGE.size * _MESSAGE.size
        for what, number, value in _MESSAGE.iter_unpack(self._heard[:whole]):
            self._take(chr(what), number, value)
        del self._heard[:whole]

    def _take(self, what: str, number: int, value: int) -> None:
        if what == "W":
            self._watchdog_s = value / 1000
        if what in "WF" and self._watchdog_s is not None:
            self._bites_at = self._now() + self._watchdog_s
        if what == "Z":
            self.asks_reset = True
        if what == "B":
            self.asks_loader = True
        if what in "DR" and number < PIN_COUNT:
            driven = bool(value) if what == "D" else None
            pulled_up = what == "R" and bool(value)
            self._change(number, self._pins[number], driven, pulled_up=pulled_up)

    def _change(self, number: int, pin: _Pin, driven: bool | None, *, pulled_up: bool) -> None:
        before = pin.level
        pin.driven, pin.pulled_up = driven, pulled_up
        if pin.level != before:
            self._on_change(number, pin.level)


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, chip = socket.socketpair()
    ours.setblocking(False)
    chip.setblocking(False)
    return ours, chip


def _drain(end: socket.socket) -> None:
    try:
        while end.recv(_CHUNK_BYTES):
            pass
    except BlockingIOError:
        return
