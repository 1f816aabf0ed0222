"""A thread that waits for descriptors and for time, and can be woken; what it tells people."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Self

from boards.poll import POLLIN, Poll

JOIN_S = 15.0  # opening a port behind TCP may take half of that
_TICK_S = 5.0  # nothing is due later than that, so that a missed wake-up heals

Report = Callable[[str], None]


class Notices:
    """Passes lines on to ``report``; ``trouble`` is what does not work just now, or ``""``."""

    def __init__(self, report: Report | None) -> None:
        self._report = report or (lambda _line: None)
        self.trouble = ""

    def say(self, line: str) -> None:
        """Tell that something happened."""
        self._report(line)

    def complain(self, line: str) -> None:
        """Tell what does not work; the same again is not said until ``over``."""
        if line != self.trouble:
            self.trouble = line
            self._report(line)

    def over(self) -> None:
        """It works."""
        self.trouble = ""


class PollThread:
    """Calls ``turn`` until it is stopped, then ``end``; leaving the ``with`` block stops it.

    ``report`` gets one line per event, from the thread.
    """

    def __init__(self, name: str, report: Report | None) -> None:
        self.notices = Notices(report)
        self._stopping = threading.Event()
        self._woken: socket.socket | None = None
        self._waker: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Begin."""
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Have the thread end, and wait for that."""
        self._stopping.set()
        if self._thread.ident is not None:
            self.wake()
            self._thread.join(JOIN_S)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """True until it is stopped."""
        return self._thread.is_alive()

    @property
    def trouble(self) -> str:
        """What does not work just now, ``""`` if all does."""
        return self.notices.trouble

    def wake(self) -> None:
        """Have the thread look again; for changes made from outside."""
        if self._waker is not None:
            with contextlib.suppress(OSError):  # full: it is awake; closed: it has ended
                self._waker.send(b"!")

    def turn(self) -> None:
        """Wait once (``wait``), and do what is due."""
        raise NotImplementedError

    def end(self) -> None:
        """Let go of everything."""
        raise NotImplementedError

    def wait(self, poll: Poll, due: Iterable[float | None]) -> dict[int, int]:
        """Return events by descriptor, when one is ready, ``wake`` was called or a time is due."""
        if self._woken is not None:
            poll.register(self._woken, POLLIN)
        now = time.monotonic()
        # A millisecond more: poll() rounds down, and would turn in circles until it is due.
        waits = [max(0.0, at - now) + 0.001 for at in due if at is not None]
        events = dict(poll.poll(min([*waits, _TICK_S]) * 1000))
        if self._woken is not None:
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
        return events

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.turn()
        finally:
            self.end()
            for side in (self._woken, self._waker):
                if side is not None:
                    side.close()
