"""A board's sequence numbers: which are missing, which came late.

A stream is what came by one connection. A board counts from 0 without gaps; it may begin again at
0, by the same connection or another, or go on counting by another. Numbers that are missing are
kept as ranges, so a jump of any size costs the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

_MOST_STREAMS = 4  # connections of one board at once; more are two boards of one name
_MOST_RANGES = 32  # missing ranges of one stream; the oldest is then given up
_RESTART = 8  # numbers in a row that were there already: the board counts anew


@dataclass(slots=True)
class Missing:
    """Numbers ``first`` to ``last`` have not come since ``since_ms``; ``lost``: said so."""

    first: int
    last: int
    since_ms: int
    lost: bool = False

    @property
    def count(self) -> int:
        """How many numbers."""
        return self.last - self.first + 1


@dataclass(slots=True)
class _Stream:
    next: int
    # What was next before the board seemed to begin again: a repeated number 0 looks the same.
    previous: int | None = None
    missing: list[Missing] = field(default_factory=list)
    repeated: int = -1  # the last number that was there already,
    in_a_row: int = 0  # and how many such came one after the other


@dataclass(slots=True)
class Numbering:
    """What is known of a board's numbers. ``lost`` is how many were given up and not seen since."""

    streams: dict[int, _Stream] = field(default_factory=dict)
    lost: int = 0

    def take(self, connection: int, number: int, now_ms: int) -> int | None:
        """Note that ``number`` came; returns how many later ones had come before it, if late."""
        stream = self.streams.get(connection)
        if stream is None:
            stream = self._new(connection, number, now_ms)
        elif next(reversed(self.streams)) != connection:
            self.streams[connection] = self.streams.pop(connection)  # the last is the latest
        if number == stream.next:
            stream.next = number + 1
            if stream.previous is not None and number >= stream.previous:
                stream.previous = None
            return None
        if number > stream.next:
            if stream.previous is not None and number >= stream.previous:
                stream.next, stream.previous = stream.previous, None
            if number > stream.next:
                self._miss(stream, Missing(stream.next, number - 1, now_ms))
            stream.next = number + 1
            return None
        for each in (stream, *self.streams.values()):
            if self._fill(each, number):
                return max(1, each.next - 1 - number)
        if number < stream.next - 1:  # else several readings of one message
            self._again(stream, number)
        return None

    def _new(self, connection: int, number: int, now_ms: int) -> _Stream:
        latest = next(reversed(self.streams.values()), None)
        found = _Stream(number)
        if latest is not None and number >= latest.next > 0:
            if number > latest.next:
                self._miss(latest, Missing(latest.next, number - 1, now_ms))
            latest.next = number
        elif latest is not None and 0 < number < latest.next:
            found.previous = latest.next
            if any(each.first <= number <= each.last for each in latest.missing):
                found.next = latest.next  # the rest of what the other connection began
        self.streams[connection] = found
        if len(self.streams) > _MOST_STREAMS:
            self._give_up(self.streams.pop(next(iter(self.streams))).missing)
        return found

    def _miss(self, stream: _Stream, missing: Missing) -> None:
        stream.missing.append(missing)
        if len(stream.missing) > _MOST_RANGES:
            self._give_up([stream.missing.pop(0)])

    def _fill(self, stream: _Stream, number: int) -> bool:
        for at, each in enumerate(stream.missing):
            if each.first <= number <= each.last:
                rest = [
                    Missing(each.first, number - 1, each.since_ms, each.lost),
                    Missing(number + 1, each.last, each.since_ms, each.lost),
                ]
                stream.missing[at : at + 1] = [part for part in rest if part.count > 0]
                if each.lost:
                    self.lost -= 1
                while len(stream.missing) > _MOST_RANGES:
                    self._give_up([stream.missing.pop(0)])
                return True
        return False

    def _again(self, stream: _Stream, number: int) -> None:
        """Judge a number that was there already: repeated, or the board counts anew."""
        stream.in_a_row = stream.in_a_row + 1 if number == stream.repeated + 1 else 1
        stream.repeated = number
        if number == 0 or stream.in_a_row >= _RESTART:
            self._give_up(stream.missing)
            stream.missing = []
            stream.previous, stream.next = stream.next, number + 1
            stream.repeated, stream.in_a_row = -1, 0

    def _give_up(self, missing: list[Missing]) -> None:
        self.lost += sum(each.count for each in missing if not each.lost)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing, and nothing was given up."""
        return self.lost == 0 and not any(True for _ in self.missing())

    def missing(self) -> Iterator[Missing]:
        """Yield what is missing and may still come."""
        for stream in self.streams.values():
            yield from stream.missing

    def oldest_ms(self) -> int | None:
        """Return since when something is missing that nobody was told of."""
        return min((each.since_ms for each in self.missing() if not each.lost), default=None)

    def lose(self, until_ms: int) -> list[Missing]:
        """Count as lost, and return, what has been missing since ``until_ms`` or longer."""
        found = []
        for each in self.missing():
            if not each.lost and each.since_ms <= until_ms:
                each.lost = True
                self.lost += each.count
                found.append(each)
        return found

    def forget_lost(self) -> None:
        """Wait no longer for what is lost."""
        for stream in self.streams.values():
            stream.missing = [each for each in stream.missing if not each.lost]
        self.lost = 0

    def to_json(self) -> list[Any]:
        """Return what ``from_json`` takes."""
        streams = [
            [
                connection,
                [s.next, s.previous, s.repeated, s.in_a_row],
                [[m.first, m.last, m.since_ms, int(m.lost)] for m in s.missing],
            ]
            for connection, s in self.streams.items()
        ]
        return [self.lost, streams]

    @classmethod
    def from_json(cls, state: list[Any]) -> "Numbering":
        """Return what ``to_json`` was called of."""
        streams = {
            connection: _Stream(
                following,
                previous,
                [Missing(first, last, since, bool(lost)) for first, last, since, lost in missing],
                repeated,
                in_a_row,
            )
            for connection, (following, previous, repeated, in_a_row), missing in state[1]
        }
        return cls(streams, state[0])
