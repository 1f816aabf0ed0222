"""One board's alerts: what happens and the time go in, alerts come out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from motemq_pipeline.alerts.events import (
    DISORDER,
    LOSS,
    RANGE,
    SILENT,
    WILL,
    Alert,
    Event,
    Gone,
    Reading,
)
from motemq_pipeline.alerts.limits import Limits
from motemq_pipeline.alerts.numbering import Numbering
from motemq_pipeline.alerts.settings import AlertSettings, milliseconds


@dataclass(frozen=True, slots=True)
class _Open:
    raised_ms: int
    number: int


@dataclass(slots=True)
class Board:
    """The state of one board. ``seen_ms`` is when the pipeline last heard of it."""

    name: str
    seen_ms: int
    resting: bool = False  # it said that it was its last message
    silent_ms: int | None = None  # the shortest silence that any of its rules calls one
    gone_ms: int | None = None  # since when there is a last will and no return
    raised: int = 0  # alerts, in its life
    quiet_ms: int = 0  # when numbers were last missing
    late: int = 0  # how many numbers came late since that alert was raised
    late_ms: int = 0  # when the last of them came
    open: dict[tuple[str, str], _Open] = field(default_factory=dict)
    numbering: Numbering = field(default_factory=Numbering)
    outdated: bool = False  # ``silent_ms`` is of rules that there were before

    def handle(
        self, event: Event, limits: Limits, settings: AlertSettings, now_ms: int
    ) -> Iterator[Alert]:
        """Yield what an event raises and clears. ``limits`` are those of a reading."""
        if isinstance(event, Gone):
            if self.gone_ms is None and not self.resting:
                self.gone_ms = now_ms
            return
        yield from self._alive(event, now_ms)
        if isinstance(event, Reading):
            self.resting = event.last  # what follows is no silence
            self._shortest_silence(limits)
            yield from self._judge_value(event, limits, settings)
            if event.number is not None:
                yield from self._judge_number(event, event.number, now_ms)

    def tick(self, settings: AlertSettings, now_ms: int) -> Iterator[Alert]:
        """Yield what time alone raises and clears."""
        deadline = self._silence_ms()
        if deadline is not None and now_ms >= deadline:
            seconds = (self.silent_ms or 0) / 1000
            message = f"nothing has come from {self.name} for {seconds:g} s"
            yield self._raise(SILENT, "", deadline, seconds, seconds, message)
        deadline = self._will_ms(settings)
        if deadline is not None and now_ms >= deadline:
            after = settings.will_after_s
            message = f"the last will of {self.name} was published, and it is not back"
            yield self._raise(WILL, "", deadline, after, after, message)
        yield from self._tick_numbers(settings, now_ms)

    def next_deadline(self, settings: AlertSettings) -> int:
        """Return when ``tick`` or ``forgotten`` next has something to say."""
        found = [self._silence_ms(), self._will_ms(settings), self.forget_ms(settings)]
        since = self.numbering.oldest_ms()
        if since is not None:
            found.append(since + milliseconds(settings.loss_after_s))
        clear = milliseconds(settings.loss_clear_s)
        if (LOSS, "") in self.open:
            found.append(self.quiet_ms + clear)
        if (DISORDER, "") in self.open:
            found.append(self.late_ms + clear)
        return min(each for each in found if each is not None)

    def forget_ms(self, settings: AlertSettings) -> int:
        """Return when the board has been away for so long that it is to be forgotten."""
        return self.seen_ms + milliseconds(settings.forget_after_s)

    def forgotten(self, settings: AlertSettings, now_ms: int) -> Iterator[Alert]:
        """Clear everything: nobody will watch this board any more."""
        text = f"{self.name} did not come back for {settings.forget_after_s:g} s and is forgotten"
        for kind, sensor in list(self.open):
            yield self._clear(kind, sensor, now_ms, None, text)

    def clock_went_back(self, now_ms: int) -> None:
        """Take ``now_ms`` for every time that lies after it."""
        self.seen_ms = min(self.seen_ms, now_ms)
        self.quiet_ms, self.late_ms = min(self.quiet_ms, now_ms), min(self.late_ms, now_ms)
        if self.gone_ms is not None:
            self.gone_ms = min(self.gone_ms, now_ms)
        for missing in self.numbering.missing():
            missing.since_ms = min(missing.since_ms, now_ms)

    def _alive(self, event: Event, now_ms: int) -> Iterator[Alert]:
        absent_s = (now_ms - self.seen_ms) / 1000
        self.seen_ms, self.gone_ms = now_ms, None
        for kind in (SILENT, WILL):
            if (kind, "") in self.open:
                message = f"{self.name} is back after {absent_s:.1f} s"
                yield self._clear(kind, "", event.at_ms, absent_s, message)

    def _shortest_silence(self, limits: Limits) -> None:
        own = milliseconds(limits.silent_after_s)
        if self.outdated:
            self.silent_ms, self.outdated = own or None, False
        elif own:
            self.silent_ms = own if self.silent_ms is None else min(self.silent_ms, own)

    def _silence_ms(self) -> int | None:
        if self.resting or self.silent_ms is None or (SILENT, "") in self.open:
            return None
        return self.seen_ms + self.silent_ms

    def _will_ms(self, settings: AlertSettings) -> int | None:
        if self.gone_ms is None or (WILL, "") in self.open:
            return None
        return self.gone_ms + milliseconds(settings.will_after_s)

    def _judge_value(
        self, event: Reading, limits: Limits, settings: AlertSettings
    ) -> Iterator[Alert]:
        key, value = (RANGE, event.sensor), event.value
        reported = None if math.isnan(value) else value
        if key in self.open:
            if limits.kept(value):
                message = f"{event.sensor} of {self.name} is {value:g}, inside its limits again"
                yield self._clear(RANGE, event.sensor, event.at_ms, reported, message)
            return
        broken = limits.broken(value)
        if broken is None or sum(kind == RANGE for kind, _ in self.open) >= settings.max_sensors:
            return
        side = "is not a number" if reported is None else f"is {value:g}"
        message = f"{event.sensor} of {self.name} {side}, its limit is {broken:g}"
        yield self._raise(RANGE, event.sensor, event.at_ms, reported, broken, message)

    def _judge_number(self, event: Reading, number: int, now_ms: int) -> Iterator[Alert]:
        behind = self.numbering.take(event.connection, number, now_ms)
        if behind is None:
            return
        self.late_ms = now_ms
        if (DISORDER, "") in self.open:
            self.late += 1
        else:
            self.late = 1
            message = f"reading {number} of {self.name} came after {behind} later ones"
            yield self._raise(DISORDER, "", event.at_ms, float(behind), None, message)
        if (LOSS, "") in self.open and self.numbering.complete:
            message = f"what was missing of {self.name} has come late"
            yield self._clear(LOSS, "", event.at_ms, 0.0, message)

    def _tick_numbers(self, settings: AlertSettings, now_ms: int) -> Iterator[Alert]:
        clear_ms = milliseconds(settings.loss_clear_s)
        new = self.numbering.lose(now_ms - milliseconds(settings.loss_after_s))
        if new:
            self.quiet_ms = now_ms
        if self.numbering.lost and (LOSS, "") not in self.open:
            self.quiet_ms = now_ms
            lost = self.numbering.lost
            where = f", from number {new[0].first}" if new else ""
            message = f"{lost} readings of {self.name} are missing{where}"
            yield self._raise(LOSS, "", now_ms, float(lost), 0.0, message)
        elif (LOSS, "") in self.open and now_ms >= self.quiet_ms + clear_ms:
            lost = self.numbering.lost
            message = f"no more readings of {self.name} were missing; {lost} are lost"
            self.numbering.forget_lost()
            yield self._clear(LOSS, "", now_ms, float(lost), message)
        if (DISORDER, "") in self.open and now_ms >= self.late_ms + clear_ms:
            message = f"no more readings of {self.name} came late; {self.late} did"
            yield self._clear(DISORDER, "", now_ms, float(self.late), message)

    def _raise(
        self,
        kind: str,
        sensor: str,
        at_ms: int,
        value: float | None,
        limit: float | None,
        message: str,
    ) -> Alert:
        self.raised += 1
        self.open[kind, sensor] = found = _Open(at_ms, self.raised)
        name = self._id(kind, sensor, found)
        return Alert(name, kind, self.name, sensor, at_ms, None, value, limit, message)

    def _clear(
        self, kind: str, sensor: str, at_ms: int, value: float | None, message: str
    ) -> Alert:
        found = self.open.pop((kind, sensor))
        name = self._id(kind, sensor, found)
        # Two clocks may disagree; an alert does not end before it begins.
        cleared_ms = max(at_ms, found.raised_ms)
        return Alert(
            name, kind, self.name, sensor, found.raised_ms, cleared_ms, value, None, message
        )

    def _id(self, kind: str, sensor: str, found: _Open) -> str:
        # The number: one record of the journal, so one millisecond, may have several.
        return f"{kind}:{self.name}:{sensor}:{found.raised_ms}:{found.number}"

    def to_json(self) -> list[Any]:
        """Return what ``from_json`` takes."""
        facts = [self.seen_ms, int(self.resting), self.silent_ms, self.gone_ms, self.raised]
        facts += [self.quiet_ms, self.late, self.late_ms, int(self.outdated)]
        still = [[kind, sensor, o.raised_ms, o.number] for (kind, sensor), o in self.open.items()]
        return [facts, still, self.numbering.to_json()]

    @classmethod
    def from_json(cls, name: str, state: list[Any]) -> "Board":
        """Return the board of which ``to_json`` was called."""
        facts, still, numbering = state
        # States of earlier versions end here.
        seen, resting, silent, gone, raised, quiet, late, late_ms, *outdated = facts
        found = {(kind, sensor): _Open(at, number) for kind, sensor, at, number in still}
        numbers = Numbering.from_json(numbering)
        times = (quiet, late, late_ms)
        return cls(
            name, seen, bool(resting), silent, gone, raised, *times, found, numbers, any(outdated)
        )
