"""Trying again after a connection was lost, ever less often."""

import random
import time
from collections.abc import Callable

import click

from host_broker.client import ClientError, ConnectFailed, ConnectionLost, Timeout

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


def reconnecting(
    name: str,
    session: Callable[[Backoff], None],
    *,
    again: bool,
    end: float | None,
) -> None:
    """Run ``session`` until it returns; with ``again``, also after each lost connection.

    ``end`` on the clock of monotonic(): no try begins after it. The session calls
    ``backoff.reset()`` once it is well connected. Without ``again`` raises what it raises.
    """
    backoff = Backoff()
    while True:
        try:
            return session(backoff)
        except (ConnectFailed, ConnectionLost, Timeout) as error:
            if not again:
                raise
            wait_s = backoff.next_s()
            if end is not None and time.monotonic() + wait_s >= end:
                raise _LostForGood(str(error)) from error
            click.echo(f"{name}: {error}; trying again in {wait_s:.1f} s", err=True)
            time.sleep(wait_s)


class _LostForGood(ClientError):
    """The connection was lost and there is no time left for another try."""
