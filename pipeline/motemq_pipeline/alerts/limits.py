"""Which limits hold for a reading: those of the registry's rule for its path."""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from motemq_pipeline.alerts.settings import AlertSettings

_REMEMBERED = 10_000  # paths; a limit, because boards choose them


class SensorRule(Protocol):
    """What the registry says of a sensor; None is no limit."""

    @property
    def minimum(self) -> float | None: ...
    @property
    def maximum(self) -> float | None: ...
    @property
    def hysteresis(self) -> float: ...


class PathRule(Protocol):
    """What the registry says of a path."""

    @property
    def sensors(self) -> Mapping[str, SensorRule]: ...
    @property
    def silent_after_s(self) -> float | None: ...


class Registry(Protocol):
    """Rules in order, the first that matches a path decides (docs/registry.md)."""

    @property
    def rules(self) -> Sequence[PathRule]: ...

    def rule_for(self, path: str) -> PathRule | None:
        """Return the rule of a path."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one sensor, in its unit; ``silent_after_s`` 0: no silence is an alert."""

    minimum: float | None = None
    maximum: float | None = None
    hysteresis: float = 0.0
    silent_after_s: float = 0.0

    def broken(self, value: float) -> float | None:
        """Return the limit that ``value`` breaks; what is no number breaks any."""
        if self.maximum is not None and not value <= self.maximum:
            return self.maximum
        if self.minimum is not None and not value >= self.minimum:
            return self.minimum
        return None

    def kept(self, value: float) -> bool:
        """Whether ``value`` is so far inside that a broken limit is forgiven."""
        inner = self.hysteresis
        if self.minimum is not None and self.maximum is not None:
            inner = min(inner, (self.maximum - self.minimum) / 4)  # something must be inside
        low = -math.inf if self.minimum is None else self.minimum + inner
        high = math.inf if self.maximum is None else self.maximum - inner
        return low <= value <= high


NOTHING = Limits()


@dataclass(slots=True)
class Rules:
    """A registry's limits, by path and sensor."""

    registry: Registry
    settings: AlertSettings
    _found: dict[tuple[str, str], Limits] = field(init=False, repr=False, default_factory=dict)

    @property
    def silences(self) -> int:
        """A number for how long boards may be silent; another one if any rule says otherwise."""
        said = [rule.silent_after_s for rule in self.registry.rules]
        return zlib.crc32(repr([self.settings.silent_after_s, *said]).encode())

    def limits(self, path: str, sensor: str) -> Limits:
        """Return what holds for a reading."""
        found = self._found.get((path, sensor))
        if found is None:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            found = self._found[path, sensor] = self._look(path, sensor)
        return found

    def _look(self, path: str, sensor: str) -> Limits:
        rule = self.registry.rule_for(path)
        silent_s = None if rule is None else rule.silent_after_s
        if silent_s is None:
            silent_s = self.settings.silent_after_s
        sensor_rule = None if rule is None else rule.sensors.get(sensor)
        if sensor_rule is None:
            return Limits(silent_after_s=silent_s)
        hysteresis = sensor_rule.hysteresis or self.settings.hysteresis * _span(sensor_rule)
        return Limits(sensor_rule.minimum, sensor_rule.maximum, hysteresis, silent_s)


def _span(sensor_rule: SensorRule) -> float:
    """Return the length of a range; of one with one end, how far that is from 0."""
    if sensor_rule.minimum is not None and sensor_rule.maximum is not None:
        return sensor_rule.maximum - sensor_rule.minimum
    return abs(
        sensor_rule.minimum if sensor_rule.minimum is not None else sensor_rule.maximum or 0.0
    )
