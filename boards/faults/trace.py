"""What the proxy saw of one connection: the evidence for a verdict about its end.

All times are ns of the host's monotonic clock, the same in every process; 0 means never.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Side = Literal["client", "broker"]
How = Literal["", "fin", "rst"]


@dataclass(slots=True)
class Trace:
    """One connection of a client, from its acceptance to its end.

    ``from_…`` counts what was read, ``to_…`` what was handed on. ``…_ended`` is how that side ended
    the connection, ``…_told`` how the proxy ended it towards that side.
    """

    number: int  # within the route, from 1
    opened_ns: int
    dialled_ns: int = 0  # the broker took it
    dial_error: str = ""
    from_client_bytes: int = 0
    from_client_ns: int = 0  # when the last of them came
    to_broker_bytes: int = 0
    to_broker_ns: int = 0
    to_broker_gap_ns: int = 0  # the longest time between two of them, and when it began
    to_broker_gap_since_ns: int = 0
    from_broker_bytes: int = 0
    from_broker_ns: int = 0
    to_client_bytes: int = 0
    to_client_ns: int = 0
    client_ended: How = ""
    client_ended_ns: int = 0
    broker_ended: How = ""
    broker_ended_ns: int = 0
    client_told: How = ""
    client_told_ns: int = 0
    broker_told: How = ""
    broker_told_ns: int = 0
    cut: bool = False  # by the rig
    closed_ns: int = 0

    def came(self, side: Side, count: int, now: int) -> None:
        """Note ``count`` bytes from ``side``."""
        self._add(f"from_{side}", count, now)

    def went(self, side: Side, count: int, now: int) -> None:
        """Note ``count`` bytes handed to ``side``."""
        if side == "broker" and 0 < self.to_broker_ns < now - self.to_broker_gap_ns:
            self.to_broker_gap_ns = now - self.to_broker_ns
            self.to_broker_gap_since_ns = self.to_broker_ns
        self._add(f"to_{side}", count, now)

    def ended(self, side: Side, how: How, now: int) -> None:
        """Note that ``side`` ended the connection."""
        self._set(f"{side}_ended", how, now)

    def told(self, side: Side, how: How, now: int) -> None:
        """Note that ``side`` was told of an end."""
        self._set(f"{side}_told", how, now)

    def _add(self, what: str, count: int, now: int) -> None:
        setattr(self, f"{what}_bytes", getattr(self, f"{what}_bytes") + count)
        setattr(self, f"{what}_ns", now)

    def _set(self, what: str, how: How, now: int) -> None:
        setattr(self, what, how)
        setattr(self, f"{what}_ns", now)

    def story(self) -> str:
        """Say in words what became of it, in ms since it was opened."""
        told = [
            (self.dialled_ns, "the broker took it"),
            (self.to_broker_ns, f"last of {self.to_broker_bytes} bytes to the broker"),
            (self.client_ended_ns, f"{self.client_ended} from the client"),
            (self.broker_ended_ns, f"{self.broker_ended} from the broker"),
            (self.broker_told_ns, f"{self.broker_told} to the broker"),
            (self.client_told_ns, f"{self.client_told} to the client"),
        ]
        parts = [
            f"{what} at {(at - self.opened_ns) / 1e6:.0f} ms" for at, what in sorted(told) if at
        ]
        if self.dial_error:
            parts.append(f"no broker: {self.dial_error}")
        cut = "cut, " if self.cut else ""
        return f"connection {self.number}: {cut}{', '.join(parts) or 'nothing'}"

    def silence_ms(self, until_ns: int) -> float:
        """Return the longest time for which the broker heard nothing, up to ``until_ns``."""
        gap_ns = min(self.to_broker_gap_ns, until_ns - self.to_broker_gap_since_ns)
        return max(0, gap_ns, until_ns - (self.to_broker_ns or self.dialled_ns)) / 1e6

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Trace":
        """Read what ``dataclasses.asdict`` made. Raises ``TypeError``."""
        return cls(**row)
