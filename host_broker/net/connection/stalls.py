"""Who let publishers wait in vain, so that the same peer does not do it again at once."""

from collections import deque

_REMEMBERED_PEERS = 1024  # then the one that stalled longest ago is forgotten
_FORGIVEN_AFTER = 20  # times net.stalled_receiver_s without another stall
_TENTH = 10.0


class StallHistory:
    """How long receivers may hold their publishers up, by peer (a host, or a user of this one).

    ``grace_s`` for a peer that has not stalled; a tenth of it after each receiver of it that was
    disconnected for stalling, until it has not stalled for twenty times as long.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._stalls: dict[str, deque[float]] = {}

    def add(self, peer: str, now: float) -> None:
        """Note that a receiver of ``peer`` was disconnected for stalling."""
        stalls = self._stalls.pop(peer, None) or deque(maxlen=4)
        stalls.append(now)
        self._stalls[peer] = stalls
        if len(self._stalls) > _REMEMBERED_PEERS:
            del self._stalls[next(iter(self._stalls))]

    def grace_s(self, peer: str, now: float) -> float:
        """Return how long a receiver of ``peer`` may take nothing while publishers wait for it."""
        stalls = self._stalls.get(peer)
        if stalls is None:
            return self._grace_s
        if now - stalls[-1] > _FORGIVEN_AFTER * self._grace_s:
            del self._stalls[peer]
            return self._grace_s
        return float(self._grace_s / _TENTH ** len(stalls))
