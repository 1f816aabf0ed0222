"""A UART as a stream for the clients.

A raw serial line has no connection: the far end cannot be seen closing, and a lost byte shifts
every frame after it. Both clients notice by their deadlines; then be silent for a while, so that
the bridge closes its side, and begin anew.
"""

try:
    from time import sleep_ms, ticks_add, ticks_diff, ticks_ms
except ImportError:
    from umotemq._cpython import sleep_ms, ticks_add, ticks_diff, ticks_ms


class UartStream:
    """A ``machine.UART`` whose reads never wait for bytes that may not come."""

    def __init__(self, uart):
        self.pollable = uart
        self._uart = uart

    def readinto(self, buffer):
        """Read what has arrived. Bounded by any(): a greedy read waits for timeout_char."""
        count = self._uart.any()
        if not count:
            return None
        return self._uart.readinto(buffer, min(count, len(buffer))) or None

    def write(self, data):
        """Hand over what the UART takes now; return how much that was."""
        return self._uart.write(data)

    def discard(self, quiet_ms: int = 20, limit_ms: int = 500) -> int:
        """Throw away what arrives until ``quiet_ms`` without a byte; return how many that were."""
        waste = bytearray(64)
        count = 0
        until = ticks_add(ticks_ms(), limit_ms)
        heard = ticks_ms()
        while ticks_diff(ticks_ms(), heard) < quiet_ms and ticks_diff(until, ticks_ms()) > 0:
            got = self.readinto(waste)
            if got:
                count += got
                heard = ticks_ms()
            else:
                sleep_ms(1)
        return count


def open_uart(
    id: int, baud: int, tx: int | None = None, rx: int | None = None, size: int = 4096
) -> UartStream:
    """Open ``machine.UART(id)`` at ``baud`` on pins ``tx`` and ``rx`` (the board's own if None).

    ``size``: bytes of each driver buffer. The default of 256 is 3 ms at 921600 baud, less than a
    garbage collection.
    """
    from machine import UART, Pin

    pins = {}
    if tx is not None:
        pins["tx"] = Pin(tx)
    if rx is not None:
        pins["rx"] = Pin(rx)
    return UartStream(UART(id, baud, rxbuf=size, txbuf=size, timeout=0, **pins))
