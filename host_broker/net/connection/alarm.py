"""When the event loop is to wake up, told to the kernel once instead of with every wait.

A wait that has a timeout starts a timer and stops it again, which costs a broker of ten thousand
reads a second half a microsecond of each. A timer that is a file (timerfd_create(2)) is set when
the time changes, and ends a wait as a socket does.
"""

import ctypes
import os
from math import inf

# Python has these calls only since 3.13. They do not block, so the interpreter is kept (``PyDLL``).
_libc = ctypes.PyDLL(None, use_errno=True)
_Times = ctypes.c_long * 4  # of a repetition, which is 0, and of the end: seconds and ns
_CLOCK_MONOTONIC = 1
_ABSOLUTE = 1
_NS_PER_S = 1_000_000_000


class Alarm:
    """A file, ``fd``, that can be read from ``at`` on, seconds of the monotonic clock.

    ``at`` is infinity while it is not set.
    """

    def __init__(self) -> None:
        """Raises ``OSError`` if the kernel has none to give."""
        self.at = inf
        self.fd = _checked(_libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))

    def set(self, at: float) -> None:
        """Have the file be readable from then on, instead of what was set before."""
        # 0 would mean never; rounded up, or whoever is woken would have to wait once more.
        ns = max(int(at * _NS_PER_S) + 1, 1)
        times = _Times(0, 0, *divmod(ns, _NS_PER_S))
        _checked(_libc.timerfd_settime(self.fd, _ABSOLUTE, times, None))
        self.at = at

    def clear(self) -> bool:
        """Have it be set no longer, if its time has come; whether it has."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        self.at = inf
        return True

    def close(self) -> None:
        """Give the file back."""
        os.close(self.fd)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
