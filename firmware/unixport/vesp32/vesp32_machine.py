# The `machine` module of the virtual ESP32. What is here is a stand-in, not the chip's: there are
# no pins, buses or timers. Whatever the unix port's own machine module has, it keeps.

import sys

import machine as _unix
import serialrepl

HARD_RESET_EXIT_CODE = 44  # the supervisor boots the flash again

PWRON_RESET = 1
HARD_RESET = 2
WDT_RESET = 3
DEEPSLEEP_RESET = 4
SOFT_RESET = 5

_uid = b""
_cause = PWRON_RESET


def install(uid, cause):
    """Be what `import machine` gives, with this unique id (hex) and reset cause."""
    global _uid, _cause
    _uid = bytes.fromhex(uid)
    _cause = cause
    sys.modules["machine"] = sys.modules[__name__]


def unique_id():
    """Return the virtual board's MAC address."""
    return _uid


def reset_cause():
    """Return why the board started, in the ESP32's numbers."""
    return _cause


def reset():
    """Reset the board: the process ends here, as a chip does, without closing anything."""
    serialrepl.halt(HARD_RESET_EXIT_CODE)


def freq(*args):
    """Return the nominal clock; code here runs at the host's speed."""
    return 160000000


def __getattr__(name):
    return getattr(_unix, name)
