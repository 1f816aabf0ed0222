"""A tiny test runner and a stream in memory, for CPython and MicroPython alike."""

import gc
import sys
import time

from umotemq.link import LinkError

_HOST_MS = 700
_checks = []
IS_EMULATED = sys.platform == "rp2"  # a Pico that is not plugged in: some 100 times slower


def check(function):
    """Register ``function`` as one check."""
    _checks.append(function)
    return function


def run():
    """Run all checks; one line each, then the count the host compares."""
    failed = 0
    if sys.argv[-1:] == ["aio"]:
        import umotemq.aio  # noqa: F401  # not in the middle of a check, between what that keeps
    for function in _checks:
        gc.collect()  # what the last one left is not between what this one keeps
        if hasattr(time, "wrap_soon"):  # tests/client_upy/wrapping
            time.wrap_soon()
        start = time.ticks_ms()
        try:
            function()
        except Exception as error:
            failed += 1
            print("FAIL", function.__name__)
            if hasattr(sys, "print_exception"):
                sys.print_exception(error)
            else:
                import traceback

                traceback.print_exception(error)
        else:
            print("ok %s, %d ms" % (function.__name__, time.ticks_diff(time.ticks_ms(), start)))
    print("done %d checks, %d failed" % (len(_checks), failed))
    sys.exit(1 if failed else 0)


def equal(got, want, what=""):
    """Fail unless ``got == want``."""
    if got != want:
        raise AssertionError("%s: got %r, want %r" % (what, got, want))


def raises(kind, function, *args, **kwargs):
    """Call; return the exception that it must raise: of a class, or the LinkError of a name."""
    try:
        function(*args, **kwargs)
    except Exception as error:
        return is_kind(error, kind)
    raise AssertionError("%s was not raised" % (kind,))


def is_kind(error, kind):
    """Return ``error`` if it is of the class ``kind``, or the LinkError of that name; or raise."""
    if isinstance(kind, str):
        if isinstance(error, LinkError) and error.args[0] == kind:
            return error
    elif isinstance(error, kind):
        return error
    raise error


def within(low_ms, high_ms, function, *args, **kwargs):
    """Call; fail unless it took ``low_ms`` to ``high_ms``. Returns its result.

    What we waited for a processor, while other programs had it, may come on top; and what other
    guests of the host took, which nothing tells: still within the second that is promised.
    """
    start = now()
    result = function(*args, **kwargs)
    if time.ticks_diff(time.ticks_ms(), start[0]) < low_ms or since(start) > high_ms + _HOST_MS:
        raise AssertionError("took %d ms, want %d to %d" % (since(start), low_ms, high_ms))
    return result


def soon_after(instant):
    """Fail if more than a second has gone since ``instant``, an earlier ``now()``; as ``within``.

    For what we do when the peer has said something: when it does is not in it.
    """
    if since(instant) > (3000 if IS_EMULATED else 1000) + _HOST_MS:
        raise AssertionError("%d ms later" % since(instant))


def now():
    """Return an instant for ``since``."""
    return time.ticks_ms(), _waited_ms()


def since(instant):
    """Return the ms since ``instant``, but for those that we waited for a processor."""
    ticks, waited = instant
    return max(0, time.ticks_diff(time.ticks_ms(), ticks) - (_waited_ms() - waited))


def _waited_ms():
    """Return for how long we have been ready to run, and others ran; on a board nobody does."""
    try:
        with open("/proc/self/schedstat") as file:
            return int(file.read().split()[1]) // 1000000
    except OSError:
        return 0


def some(choices, every):
    """Return all of the choices; on an emulated chip the last of each ``every``."""
    return [choice for n, choice in enumerate(choices, 1) if not IS_EMULATED or n % every == 0]


class Memory:
    """A transport and its stream: reads ``feed`` in pieces of ``step`` bytes, keeps what is
    written. ``answer(data)``, if set, gives what the peer says to each write."""

    pollable = None
    where = "memory"
    answer = None

    def __init__(self, step=1 << 20):
        self.step = step
        self.sent = b""
        self.opened = 0
        self.closed = False
        self.ended = False
        self._feed = []  # (bytes, how many times) pairs
        self._at = 0

    def open(self):
        self.opened += 1
        self.closed = self.ended = False
        return self

    def feed(self, data, times=1):
        if data and times:
            self._feed.append([data, times])

    @property
    def empty(self):
        return not self._feed

    def readinto(self, buffer):
        if not self._feed:
            return 0 if self.ended else None
        data, times = self._feed[0]
        piece = data[self._at : self._at + min(self.step, len(buffer))]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        if self._at == len(data):
            self._at = 0
            self._feed[0][1] = times - 1
            if times == 1:
                self._feed.pop(0)
        return len(piece)

    def write(self, data):
        self.sent += bytes(data)
        if self.answer:
            self.feed(self.answer(bytes(data)))
        return len(data)

    def take(self):
        sent = self.sent
        self.sent = b""
        return sent

    def close(self):
        self.closed = True


class Blocked(Memory):
    """Takes ``room`` bytes, then nothing."""

    room = 1 << 20

    def write(self, data):
        size = min(len(data), self.room)
        self.room -= size
        if not size:
            return None
        return Memory.write(self, data[:size])


def publication(topic, body, flags=0):
    """Return an FMQP packet."""
    return bytes([flags, len(topic)]) + len(body).to_bytes(4, "big") + topic + body
