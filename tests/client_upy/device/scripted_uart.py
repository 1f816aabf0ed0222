"""A scripted stand-in for ``machine.UART``: the driver's promises, without a line."""

import io
import select
import sys
import time

try:
    from machine import Timer as _Timer
except (ImportError, AttributeError):
    _Timer = None


class ScriptedUart(io.IOBase):
    """Reads of more than has come would wait for ever, so they fail here.

    ``room``: what one write takes. ``txbuf``: bytes of a transmit buffer that empties at ``baud``;
    if it ``waits``, a write that does not fit fails: an ESP32 would wait. ``late_ms``: so much
    later the next write reaches the driver, as an interrupt or another thread came before. For
    ``select.poll`` there is always room to write, as an ESP32's says.
    """

    def __init__(self, id=0, baud=115200, rxbuf=256, txbuf=256, timeout=0, **pins):
        self.settings = (id, baud, rxbuf, txbuf, timeout, pins)
        self.incoming = b""
        self.outgoing = b""
        self.room = 1 << 20
        self.stuck = False
        self.waits = self.echoes = False
        self.late_ms = 0
        self._baud = baud
        self._buffer = txbuf
        self._held = 0.0
        self._when = time.ticks_ms()

    def any(self):
        return len(self.incoming)

    def read(self, count):
        if not 0 < count <= len(self.incoming):
            raise AssertionError("asked for %d of %d bytes" % (count, len(self.incoming)))
        data = self.incoming[:count]
        self.incoming = self.incoming[count:]
        return data

    def readinto(self, buffer, count):
        buffer[:count] = self.read(count)
        return count

    def write(self, data):
        if self.stuck:
            return None
        time.sleep_ms(self.late_ms)
        self.late_ms = 0
        now = time.ticks_ms()
        gone = time.ticks_diff(now, self._when) * self._baud / 10000
        self._held = max(self._held - gone, 0) + len(data)
        self._when = now
        if self.waits and self._held > self._buffer:
            raise AssertionError("an ESP32 would wait here")
        if _Timer:  # while a buffer empties there are interrupts, for which a chip's poll wakes
            ms = self._held * 10000 // self._baud
            self._interrupt = _Timer(period=int(ms) + 1, mode=_Timer.ONE_SHOT, callback=callable)
        self.outgoing += bytes(data[: self.room])
        if self.echoes:
            self.incoming += bytes(data[: self.room])
        return min(len(data), self.room)

    def ioctl(self, request, what):
        if request != 3:
            return -1
        return what & (select.POLLOUT | (select.POLLIN if self.any() else 0))


class ScriptedMachine:
    """The module; ``install`` makes it what ``import machine`` gives."""

    def __init__(self):
        # MicroPython imports attributes, and no methods.
        self.UART = ScriptedUart
        self.Timer = _Timer
        self.Pin = lambda number: "pin %d" % number

    def install(self):
        sys.modules["machine"] = self
