"""Message numbers: where a read begins and ends, how far a micro-batch goes, what a query has read.

A position that Spark keeps names the journals, too. Without a journal's UUID a number says nothing:
two brokers that change places, or one whose data was deleted, would be read on as if nothing had
happened.
"""

import datetime
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.journal import PARTITIONS, JournalClient, PartitionState

Offset = dict[str, Any]  # as JSON
_JOURNALS = "journals"
_BEGUN = "begun_ns"


@dataclass(frozen=True, slots=True)
class Position:
    """``numbers`` by partition; ``journals``: UUIDs, by partition // ``PARTITIONS``.

    A position of before there were UUIDs has none, and is taken for any journal's. A partition
    without a number, of a journal that is named, came later: nothing of it was read. ``begun_ns``:
    when the query began, as long as it has to be known for journals that have yet to be seen.
    """

    numbers: Mapping[int, int]
    journals: Mapping[int, str] = field(default_factory=dict)
    begun_ns: int | None = None

    @classmethod
    def read(cls, offset: Offset) -> "Position":
        """Return what ``written`` made."""
        numbers = {int(key): at for key, at in offset.items() if key not in (_JOURNALS, _BEGUN)}
        journals = {int(key): id_ for key, id_ in offset.get(_JOURNALS, {}).items()}
        return cls(numbers, journals, offset.get(_BEGUN))

    def written(self) -> Offset:
        """Return it as JSON."""
        found: Offset = {str(number): self.numbers[number] for number in sorted(self.numbers)}
        if self.journals:
            found[_JOURNALS] = {str(key): self.journals[key] for key in sorted(self.journals)}
        if self.begun_ns is not None:
            found[_BEGUN] = self.begun_ns
        return found

    @property
    def seen(self) -> set[int]:
        """The journals that the query has seen, also those that had no message yet."""
        return {number // PARTITIONS for number in self.numbers} | set(self.journals)

    def entering(self, partitions: Iterable[int]) -> set[int]:
        """Return those of ``partitions`` whose journal this query has not seen since it began."""
        if self.begun_ns is None:
            return set()
        seen = self.seen
        return {number for number in partitions if number // PARTITIONS not in seen}

    def check(self, there: Mapping[int, str], names: Mapping[int, str]) -> None:
        """Raise ``JournalError`` if one of its journals is not the one that is there now.

        ``names``: how to call a journal, by number.
        """
        for number, identity in self.journals.items():
            now = there.get(number)
            if now is None or now == identity:
                continue
            text = (
                f"{names.get(number, f'journal {number}')} is journal {now}, but this query has "
                f"read journal {identity} there"
            )
            for other, same in there.items():
                if same == identity:
                    text += f", which is now {names.get(other, f'journal {other}')}: give them in "
                    text += "the order they had"
                    break
            else:
                text += ": it was begun anew, or is another broker's; begin with a new checkpoint, "
                text += "or put the old one back"
            raise JournalError(text)


@dataclass(frozen=True, slots=True)
class Limits:
    """At most ``max_rows`` and about ``max_bytes``; nothing below ``min_rows``. 0 = no limit.

    After ``max_delay_s`` a batch may have fewer than ``min_rows``.
    """

    max_rows: int = 0
    max_bytes: int = 0
    min_rows: int = 0
    max_delay_s: float = 900.0

    def without_minimum(self) -> "Limits":
        """Return the same for a query that is to end."""
        return replace(self, min_rows=0)

    def end(
        self, start: Mapping[int, int], partitions: Mapping[int, PartitionState]
    ) -> dict[int, int]:
        """Return up to where a batch that begins at ``start`` goes, by partition.

        Partitions share what is allowed by what waits in them, so none is starved. Bytes are
        counted by the mean of a partition's messages. Never more than ``max_rows`` in all.
        """
        waiting = {number: state.next - start[number] for number, state in partitions.items()}
        total = sum(waiting.values())
        if total < self.min_rows:
            return {number: start[number] for number in partitions}
        share = 1.0
        if self.max_rows and total:
            share = min(share, self.max_rows / total)
        if self.max_bytes and total:
            size = sum(waiting[number] * _mean(state) for number, state in partitions.items())
            share = min(share, self.max_bytes / max(size, 1))
        left = self.max_rows or total
        found = {}
        for number in sorted(waiting, key=lambda each: -waiting[each]):
            # Rounded up: otherwise the last message would wait for ever.
            rows = min(waiting[number], math.ceil(waiting[number] * share), left)
            left -= rows
            found[number] = start[number] + rows
        return found


def _mean(state: PartitionState) -> float:
    return state.size / max(1, state.next - state.first)


_UNITS_S = {"s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400}
_AGO = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*(s|sec|min|h|d)")
_BEFORE_1970, _LAST_NS = 0, 2**63 - 1  # no message is older, or newer
_OF_KAFKA = {-2: "earliest", -1: "latest"}  # numbers by which its source means these
_HELP = (
    "write earliest, latest, a time (2026-01-31T12:00:00Z, or -10min, -2h, -3d) or a message "
    'number by partition, as JSON: {"0": 1234, "1": "latest"}'
)


class Offsets:
    """What an option says, until it is known which messages there are."""

    def __init__(self, option: str, text: str, unnamed: str = "earliest") -> None:
        """Read it; ``unnamed``: what holds for a partition that a JSON text does not name.

        Raises ``JournalError`` if it cannot be understood.
        """
        self._option = option
        self._unnamed = unnamed
        self._text = text.strip()
        self._by_partition: dict[int, str | int] | None = None
        if self._text.startswith("{"):
            try:
                found = {int(number): at for number, at in json.loads(self._text).items()}
            except (ValueError, AttributeError):
                raise self._unclear() from None
            for number, at in found.items():
                if not isinstance(at, str | int) or isinstance(at, bool):
                    raise self._unclear()
                if isinstance(at, int) and at < 0:
                    if at not in _OF_KAFKA:
                        raise self._unclear()
                    found[number] = _OF_KAFKA[at]
            self._by_partition = found
        for at in self._by_partition.values() if self._by_partition is not None else [self._text]:
            if isinstance(at, str):
                self._time_ns(at, 0)

    @property
    def moves(self) -> bool:
        """Whether it means something else tomorrow: ``latest``, or a time."""
        by_partition = self._by_partition
        texts = [self._text] if by_partition is None else by_partition.values()
        return any(isinstance(at, str) and at != "earliest" for at in texts)

    @property
    def numbers(self) -> dict[int, int]:
        """The messages that are given by their numbers, by partition."""
        by_partition = self._by_partition or {}
        return {number: at for number, at in by_partition.items() if isinstance(at, int)}

    def resolve(
        self,
        journal: JournalClient,
        partitions: Mapping[int, PartitionState],
        now_ns: int,
        afterwards: bool = False,
    ) -> dict[int, int]:
        """Return a message number for every partition; times are asked of ``journal``.

        ``afterwards``: what they meant at ``now_ns``, which has passed. Raises ``JournalError``.
        """
        journals = {number // PARTITIONS for number in partitions}
        by_partition = self._by_partition
        if by_partition is None:
            by_partition = dict.fromkeys(partitions, self._text)
        found = {}
        since: dict[int, dict[int, int]] = {}
        for number, state in partitions.items():
            at = by_partition.get(number, self._unnamed)
            if isinstance(at, int):
                found[number] = at
            elif at == "earliest":
                found[number] = state.first
            elif at == "latest" and not afterwards:
                found[number] = state.next
            else:
                time_ns = now_ns if at == "latest" else self._time_ns(at, now_ns)
                if time_ns not in since:
                    since[time_ns] = journal.since(time_ns, journals)
                # There may be more by now than ``partitions`` says.
                found[number] = min(since[time_ns].get(number, state.next), state.next)
        return found

    def _time_ns(self, text: str, now_ns: int) -> int:
        if text in ("earliest", "latest"):
            return 0
        if match := _AGO.fullmatch(text):
            ago_s = min(float(match[1]) * _UNITS_S[match[2]], _LAST_NS / 1e9)
            return max(now_ns - int(ago_s * 1e9), _BEFORE_1970)
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise self._unclear() from None
        if time.tzinfo is None:
            time = time.replace(tzinfo=datetime.UTC)
        passed = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        time_ns = (passed // datetime.timedelta(microseconds=1)) * 1000
        return min(max(time_ns, _BEFORE_1970), _LAST_NS)

    def _unclear(self) -> JournalError:
        return JournalError(f"option {self._option}: '{self._text}' cannot be read; {_HELP}")
