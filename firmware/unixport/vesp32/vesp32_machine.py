# The `machine` module of the virtual ESP32. What is here is a fake, not the chip's: pins, UART 1
# and a watchdog that are served by the board's supervisor (boards/virtual/esp32/wires.py), without
# interrupts, baud rates or timing. There are no buses, timers or converters. Whatever the unix
# port's own machine module has, it keeps.

import io
import select
import struct
import sys
import time

import machine as _unix

PWRON_RESET = 1
HARD_RESET = 2
WDT_RESET = 3
DEEPSLEEP_RESET = 4
SOFT_RESET = 5

# A message of the wires: what, which pin, value. To the supervisor D (a pin drives), R (it is an
# input again), W (watchdog: milliseconds), F (fed), Z (reset); from it L (the level of a pin from
# outside).
_WIRE = "<BBI"
_WIRE_LENGTH = 6
_PINS = 40

_uid = b""
_cause = PWRON_RESET
_wires = None
_uart = None
_outside = {}  # levels that come from outside the chip
_pins = {}  # one object a pin, as on the chip


def install(uid, cause, wires, uart):
    """Be what `import machine` gives: unique id (hex), reset cause, two open descriptors."""
    global _uid, _cause, _wires, _uart
    _uid = bytes.fromhex(uid)
    _cause = cause
    _wires = Line(wires)
    _uart = Line(uart)
    sys.modules["machine"] = sys.modules[__name__]


class Line:
    """One end of a socket pair that does not block, as a file."""

    def __init__(self, descriptor):
        self.file = open(descriptor, "r+b")
        self._poll = select.poll()
        self._poll.register(self.file, select.POLLIN | select.POLLOUT)

    def events(self):
        for _, events in self._poll.ipoll(0):
            return events
        return 0

    def wait(self, events):
        """Wait until one of these events is there; Ctrl-C ends the wait."""
        self._poll.modify(self.file, events)
        self._poll.poll(1000)
        self._poll.modify(self.file, select.POLLIN | select.POLLOUT)

    def send(self, data):
        data = memoryview(data)
        while data:
            sent = self.file.write(data)
            if sent is None:
                time.sleep_ms(1)  # Ctrl-C ends the wait
            else:
                data = data[sent:]


def _tell(what, pin, value):
    _wires.send(struct.pack(_WIRE, ord(what), pin, value))


def _listen():
    while _wires.events() & select.POLLIN:
        # The supervisor sends whole messages.
        what, pin, value = struct.unpack(_WIRE, _wires.file.read(_WIRE_LENGTH))
        if what == 76:  # L
            _outside[pin] = value


class Pin:
    """A fake pin. The supervisor's control port sees and sets its level; no interrupts."""

    IN = 1
    OUT = 3
    OPEN_DRAIN = 7
    PULL_DOWN = 1
    PULL_UP = 2

    def __new__(cls, id, *args, **kwargs):
        if isinstance(id, Pin):
            id = id._id
        if id not in range(_PINS):
            raise ValueError("invalid pin")
        if id not in _pins:
            pin = object.__new__(cls)
            pin._id = id
            pin._mode = cls.IN
            pin._pull = None
            pin._out = 0
            _pins[id] = pin
        return _pins[id]

    def __init__(self, id, mode=None, pull=-1, *, value=None):
        if mode is not None or pull != -1 or value is not None:
            self.init(mode, pull, value=value)

    def init(self, mode=None, pull=-1, *, value=None):
        """Set what is given; keep the rest."""
        if mode is not None:
            if mode not in (Pin.IN, Pin.OUT, Pin.OPEN_DRAIN):
                raise ValueError("invalid mode")
            self._mode = mode
        if pull != -1:
            self._pull = pull
        if value is not None:
            self._out = 1 if value else 0
        self._drive()

    def value(self, level=None):
        """Return the level, or set it (seen only where the pin is an output)."""
        if level is not None:
            self._out = 1 if level else 0
            self._drive()
            return None
        if self._drives():
            return self._out
        _listen()
        return _outside.get(self._id, 1 if self._pull == Pin.PULL_UP else 0)

    __call__ = value

    def on(self):
        """Set the level to 1."""
        self.value(1)

    def off(self):
        """Set the level to 0."""
        self.value(0)

    def toggle(self):
        """Set the other level."""
        self.value(not self._out)

    def irq(self, *args, **kwargs):
        """Raise NotImplementedError: nothing here interrupts."""
        raise NotImplementedError("virtual ESP32: pins have no interrupts")

    def __repr__(self):
        return "Pin(%d)" % self._id

    def _drives(self):
        return self._mode == Pin.OUT or (self._mode == Pin.OPEN_DRAIN and not self._out)

    def _drive(self):
        if self._drives():
            _tell("D", self._id, self._out)
        else:
            _tell("R", self._id, 1 if self._pull == Pin.PULL_UP else 0)


