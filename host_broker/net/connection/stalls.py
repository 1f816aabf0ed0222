"""Who let publishers wait in vain, so that the same peer does not do it again at once."""

from dataclasses import dataclass

_REMEMBERED_PEERS = 1024  # then the one that stalled longest ago is forgotten
_FORGIVEN_AFTER = 20  # times net.stalled_receiver_s without another stall
_MOST_STALLS = 4
_TENTH = 10.0


@dataclass(slots=True)
class _Stalls:
    """Of one peer: how often it had all of its time, and what it has had of it since."""

    last: float
    count: int = 0
    used_s: float = 0.0


class StallHistory:
    """How long receivers may hold their publishers up, by peer (a host, or a user of this one).

    ``grace_s`` for a peer that has not stalled; a tenth of it after each receiver of it that was
    disconnected for stalling, until it has not stalled for twenty times as long. What a receiver
    had of its time when it left by itself, the next one does not have.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._peers: dict[str, _Stalls] = {}

    def add(self, peer: str, now: float) -> None:
        """Note that a receiver of ``peer`` was disconnected for stalling."""
        stalls = self._note(peer, now)
        stalls.count = min(stalls.count + 1, _MOST_STALLS)
        stalls.used_s = 0.0

    def add_left(self, peer: str, waited_s: float, now: float) -> None:
        """Note that a receiver of ``peer`` left when publishers had waited for it that long."""
        if waited_s >= self.grace_s(peer, now):
            self.add(peer, now)
        else:
            self._note(peer, now).used_s += waited_s

    def grace_s(self, peer: str, now: float) -> float:
        """Return how long a receiver of ``peer`` may take nothing while publishers wait for it."""
        stalls = self._peers.get(peer)
        if stalls is None:
            return self._grace_s
        if now - stalls.last > _FORGIVEN_AFTER * self._grace_s:
            del self._peers[peer]
            return self._grace_s
        return self._grace_s / _TENTH**stalls.count - stalls.used_s

    def _note(self, peer: str, now: float) -> _Stalls:
        stalls = self._peers.pop(peer, None) or _Stalls(now)
        stalls.last = now
        self._peers[peer] = stalls
        if len(self._peers) > _REMEMBERED_PEERS:
            del self._peers[next(iter(self._peers))]
        return stalls
