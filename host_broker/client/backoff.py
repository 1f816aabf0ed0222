"""When to try again after a connection was lost: ever less often. No clock."""

import random
from collections.abc import Callable

from host_broker.client_errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    Refused,
    Timeout,
)

_FIRST_S = 0.25
_LONGEST_S = 10.0


class Backoff:
    """How long to wait before the next try: doubling up to 10 s, of which a random half.

    Random, so that a hundred programs do not all come back in the same instant.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._most_s = _FIRST_S
        self._was_well = False

    def well(self) -> None:
        """A broker answered: begin with short waits again."""
        self._most_s = _FIRST_S
        self._was_well = True

    def is_loss(self, error: ClientError) -> bool:
        """Whether another try may help.

        A broker that refuses a name counts as lost only after it once accepted it: then it has
        not noticed yet that the connection before is gone.
        """
        lost = isinstance(error, ConnectFailed | ConnectionLost | Timeout)
        return lost or (self._was_well and isinstance(error, Refused) and error.of_name)

    def next_s(self) -> float:
        """Return seconds."""
        most = self._most_s
        self._most_s = min(_LONGEST_S, 2 * most)
        return most * (0.5 + self._chance() / 2)
