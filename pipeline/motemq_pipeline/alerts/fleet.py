"""Many boards: how many are watched, for how long, and what a pause of the pipeline means."""

import json
from collections.abc import Iterable, Iterator

from motemq_pipeline.alerts.board import Board
from motemq_pipeline.alerts.events import UNWATCHED, Alert, Event, Reading
from motemq_pipeline.alerts.limits import NOTHING, Rules
from motemq_pipeline.alerts.settings import AlertSettings, milliseconds
from motemq_pipeline.errors import PipelineError

_VERSION = 1  # of the text
_LONGEST_NAME = 255  # characters; a rule's readings have no longer names (docs/registry.md)


class Fleet:
    """The boards of one shard.

    A deadline that is met late by more than ``settle_s`` means that the pipeline did not run, so
    messages wait to be read. Nothing is judged by time then until ``settle_s`` have passed.
    """

    def __init__(self, shard: int, rules: Rules, settings: AlertSettings) -> None:
        self._shard = shard
        self._rules = rules
        self._settings = settings
        self._most = max(1, -(-settings.max_boards // settings.shards))
        self._boards: dict[str, Board] = {}
        self._settle_ms: int | None = None
        self._now_ms = 0
        self._refusals = 0  # alerts about boards that are not watched
        self._refusing_ms: int | None = None  # since when such an alert is open

    def handle(self, events: Iterable[Event], now_ms: int) -> Iterator[Alert]:
        """Yield what events, in their order, raise and clear; then what time does."""
        self._clock(now_ms)
        for event in events:
            yield from self._handle(event, now_ms)
        yield from self.tick(now_ms)

    def tick(self, now_ms: int) -> Iterator[Alert]:
        """Yield what time alone raises and clears."""
        self._clock(now_ms)
        settings = self._settings
        deadlines = {name: board.next_deadline(settings) for name, board in self._boards.items()}
        late_ms = now_ms - min(deadlines.values(), default=now_ms)
        settle_ms = milliseconds(settings.settle_s)
        if self._settle_ms is None and late_ms > settle_ms:
            self._settle_ms = now_ms + settle_ms
        if self._settle_ms is not None and now_ms < self._settle_ms:
            return
        self._settle_ms = None
        for name, at_ms in deadlines.items():
            if at_ms <= now_ms:
                board = self._boards[name]
                yield from board.tick(settings, now_ms)
                if now_ms >= board.forget_ms(settings):
                    yield from board.forgotten(settings, now_ms)
                    del self._boards[name]
        if self._refusing_ms is not None and len(self._boards) < self._most:
            yield self._refusal(now_ms, f"there is room for more than {len(self._boards)} boards")
            self._refusing_ms = None

    def next_deadline(self) -> int | None:
        """Return when ``tick`` next has something to say."""
        if self._settle_ms is not None:
            return self._settle_ms
        deadlines = [board.next_deadline(self._settings) for board in self._boards.values()]
        return min(deadlines, default=None)

    def _clock(self, now_ms: int) -> None:
        if now_ms < self._now_ms:
            if self._settle_ms is not None:
                self._settle_ms = now_ms + milliseconds(self._settings.settle_s)
            for board in self._boards.values():
                board.clock_went_back(now_ms)
        self._now_ms = now_ms

    def _handle(self, event: Event, now_ms: int) -> Iterator[Alert]:
        board = self._boards.get(event.board)
        if not isinstance(event, Reading):
            # Who never sent a reading is no board: a program, or the rig's checks.
            if board is not None:
                yield from board.handle(event, NOTHING, self._settings, now_ms)
            return
        if max(len(event.board), len(event.sensor)) > _LONGEST_NAME:
            return
        if board is None:
            if len(self._boards) >= self._most:
                yield from self._refuse(event, f"shard {self._shard} watches {self._most}")
                return
            board = self._boards[event.board] = Board(event.board, now_ms)
        limits = self._rules.limits(event.path, event.sensor)
        yield from board.handle(event, limits, self._settings, now_ms)

    def _refuse(self, event: Reading, why: str) -> Iterator[Alert]:
        if self._refusing_ms is None:
            self._refusing_ms = event.at_ms
            self._refusals += 1
            yield self._refusal(None, f"board '{event.board[:80]}' is not watched: {why}")

    def _refusal(self, cleared_ms: int | None, message: str) -> Alert:
        raised_ms = self._refusing_ms or 0
        if cleared_ms is not None:
            cleared_ms = max(cleared_ms, raised_ms)
        name = f"{UNWATCHED}::{self._shard}:{raised_ms}:{self._refusals}"
        boards, most = float(len(self._boards)), float(self._most)
        return Alert(name, UNWATCHED, "", "", raised_ms, cleared_ms, boards, most, message)

    def to_text(self) -> str:
        """Return all of the state; ``from_text`` takes it."""
        boards = {name: board.to_json() for name, board in self._boards.items()}
        shards = self._settings.shards
        facts = [shards, self._settle_ms, self._now_ms, self._refusals, self._refusing_ms]
        facts.append(self._rules.silences)
        return json.dumps([_VERSION, facts, boards], separators=(",", ":"))

    def from_text(self, text: str) -> None:
        """Take over what ``to_text`` said.

        Raises ``PipelineError`` for another version's, or if boards have other shards now.
        """
        version, facts, boards = json.loads(text)
        if version != _VERSION:
            raise PipelineError(
                f"the alerts' checkpoint has state version {version}, this program knows "
                f"{_VERSION}; go on with the other version, or begin with a new checkpoint"
            )
        shards, self._settle_ms, self._now_ms, self._refusals, self._refusing_ms, *silences = facts
        if shards != self._settings.shards:
            raise PipelineError(
                f"alerts.shards is {self._settings.shards}, the alerts' checkpoint has {shards}; "
                "set it back, or begin with a new checkpoint"
            )
        self._boards = {name: Board.from_json(name, state) for name, state in boards.items()}
        if silences != [self._rules.silences]:  # earlier versions did not note them
            for board in self._boards.values():
                board.outdated = True
