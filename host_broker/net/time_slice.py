"""How long a thread wants to run at a time, when others want the same core.

A turn of the event loop is short, and somebody waits for its end. A thread that says so is
interrupted less often by one that says nothing and wakes up meanwhile, and waits less for such a
one to end (docs/benchmarks.md). It gets no larger share of the core for that.
"""

import ctypes
import os
import platform
import sys
from struct import Struct

SHORT_S = 0.0001  # what the loop asks for: the shortest that there is
USUAL_S = 0.0  # whatever the system gives who asks for nothing

# sched_setattr(2), which glibc has only since 2.41. Its number depends on the machine; a process of
# 32 bits on one of 64 has another, and is left as it is.
_NUMBERS = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
# Size, policy, flags, nice, priority; runtime, deadline and period in ns.
_ATTRIBUTES = Struct("=IIQiIQQQ")


def ask_for_time_slice(slice_s: float) -> bool:
    """Ask the scheduler for slices of that many seconds for the calling thread.

    Only where a thread has the usual policy: who gives it another one knows better. Returns whether
    it was understood. Linux before 6.12 takes it and does nothing.
    """
    number = _NUMBERS.get(platform.machine())
    if sys.platform != "linux" or number is None or sys.maxsize < 2**32:
        return False
    if os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    nice = os.getpriority(os.PRIO_PROCESS, 0)  # which stays as it is; 0: this thread
    attributes = _ATTRIBUTES.pack(
        *(_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0), *(round(slice_s * 1e9), 0, 0)
    )
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)
