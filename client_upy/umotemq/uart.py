"""A UART as a transport.

A raw serial line has no connection: the far end is not seen closing, and a lost byte shifts every
message after it. The client notices both by its deadlines. Before it begins anew it is silent, so
that a raw bridge ends the session that this board, or an earlier life of it, was in.
"""

from micropython import const

from umotemq.link import ticks_add, ticks_diff, ticks_ms

_LEAST = const(64)  # bytes of room, below which we wait for more


class Uart:
    """``machine.UART(id)`` at ``baud`` bit/s, 8N1, on pins ``tx`` and ``rx`` (None: the board's).

    ``size``: bytes of each driver buffer, more than the longest message; the usual 256 are 3 ms
    at 921600 baud, less than a garbage collection. ``quiet_ms``: silence before anything is said,
    longer than the bridge's and shorter than the client's ``timeout_ms``; and the client's
    ``keepalive_ms`` must be shorter than the bridge's silence. ``more``: for machine.UART, as
    ``flow``; where the peer holds CTS an ESP32 waits in its write, whatever our deadlines.
    """

    def __init__(self, id, baud, tx=None, rx=None, size=4096, quiet_ms=2500, **more):
        import machine

        if tx is not None:
            more["tx"] = machine.Pin(tx)
        if rx is not None:
            more["rx"] = machine.Pin(rx)
        self.where = "uart %s" % id
        # Only for what has come is it waited: on ESP32 there is always room to write.
        self.uart = self.pollable = machine.UART(
            id, baud, rxbuf=size, txbuf=size, timeout=0, **more
        )
        self._quiet_ms = quiet_ms
        self._baud = baud
        self._size = size
        self._sent = 0  # what may still be in the driver's buffer, in bytes * 10000

    def open(self):
        """Return the stream; it takes nothing for ``quiet_ms``, and what comes is thrown away."""
        self._when = ticks_ms()
        self._quiet = ticks_add(self._when, self._quiet_ms)
        return self

    def close(self):
        """Nothing: the driver stays, as its ``uart``."""

    def readinto(self, buffer):
        if self._is_quiet():
            return None
        # Bounded by any(): a greedy read waits for bytes that may not come. And 0 is no end here.
        count = min(self.uart.any(), len(buffer))
        return (count and self.uart.readinto(buffer, count)) or None

    def write(self, data):
        if self._is_quiet():
            return None
        room = self._room()
        if room < len(data):
            if room < _LEAST:
                return None
            data = data[:room]
        sent = self.uart.write(data)
        self._room()  # they came into the buffer now, and not when we looked
        self._sent += (sent or 0) * 10000
        return sent

    def _is_quiet(self):
        # Whether it still is; what has come is thrown away, at most a buffer of it each time.
        if self._quiet is None:
            return False
        for _ in range(0, self._size, _LEAST):
            if not self.uart.any() or not self.uart.read(min(self.uart.any(), _LEAST)):
                break
        if ticks_diff(self._quiet, ticks_ms()) > 0:
            return True
        self._quiet = None
        return False

    def _room(self):
        # An ESP32 waits in its write until all fits. Ten bits a byte have gone since the last look.
        now = ticks_ms()
        gone = min(ticks_diff(now, self._when), 1000) * self._baud
        self._when = now
        self._sent = max(self._sent - gone, 0)
        return self._size - self._sent // 10000 - 1
