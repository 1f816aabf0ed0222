"""The two transistors that let DTR and RTS of a USB bridge press EN and IO0 of an ESP32.

RTS without DTR holds the chip in reset, DTR without RTS pulls IO0 low; both or none do nothing.
On a real board a capacitor delays the end of a reset by some milliseconds, so that a program can
change both lines "at once". Over RFC 2217 its changes are 50 ms apart and more: here the chip
looks at IO0 later, or as soon as it is low.
"""

from dataclasses import dataclass
from enum import Enum

NONE_S = 0.1  # with both lines released, from the end of the reset to the boot
BOTH_S = 0.3  # with both asserted: most likely on the way to DTR alone


class Strap(Enum):
    """What the lines do to the chip."""

    HOLD = "hold"  # in reset, from now on
    RUN = "run"  # out of reset, IO0 is high: boots its flash
    LOAD = "load"  # out of reset, IO0 is low: the ROM loader


@dataclass(slots=True)
class ResetLines:
    """The circuit; time is an argument, in seconds of any one clock.

    ``none_s`` and ``both_s``: how much later the chip looks, as ``NONE_S`` and ``BOTH_S``.
    """

    dtr: bool = False
    rts: bool = False
    none_s: float = NONE_S
    both_s: float = BOTH_S
    _held: bool = False
    _look_at: float | None = None

    def set(self, now: float, *, dtr: bool | None = None, rts: bool | None = None) -> Strap | None:
        """Change lines (True: asserted). Returns what that does to the chip at once."""
        self.dtr = self.dtr if dtr is None else dtr
        self.rts = self.rts if rts is None else rts
        if self.rts and not self.dtr:
            self._look_at = None
            if not self._held:
                self._held = True
                return Strap.HOLD
        elif self._held and self.dtr and not self.rts:
            self._held = False
            self._look_at = None
            return Strap.LOAD
        elif self._held:
            self._look_at = now + (self.both_s if self.dtr else self.none_s)
        return None

    @property
    def due_at(self) -> float | None:
        """When ``tick`` is to be called, if at all."""
        return self._look_at

    def tick(self, now: float) -> Strap | None:
        """Return what the chip does at the end of a reset, when it has come to that."""
        if self._look_at is None or now < self._look_at:
            return None
        self._look_at = None
        self._held = False
        return Strap.RUN
