"""What a check is: a function, what it needs, and what it measures, all said beforehand.

The function returns what it measured, or raises ``CheckFailed``; ``AgentError`` and a board that
hangs are failures too, every other exception means that the rig could not come to a verdict.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from boards.checks.limits import Limit
from boards.session.board_session import BoardSession
from boards.session.plan import Need, Protocol

BOTH: tuple[Protocol, ...] = ("fmqp", "lightmq")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One metric of a check: its unit, which direction is better, and the limit it is held to."""

    metric: str
    unit: str
    better: Literal["lower", "higher"]
    limit: Limit | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """Values of one measurement, in the order in which they were measured."""

    of: Measurement
    values: Sequence[float]


Function = Callable[[BoardSession], list[Samples]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. ``run``'s docstring says in its first line what must be true of the board."""

    name: str
    run: Function
    protocols: tuple[Protocol, ...] = BOTH
    needs: frozenset[Need] = frozenset()
    measures: tuple[Measurement, ...] = ()
    # Seconds for the whole check. A board that is well takes a few: this is for a busy machine.
    deadline_s: float = 60.0
    # True: other boards on the same air would disturb what is measured, so it has the air alone.
    alone: bool = False

    def fits(self, protocol: Protocol, has: frozenset[Need]) -> bool:
        """Return whether the check makes sense on a board that speaks and has these."""
        return protocol in self.protocols and self.needs <= has

    @property
    def about(self) -> str:
        """One line on what must be true."""
        return (self.run.__doc__ or "").strip().splitlines()[0]
