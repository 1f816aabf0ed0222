"""Who may use an exposed port: who says its token in time, and no page in a browser.

A page can have its browser send requests to any port of this machine. Their first line cannot be
anything but HTTP's.
"""

import contextlib
import hmac
import re
import socket
from collections.abc import Mapping
from typing import Literal

from boards.bridge.poll_thread import Report
from boards.network_line import TOKEN_LIMIT

_METHODS = (
    *(b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"PATCH "),
    *(b"OPTIONS ", b"CONNECT ", b"TRACE ", b"PRI "),
)
_REQUEST = re.compile(rb"[A-Z]+ .*HTTP/[0-9]")
_LONGEST = 16 * 1024
_PATIENCE_S = 1.0  # a browser sends its line at once; a person types

Verdict = Literal["program", "page", "more"]


class FirstLine:
    """Holds what a caller says until it is known not to be HTTP.

    ``held``: what was said so far. ``deadline``: when ``look`` is due; None: nothing is held.
    """

    def __init__(self) -> None:
        self.held = b""
        self.deadline: float | None = None

    def add(self, data: bytes, now: float) -> Verdict:
        """Take what was said; with ``program`` all that is ``held`` may go on."""
        self.held += data
        if self.deadline is None:
            self.deadline = now + _PATIENCE_S
        return self.look(now)

    def look(self, now: float) -> Verdict:
        """Return what is known now."""
        if self.deadline is None:
            return "more"
        if not any(self.held[: len(one)] == one[: len(self.held)] for one in _METHODS):
            return "program"
        line, end, _ = self.held.partition(b"\n")
        if end or len(line) > _LONGEST:
            return "page" if not end or _REQUEST.match(line) else "program"
        return "program" if now >= self.deadline else "more"


_SAY_S = 5.0
_CALLERS_LIMIT = 8


class _Caller:
    def __init__(self, tcp: socket.socket, peer: str, now: float) -> None:
        self.tcp, self.peer = tcp, peer
        self.until = now + _SAY_S
        self.said = b""


class TokenGate:
    """Holds those who have yet to say ``token``; ``report`` hears who was refused and why."""

    def __init__(self, token: bytes, report: Report) -> None:
        self._token, self._report = token, report
        self._callers: list[_Caller] = []

    @property
    def sockets(self) -> list[socket.socket]:
        """Whom to wait for."""
        return [caller.tcp for caller in self._callers]

    def deadlines(self) -> list[float]:
        """When ``hear`` is due, at the latest."""
        return [caller.until for caller in self._callers]

    def add(self, tcp: socket.socket, peer: str, now: float) -> None:
        """Hold a new caller; with too many of them the oldest goes."""
        self._callers.append(_Caller(tcp, peer, now))
        if len(self._callers) > _CALLERS_LIMIT:
            self._refuse(self._callers[0], "too many callers say nothing")

    def hear(self, events: Mapping[int, int], now: float) -> list[tuple[socket.socket, str]]:
        """Return those who have said the token; close those who have said something else."""
        admitted = []
        for caller in list(self._callers):
            if not events.get(caller.tcp.fileno()) and now < caller.until:
                continue
            verdict = self._heard(caller)
            if verdict is True:
                self._callers.remove(caller)
                admitted.append((caller.tcp, caller.peer))
            elif verdict is False:
                self._refuse(caller, "a wrong token")
            elif now >= caller.until or not caller.said:
                self._refuse(caller, "no token")
        return admitted

    def close(self) -> None:
        """Send all away."""
        for caller in self._callers:
            caller.tcp.close()
        self._callers.clear()

    def _heard(self, caller: _Caller) -> bool | None:
        """Take the line as far as it has come; None while it is not whole."""
        with contextlib.suppress(BlockingIOError):
            try:
                # What follows the line is the client's data: it is left in the socket.
                seen = caller.tcp.recv(TOKEN_LIMIT + 2 - len(caller.said), socket.MSG_PEEK)
                end = seen.find(b"\n") + 1
                caller.said += caller.tcp.recv(end or len(seen)) if seen else b""
            except ConnectionError:
                return False
            if end:
                return hmac.compare_digest(caller.said.rstrip(b"\r\n"), self._token)
            if not seen or len(caller.said) > TOKEN_LIMIT:
                return False
        return None

    def _refuse(self, caller: _Caller, why: str) -> None:
        self._callers.remove(caller)
        caller.tcp.close()
        self._report(f"{caller.peer} refused: {why}")
