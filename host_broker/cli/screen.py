"""What ``motemq top`` puts up: a live table with keys on a terminal, or text for programs."""

import threading
import time
from collections.abc import Callable
from typing import Protocol

from rich.console import Console
from rich.live import Live

from host_broker.cli import top_view
from host_broker.cli.keyboard import Keyboard
from host_broker.cli.standard_output import put, writing
from host_broker.cli.traffic import Order, Report, Traffic
from host_broker.printable import printable

_LOOK_S = 0.1  # as soon as this a key does something
_ORDERS: dict[str, Order] = {"r": "rate", "b": "bytes", "m": "messages", "t": "topic"}


class Quit(Exception):
    """The person at the keyboard wants to leave."""


class View(Protocol):
    """Shows traffic."""

    def show(self) -> None:
        """An interval is over: show it."""

    def look(self) -> None:
        """Do what the keys and the size of the terminal ask for. Raises ``Quit``."""

    def wait(self, seconds: float) -> None:
        """Look until then."""

    def say(self, text: str) -> None:
        """Tell of the connection; "" when there is nothing to tell any more."""


class Text:
    """One text per interval."""

    def __init__(
        self,
        traffic: Traffic,
        write: Callable[[Report], str],
        rows: int,
        order: Order,
        say: Callable[[str], None],
    ) -> None:
        self._traffic = traffic
        self._write = write
        self._rows = rows
        self._order = order
        self._say = say

    def show(self) -> None:
        put(self._write(self._traffic.report(self._rows, self._order)).encode())

    def look(self) -> None:
        """Nobody presses keys here."""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def say(self, text: str) -> None:
        if text:
            self._say(text)


class Screen:
    """A table on the whole terminal, as large as that is at the time."""

    def __init__(
        self, traffic: Traffic, url: str, rows: int | None, order: Order, keys: Keyboard
    ) -> None:
        self._traffic = traffic
        self._url = url
        self._rows = rows
        self._order = order
        self._keys = keys
        self._note = ""
        self._drawing = threading.RLock()
        self._paused = False
        self._report = traffic.report(0)
        self._console = Console()
        self._size = self._console.size
        self._looked = time.monotonic()
        self.live = Live(console=self._console, screen=True, auto_refresh=False)

    def show(self) -> None:
        if not self._paused:
            self._draw()

    def look(self) -> None:
        if time.monotonic() - self._looked >= _LOOK_S:
            self._look(0.0)

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (remaining_s := until - time.monotonic()) > 0:
            self._look(min(_LOOK_S, remaining_s))

    def say(self, text: str) -> None:
        with self._drawing:  # a lost connection is told by another thread
            if text != self._note:
                self._note = printable(text.encode())
                self._draw()

    def _look(self, timeout_s: float) -> None:
        redraw = False
        for key in self._keys.pressed(timeout_s).lower():
            if key == "q":
                raise Quit
            if key == "p":
                self._paused = not self._paused
                redraw = True
            elif key in _ORDERS:
                self._order = _ORDERS[key]
                redraw = True
        if redraw or self._console.size != self._size:
            self._draw()
        self._looked = time.monotonic()

    def _draw(self) -> None:
        with self._drawing:
            self._draw_now()

    def _draw_now(self) -> None:
        self._size = self._console.size
        fits = max(0, self._size.height - top_view.LINES_AROUND_ROWS)
        report = self._traffic.report(min(self._rows or fits, fits), self._order)
        note = self._note or ("paused; p goes on" if self._paused else "")
        with writing():
            table = top_view.table(self._url, report, self._order, note, self._size.width)
            self.live.update(table, refresh=True)
