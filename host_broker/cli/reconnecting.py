"""Trying again after a connection was lost, ever less often."""

import random
import time
from collections.abc import Callable

from host_broker.client import ClientError, ConnectFailed, ConnectionLost, Refused, Timeout

_FIRST_S = 0.25
_LONGEST_S = 10.0


class Backoff:
    """How long to wait before the next try: doubling up to 10 s, of which a random half.

    Random, so that a hundred programs do not all come back in the same instant.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._most_s = _FIRST_S

    def reset(self) -> None:
        """Begin with short waits again: it worked."""
        self._most_s = _FIRST_S

    def next_s(self) -> float:
        """Return seconds."""
        most = self._most_s
        self._most_s = min(_LONGEST_S, 2 * most)
        return most * (0.5 + self._chance() / 2)


class Reconnection:
    """Decides after each loss whether there is another try, waits for it, and says so.

    Each reason is said once per outage: a broker that is away for a night fills no log.
    """

    def __init__(
        self,
        *,
        again: bool,
        say: Callable[[str], None],
        end: float | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``again``: try at all. ``end`` on the clock of monotonic(): no try begins after it."""
        self.again = again
        self._say = say
        self._end = end
        self._sleep = sleep
        self._backoff = Backoff()
        self._said: set[str] = set()
        self._was_well = False

    def well(self) -> bool:
        """Note that a broker answered; return whether this ended an outage that was told."""
        outage = bool(self._said)
        self._said.clear()
        self._backoff.reset()
        self._was_well = True
        return outage

    def lost(self, error: ClientError) -> None:
        """Return when it is time for the next try; raise ``error`` if there is none.

        A broker that refuses a name counts as lost only after it once accepted it: then it has
        not noticed yet that the connection before is gone.
        """
        lost = isinstance(error, ConnectFailed | ConnectionLost | Timeout)
        if not self.again or not (lost or (self._was_well and isinstance(error, Refused))):
            raise error
        wait_s = self._backoff.next_s()
        if self._end is not None and time.monotonic() + wait_s >= self._end:
            raise error
        reason = str(error)
        if reason not in self._said:
            self._said.add(reason)
            self._say(f"trying again: {reason}")
        self._sleep(wait_s)

    def run(self, session: Callable[[], None]) -> None:
        """Run ``session`` until it returns; after each loss that allows it, once more."""
        while True:
            try:
                return session()
            except ClientError as error:
                self.lost(error)
