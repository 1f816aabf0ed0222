"""Connections that have not said yet what they are: bounded in number and in time."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from host_broker.net.listening.slots import Evicted
from host_broker.net.live_settings import LiveSettings
from host_broker.net.rate_limited_log import RateLimitedLog
from host_broker.recognition import NOBODY

_REFUSED_S = 2.0  # for a refused client to read why
# What anybody has to say something, however many come. A client's first words follow its connect at
# once; a crowd that comes again and again would else push it out before it is looked at.
_GRACE_S = 0.1
_REFUSALS = {NOBODY: "unknown", "tls": "no certificate"}
# And while the kernel's queue is crowded: whoever comes out of it has spent the rest there, and its
# first words are there, too. They have to be looked at, no more. Those who have just finished a TLS
# handshake have not: they have the whole of it.
_LOOK_S = 0.01


class PendingConnection(Protocol):
    """A connection whose first words are not complete."""

    @property
    def listener(self) -> str:
        """The name of its listener, for the log."""

    def peer(self) -> str:
        """Return its host, for the log."""

    def has_spoken(self) -> bool:
        """Whether its first words are complete, and nobody has had the time to look at them."""

    def evict(self) -> None:
        """End at once; it is no longer pending."""


class PendingConnections:
    """Bounds how many wait, ``net.max_unrecognised``, and for how long, ``net.first_bytes_s``.

    Of all listeners together. When there are too many the one that has waited longest has to go,
    if it had its time. ``refused`` counts those who were sent away, by reason.
    """

    def __init__(
        self,
        live: LiveSettings,
        grace_s: float = _GRACE_S,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """``clock``: seconds, by which it is told who has waited how long; by default the event
        loop's, which is always that of the timers."""
        self.refused: Counter[str] = Counter()
        self._grace_s = grace_s
        self._live = live
        self._loop = asyncio.get_running_loop()
        self._clock = clock if clock is not None else self._loop.time
        self._log = RateLimitedLog(self._loop.call_later)
        self._timers: dict[PendingConnection, asyncio.TimerHandle] = {}
        self._since: dict[PendingConnection, float] = {}  # the oldest first
        self._agreed: set[PendingConnection] = set()  # those that came by ``agreed``

    def __len__(self) -> int:
        """How many wait."""
        return len(self._timers)

    def add(
        self, connection: PendingConnection, *, tls: bool = False, agreed: bool = False
    ) -> None:
        """Let one wait, instead of the oldest if need be; ``tls``: only TLS is spoken there, and
        ``net.tls_handshake_s`` is its limit. ``agreed``: its TLS handshake is just over, so it
        could not say anything yet.
        """
        settings = self._live.net
        self.make_room()
        limit_s = settings.tls_handshake_s if tls else settings.first_bytes_s
        too_late = self._silent if tls else self._too_late
        self._timers[connection] = self._loop.call_later(limit_s, too_late, connection)
        self._since[connection] = self._clock()
        if agreed:
            self._agreed.add(connection)

    def make_room(self, *, crowded: bool = False) -> bool:
        """Return whether one more may come; if need be and possible the oldest has to go.

        ``crowded``: so many wait to be accepted that the kernel is about to refuse others.
        """
        if len(self._timers) < self._live.net.max_unrecognised:
            return True
        name = next(iter(self._timers)).listener
        text = f"{name}: more than net.max_unrecognised clients say nothing"
        self._log.write("", "full", text)
        older_s = min(self._grace_s, _LOOK_S) if crowded else self._grace_s
        made_room = self._evict_older(older_s) == "done"
        self.refused["net.max_unrecognised"] += made_room
        return made_room

    def give_time_to_read(self, connection: PendingConnection) -> None:
        """Let a refused one wait until it has read why."""
        self._timers[connection].cancel()
        self._timers[connection] = self._loop.call_later(_REFUSED_S, self._evict, connection)

    def remove(self, connection: PendingConnection) -> None:
        """Forget one; harmless when it has been forgotten already."""
        timer = self._timers.pop(connection, None)
        if timer is not None:
            timer.cancel()
            del self._since[connection]
            self._agreed.discard(connection)

    def evict_oldest(self) -> Evicted:
        """End the one that has waited longest."""
        return self._evict_older(self._grace_s)

    def close(self) -> None:
        """End all."""
        for connection in list(self._timers):
            self._evict(connection)

    def log_refusal(self, connection: PendingConnection, protocol: str, first: bytes) -> None:
        """Log that somebody speaks what nobody here does."""
        name, peer = connection.listener, connection.peer() or "a client"
        self.refused[_REFUSALS.get(protocol, "protocol")] += 1
        if protocol == NOBODY:
            text = f"{name}: {peer} began with {first.hex(' ')}, which is no protocol we know"
        elif protocol == "tls":
            text = (
                f"{name}: {peer} speaks TLS, but this listener has no certificate: add "
                "?cert=FILE&key=FILE to it, or set net.tls_cert and net.tls_key"
            )
        else:
            text = f"{name}: {peer} speaks {protocol}, which this broker does not yet"
        self._log.write(peer, protocol, text)

    def log_disagreement(self, listener: str, peer: str, why: str) -> None:
        """Log that a TLS handshake of ``listener`` came to nothing."""
        self._log.write(peer, f"TLS {why}", f"{listener}: {peer or 'a client'}: no TLS: {why}")

    def failed(self, error: Exception) -> None:
        """Report a bug of ours."""
        self._loop.call_exception_handler(
            {"message": "a client could not be let in", "exception": error}
        )

    def _silent(self, connection: PendingConnection) -> None:
        self.refused["net.tls_handshake_s"] += 1
        self._evict(connection)

    def _evict_older(self, queued_s: float) -> Evicted:
        """End the one that has waited longest of those who had their time: ``queued_s``, but for
        those whose handshake is just over."""
        now = self._clock()
        silent: PendingConnection | None = None
        spoken: list[PendingConnection] = []
        for connection, since in self._since.items():
            waited_s = now - since
            if waited_s < queued_s:
                break
            if waited_s < self._grace_s and connection in self._agreed:
                continue
            if not connection.has_spoken():
                silent = connection
                break
            spoken.append(connection)
        for connection in spoken:
            # It is us who are late: on a busy machine many may come before it is its turn.
            del self._since[connection]
            self._since[connection] = now
        if silent is None:
            return "not yet" if self._since else "nobody"
        self._evict(silent)
        return "done"

    def _too_late(self, connection: PendingConnection) -> None:
        peer = connection.peer() or "a client"
        self.refused["net.first_bytes_s"] += 1
        self._log.write(
            peer,
            "silent",
            f"{connection.listener}: {peer} did not say what it speaks within "
            f"{self._live.net.first_bytes_s:g} s (net.first_bytes_s); a client here must "
            "speak first, if only by an empty publication",
        )
        self._evict(connection)

    def _evict(self, connection: PendingConnection) -> None:
        self.remove(connection)
        connection.evict()
