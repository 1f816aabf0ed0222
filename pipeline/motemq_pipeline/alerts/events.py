"""What happened to boards, and what an alert is. Times are milliseconds since 1970 UTC."""

from dataclasses import dataclass

SILENT, RANGE, WILL, LOSS, DISORDER = "silent", "range", "will", "loss", "disorder"
UNWATCHED = "unwatched"  # of no board: there are more boards than may be watched


@dataclass(frozen=True, slots=True)
class Reading:
    """A board's reading was read by the broker at ``at_ms``.

    ``number`` counts the board's messages from 0, None if it does not count; several readings of
    one message have the same. ``connection`` is what they came by; ``last`` says that the board
    ends its stream with it.
    """

    board: str
    at_ms: int
    path: str
    sensor: str
    number: int | None
    value: float
    connection: int
    last: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """A board's last will was published, or the broker's word that it is offline."""

    board: str
    at_ms: int
    path: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A board's presence was published that is no last will."""

    board: str
    at_ms: int
    path: str


Event = Reading | Gone | Returned


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert was raised, or, if ``cleared_ms`` is there, cleared.

    ``alert`` is the same text for both and for no other alert. ``value`` is what was judged and
    ``limit`` what it was judged by, in the unit that ``kind`` has (docs/alerts.md).
    """

    alert: str
    kind: str
    board: str
    sensor: str
    raised_ms: int
    cleared_ms: int | None
    value: float | None
    limit: float | None
    message: str

    @property
    def key(self) -> str:
        """What is the same only if this very change is said again."""
        return f"{self.alert}:{'raised' if self.cleared_ms is None else 'cleared'}"
