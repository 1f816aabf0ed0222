"""What a UART's driver has counted since it was loaded: bytes that came wrong, or came too fast."""

import contextlib
import fcntl
import struct

_TIOCGICOUNT = 0x545D  # Linux, all architectures but alpha, mips, parisc, sparc
# struct serial_icounter_struct: 4 modem lines, rx, tx, frame, overrun, parity, brk, buf_overrun
# and 9 that are reserved.
_COUNTERS = struct.Struct("20i")
_NAMES = {"frame": 6, "overrun": 7, "parity": 8, "buffer_overrun": 10}


def line_errors(fd: int) -> dict[str, int] | None:
    """Return ``frame``, ``overrun``, ``parity`` and ``buffer_overrun`` of a serial port's driver.

    None if the driver counts nothing (pseudo-terminals, most CDC devices) or the system cannot
    tell.
    """
    raw = bytearray(_COUNTERS.size)
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, _TIOCGICOUNT, raw)
        return counted(bytes(raw))
    return None


def counted(raw: bytes) -> dict[str, int]:
    """Return the errors in the kernel's structure."""
    values = _COUNTERS.unpack(raw)
    return {name: values[at] for name, at in _NAMES.items()}
