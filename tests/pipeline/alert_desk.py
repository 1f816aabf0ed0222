"""A fleet of boards in simulated time, for the tests of alerts."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from motemq_pipeline.alerts.events import Alert, Event, Reading
from motemq_pipeline.alerts.fleet import Fleet
from motemq_pipeline.alerts.limits import Rules
from motemq_pipeline.alerts.settings import AlertSettings

START_MS = 1_767_225_600_000


@dataclass(frozen=True)
class Sensor:
    minimum: float | None = None
    maximum: float | None = None
    hysteresis: float = 0.0


@dataclass(frozen=True)
class Rule:
    sensors: dict[str, Sensor] = field(default_factory=dict)
    silent_after_s: float | None = None


@dataclass(frozen=True)
class Registry:
    """One rule for paths that begin with telemetry/, one that hears of everything else late."""

    rule: Rule = field(
        default_factory=lambda: Rule({"temperature": Sensor(0.0, 40.0, 1.0)}, silent_after_s=10.0)
    )

    @property
    def rules(self) -> tuple[Rule, ...]:
        return (self.rule,)

    def rule_for(self, path: str) -> Rule | None:
        return self.rule if path.startswith("telemetry/") else None


class Desk:
    """A fleet and its clock, ``now_s`` seconds after the start."""

    def __init__(self, restarts: bool = False, **changed: object) -> None:
        self.settings = AlertSettings.read({"silent_after_s": 100.0, "shards": 1, **changed})
        self.registry = Registry()
        self.fleet = Fleet(0, Rules(self.registry, self.settings), self.settings)
        self.restarts = restarts
        self.now_s = 0.0
        self.alerts: list[Alert] = []

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.now_s * 1000)

    def _did(self, alerts: Iterable[Alert]) -> list[Alert]:
        found = list(alerts)
        self.alerts += found
        if self.restarts:
            text = self.fleet.to_text()
            self.restart(self.registry)
            assert self.fleet.to_text() == text
        return found

    def restart(self, registry: Registry) -> None:
        text = self.fleet.to_text()
        self.registry = registry
        self.fleet = Fleet(0, Rules(registry, self.settings), self.settings)
        self.fleet.from_text(text)

    def at(self, now_s: float, *events: Event) -> list[Alert]:
        self.now_s = now_s
        return self._did(self.fleet.handle(events, self.now_ms))

    def until(self, now_s: float, step_s: float = 1.0) -> list[Alert]:
        """Let time pass, step by step; returns what was said."""
        found: list[Alert] = []
        while self.now_s < now_s:
            self.now_s = min(now_s, self.now_s + step_s)
            found += self._did(self.fleet.tick(self.now_ms))
            deadline = self.fleet.next_deadline()
            assert deadline is None or deadline > self.now_ms
        return found

    def reading(
        self,
        number: int | None,
        value: float = 20.0,
        board: str = "a",
        sensor: str = "temperature",
        connection: int = 1,
    ) -> Reading:
        path = f"telemetry/{board}/{sensor}"
        last = sensor == "end"
        return Reading(board, self.now_ms, path, sensor, number, value, connection, last)


def told(alerts: Iterable[Alert]) -> list[tuple[str, str]]:
    return [(a.kind, "raised" if a.cleared_ms is None else "cleared") for a in alerts]
