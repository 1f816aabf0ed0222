"""What a check is: a function, what it needs, and what it measures, all said beforehand.

The function returns what it measured, or raises ``CheckFailed``; ``AgentError`` and a board that
hangs are failures too, every other exception means that the rig could not come to a verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from boards.checks.limits import Limit
from boards.session.board_session import BoardSession
from boards.session.plan import Need, Protocol

BOTH: tuple[Protocol, ...] = ("fmqp", "lightmq")
_CALLED: Mapping[Protocol, str] = {"fmqp": "FMQP", "lightmq": "LightMQ"}
# What is to be said of a board that lacks what a check needs.
_LACKS: Mapping[Need, str] = {
    "network": "it has no network of its own",
    "serial": "it is on no serial line",
    "raw": "it is on no raw serial line",
    "reliable": "it is not behind the reliable link of a line of its own",
    "console": "its link is not beside its REPL",
    "lossless": "its raw serial line loses what is not read in time",
    "buttons": "its RESET is not within reach",
    "reset": "nothing resets it",
    "power": "nothing proves that its power is cut; a [power] in its file does",
    "peer": "the run has no other board for it, one of them with FMQP",
    "proxy": "its broker is on another machine, without a fault proxy before it",
}


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


Function = Callable[[BoardSession], list[Samples] | None]


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

    def why_not(self, protocol: Protocol, has: frozenset[Need]) -> str:
        """Return why the check makes no sense on a board that speaks and has these, else ""."""
        if protocol not in self.protocols:
            return f"it speaks {_CALLED[protocol]}"
        return ", ".join(_LACKS.get(need, f"it has no {need}") for need in sorted(self.needs - has))

    @property
    def about(self) -> str:
        """One line on what must be true."""
        return (self.run.__doc__ or self.run.__name__).strip().splitlines()[0]
