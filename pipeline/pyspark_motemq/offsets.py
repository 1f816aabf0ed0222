"""Where a read begins and ends: ``earliest``, a number, a time, ``-10min``, by partition or all."""

import datetime
import json
import re
from collections.abc import Mapping

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.journal import JournalClient, PartitionState

_UNITS_S = {"s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400}
_AGO = re.compile(r"-\s*(\d+(?:\.\d+)?)\s*(s|sec|min|h|d)")
_HELP = (
    "write earliest, latest, a time (2026-01-31T12:00:00Z, or -10min, -2h, -3d) or a message "
    'number by partition, as JSON: {"0": 1234, "1": "latest"}'
)


class Offsets:
    """What an option says, until it is known which messages there are."""

    def __init__(self, option: str, text: str) -> None:
        """Read it. Raises ``JournalError`` if it cannot be understood."""
        self._option = option
        self._text = text.strip()
        self._by_partition: dict[int, str | int] | None = None
        if self._text.startswith("{"):
            try:
                found = {int(number): at for number, at in json.loads(self._text).items()}
            except (ValueError, AttributeError):
                raise self._unclear() from None
            for at in found.values():
                if not isinstance(at, str | int) or isinstance(at, bool):
                    raise self._unclear()
            self._by_partition = found
        for at in self._by_partition.values() if self._by_partition is not None else [self._text]:
            if isinstance(at, str):
                self._time_ns(at, 0)

    @property
    def moves(self) -> bool:
        """Whether it means something else tomorrow: ``latest``, or a time."""
        by_partition = self._by_partition
        said = [self._text] if by_partition is None else by_partition.values()
        return any(isinstance(at, str) and at != "earliest" for at in said)

    def resolve(
        self, journal: JournalClient, partitions: Mapping[int, PartitionState], now_ns: int
    ) -> dict[int, int]:
        """Return a message number for every partition; times are asked of ``journal``.

        A partition that a JSON text does not name begins with its oldest message. Raises
        ``JournalError``.
        """
        by_partition = self._by_partition
        if by_partition is None:
            by_partition = dict.fromkeys(partitions, self._text)
        found = {}
        since: dict[int, dict[int, int]] = {}
        for number, state in partitions.items():
            at = by_partition.get(number, "earliest")
            if isinstance(at, int):
                found[number] = at
            elif at in ("earliest", "latest"):
                found[number] = state.first if at == "earliest" else state.next
            else:
                time_ns = self._time_ns(at, now_ns)
                if time_ns not in since:
                    since[time_ns] = journal.since(time_ns)
                found[number] = since[time_ns].get(number, state.next)
        return found

    def _time_ns(self, text: str, now_ns: int) -> int:
        if text in ("earliest", "latest"):
            return 0
        if match := _AGO.fullmatch(text):
            return now_ns - int(float(match[1]) * _UNITS_S[match[2]] * 1e9)
        try:
            time = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise self._unclear() from None
        if time.tzinfo is None:
            time = time.replace(tzinfo=datetime.UTC)
        passed = time - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (passed // datetime.timedelta(microseconds=1)) * 1000

    def _unclear(self) -> JournalError:
        return JournalError(f"option {self._option}: '{self._text}' cannot be read; {_HELP}")
