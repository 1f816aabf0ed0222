"""One line of the result, and what must be reached there."""

import statistics
from dataclasses import dataclass, field
from typing import Literal

PEERS = ("umqtt.simple", "umqtt.robust", "umqtt.robust2", "mqtt_async", "mqtt_as")


@dataclass(frozen=True, slots=True)
class Must:
    """``at most`` or ``at least`` this; ``of``: "" for our own figure, "ratio" for ours/simple."""

    how: Literal["at most", "at least"]
    value: float
    of: Literal["", "ratio"] = ""

    def reached(self, ours: float, ratio: float | None) -> bool:
        """Tell whether it is. A ratio that could not be taken reaches nothing."""
        figure = ratio if self.of == "ratio" else ours
        if figure is None:
            return False
        return figure <= self.value if self.how == "at most" else figure >= self.value

    def __str__(self) -> str:
        sign = "≤" if self.how == "at most" else "≥"
        return f"{sign} {self.value:g}{' × simple' if self.of == 'ratio' else ''}"  # noqa: RUF001


@dataclass(slots=True)
class Row:
    """One measure. Several figures are paired rounds, and a ratio is the median of theirs."""

    title: str
    unit: str
    ours: list[float]
    theirs: dict[str, list[float]] = field(default_factory=dict)
    must: Must | None = None

    @property
    def figure(self) -> float:
        """Our median."""
        return statistics.median(self.ours)

    def ratio(self, peer: str) -> float | None:
        """Return ours / theirs; None if theirs is 0 or was not measured."""
        theirs = self.theirs.get(peer)
        if not theirs or 0 in theirs:
            return None
        return statistics.median(a / b for a, b in zip(self.ours, theirs, strict=True))

    @property
    def reached(self) -> bool | None:
        """Whether ``must`` is reached; None if there is none."""
        if self.must is None:
            return None
        return self.must.reached(round(self.figure, 3), self.ratio(PEERS[0]))
