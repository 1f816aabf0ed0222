"""Which boards do a check together: those that have come, once nobody else will. Pure.

The rig's parent knows who may still come. Nobody waits for a board that has failed, nor for ever
for one that is slow: who comes after a group has gone, meets whoever comes then.
"""

WAIT_S = 60.0  # for others, from when the first has come


class Meeting:
    """One check's meeting. ``ids``: the boards that have the check."""

    def __init__(self, ids: list[str], wait_s: float = WAIT_S) -> None:
        self._coming = set(ids)
        self._here: list[str] = []
        self._wait_s = wait_s
        self._until: float | None = None

    def arrive(self, id: str, now: float) -> None:
        """A board is there and waits."""
        self._coming.discard(id)
        self._here.append(id)
        if self._until is None:
            self._until = now + self._wait_s

    def leave(self, id: str) -> None:
        """A board will not come, or waits no longer."""
        self._coming.discard(id)
        if id in self._here:
            self._here.remove(id)

    def group(self, now: float) -> list[str]:
        """Return the boards that begin now, in order, each once; empty while they wait."""
        if not self._here or self._until is None:
            return []
        if self._coming and now < self._until:
            return []
        group, self._here, self._until = sorted(self._here), [], None
        return group
