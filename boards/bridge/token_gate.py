"""Callers of an exposed port must say a token first: one line, within five seconds."""

import contextlib
import hmac
import socket
from collections.abc import Mapping

from boards.bridge.poll_thread import Report
from boards.network_line import TOKEN_LIMIT

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
