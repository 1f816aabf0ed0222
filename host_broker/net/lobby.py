"""Where the clients of an ``auto://`` listener are until it is known what they speak.

A plain socket is a ``Newcomer``, what is inside of TLS an ``Unveiled``. Both leave by recognition,
by a refusal, or because they took too long; when too many are here, the oldest has to go: who has
something to say has said it long before.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from host_broker.net.complaints import Complaints
from host_broker.net.poller import Poller
from host_broker.protocols.recognition import NOBODY
from host_broker.protocols.registry import PROTOCOLS
from host_broker.settings import NetSettings

_GOODBYE_S = 2.0  # for a refused client to read why


class Visitor(Protocol):
    """Somebody who is here."""

    def peer(self) -> str:
        """Return its host, for the log."""

    def turn_out(self) -> None:
        """End at once; it is no longer in the lobby."""


@dataclass(frozen=True, slots=True)
class House:
    """What all visitors of a listener need.

    ``name``: the listener's, for the log. ``connection`` makes the asyncio protocol of a recognised
    client. ``speaks``: the protocols there are. ``tls``: None if the listener has no certificate.
    """

    name: str
    settings: NetSettings
    connection: Callable[[str], asyncio.Protocol]
    poller: Poller
    tls: ssl.SSLContext | None
    speaks: Collection[str] = PROTOCOLS


class Lobby:
    """Bounds how many are here, ``net.max_unrecognised``, and for how long."""

    def __init__(self, house: House) -> None:
        self.house = house
        self._complaints = Complaints()
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Visitor, asyncio.TimerHandle] = {}  # the oldest first

    @property
    def population(self) -> int:
        """How many are here."""
        return len(self._timers)

    def enter(self, visitor: Visitor) -> None:
        """Let somebody in for ``net.first_bytes_s``, instead of the oldest if need be."""
        if len(self._timers) >= self.house.settings.max_unrecognised:
            oldest = next(iter(self._timers))
            self._tell(
                "", "full", f"{self.house.name}: more than net.max_unrecognised clients say nothing"
            )
            self._end(oldest)
        self._timers[visitor] = self._loop.call_later(
            self.house.settings.first_bytes_s, self._too_late, visitor
        )

    def linger(self, visitor: Visitor) -> None:
        """Give a refused one the time to read why."""
        self._timers[visitor].cancel()
        self._timers[visitor] = self._loop.call_later(_GOODBYE_S, self._end, visitor)

    def unbounded(self, visitor: Visitor) -> None:
        """Let one stay for as long as somebody else allows; it still counts."""
        self._timers[visitor].cancel()

    def leave(self, visitor: Visitor) -> None:
        """Forget one; harmless when it has left already."""
        timer = self._timers.pop(visitor, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Turn everybody out."""
        for visitor in list(self._timers):
            self._end(visitor)

    def refused(self, visitor: Visitor, protocol: str, first: bytes) -> None:
        """Tell the log that somebody speaks what nobody here does."""
        name, peer = self.house.name, visitor.peer()
        if protocol == NOBODY:
            text = f"{name}: {peer} began with {first.hex(' ')}, which is no protocol we know"
        elif protocol == "tls":
            text = (
                f"{name}: {peer} speaks TLS, but this listener has no certificate: add "
                "?cert=FILE&key=FILE to it, or set net.tls_cert and net.tls_key"
            )
        elif protocol == "http":
            text = (
                f"{name}: {peer} speaks HTTP, which is for the journal, and there is none (--data)"
            )
        else:
            text = f"{name}: {peer} speaks {protocol}, which this broker does not yet"
        self._tell(peer, protocol, text)

    def failed(self, error: Exception) -> None:
        """A visitor has a bug."""
        self._loop.call_exception_handler(
            {"message": "a client could not be let in", "exception": error}
        )

    def _too_late(self, visitor: Visitor) -> None:
        peer = visitor.peer()
        self._tell(
            peer,
            "silent",
            f"{self.house.name}: {peer} did not say what it speaks within "
            f"{self.house.settings.first_bytes_s:g} s (net.first_bytes_s); an FMQP client here "
            "must first publish or subscribe, if only an empty publication",
        )
        self._end(visitor)

    def _end(self, visitor: Visitor) -> None:
        self.leave(visitor)
        visitor.turn_out()

    def _tell(self, peer: str, reason: str, text: str) -> None:
        self._complaints.tell(peer, reason, text)


def peer_of(sock: socket.socket) -> str:
    """Return the other end's host, for the log."""
    if sock.family == socket.AF_UNIX:
        return "a client"
    try:
        return str(sock.getpeername()[0])
    except OSError:
        return "a client that has gone"