class UART(io.IOBase):
    """A fake UART 1: its bytes are those of the board's data line, at no baud rate."""

    def __init__(self, id, baudrate=115200, **settings):
        if id != 1:
            raise ValueError("virtual ESP32: only UART(1) is connected")
        self._data = bytearray()
        self.init(baudrate, **settings)

    def init(self, baudrate=115200, **settings):
        """Take what the chip's UART takes; of it only the receive buffer and timeout matter."""
        self._baud = baudrate
        self._size = max(settings.get("rxbuf", 256), 33)
        self._timeout_ms = settings.get("timeout", 0)

    def deinit(self):
        """Nothing: the line stays."""

    def any(self):
        """Return how many bytes can be read at once."""
        room = self._size - len(self._data)
        if room > 0:
            self._data += _uart.file.read(room) or b""
        return len(self._data)

    def read(self, count=-1):
        """Return what came, up to ``count`` bytes, or None."""
        self._wait(count)
        if not self._data:
            return None
        if count < 0:
            count = len(self._data)
        data = bytes(self._data[:count])
        self._data = self._data[count:]
        return data

    def readinto(self, buffer, count=-1):
        """Fill ``buffer`` with what came; return how many bytes, or None."""
        data = self.read(len(buffer) if count < 0 else min(count, len(buffer)))
        if data is None:
            return None
        buffer[: len(data)] = data
        return len(data)

    def readline(self):
        """Return bytes up to a line feed or to the timeout, or None."""
        line = b""
        while not line.endswith(b"\n"):
            byte = self.read(1)
            if byte is None:
                break
            line += byte
        return line or None

    def write(self, data):
        """Send all of ``data``, waiting where the line is full, as the chip's driver does."""
        _uart.send(data)
        return len(data)

    def flush(self):
        """Nothing: what was written has gone."""

    def txdone(self):
        """Return True: what was written has gone."""
        return True

    def ioctl(self, request, argument):
        """Serve select.poll."""
        if request != 3:
            return -1
        return argument & ((select.POLLIN if self.any() else 0) | select.POLLOUT)

    def __repr__(self):
        return "UART(1, baudrate=%d)" % self._baud

    def _wait(self, count):
        until = time.ticks_add(time.ticks_ms(), self._timeout_ms)
        wanted = 1 if count < 0 else min(count, self._size)
        while self.any() < wanted and time.ticks_diff(until, time.ticks_ms()) > 0:
            time.sleep_ms(1)


class WDT:
    """A fake watchdog: the supervisor resets the board unless it is fed in time."""

    def __init__(self, id=0, timeout=5000):
        if timeout <= 0:
            raise ValueError("WDT timeout too short")
        _tell("W", 0, timeout)

    def feed(self):
        """Begin the time anew."""
        _tell("F", 0, 0)


def unique_id():
    """Return the virtual board's MAC address."""
    return _uid


def reset_cause():
    """Return why the board started, in the ESP32's numbers."""
    return _cause


def reset():
    """Reset the board: the supervisor ends this process, as a chip ends, without closing anything.

    To end by itself would close its sockets, and tell everybody.
    """
    _end("Z")


def bootloader(timeout=0):
    """Reset the board into its boot loader, where it waits to be flashed."""
    _end("B")


def _end(how):
    _tell(how, 0, 0)
    while True:
        try:
            time.sleep(1)
        except KeyboardInterrupt:
            pass


def freq(*args):
    """Return the nominal clock; code here runs at the host's speed."""
    return 160000000


def __getattr__(name):
    return getattr(_unix, name)
