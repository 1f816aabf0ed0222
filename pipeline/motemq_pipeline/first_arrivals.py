"""The first arrival of each reading of a stream, told from copies by its number and by no clock.

Spark's own ``dropDuplicatesWithinWatermark`` forgets by event time, and drops what is older than
its watermark: after a broker's clock was set back, readings that nobody has seen. Here a board's
state is bounded by counts, so nothing is dropped because of a time.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

WINDOW: Final = 4096  # numbers of a sensor, down from its highest, that are remembered
_MOST_CONNECTIONS: Final = 8  # of a board; the one that was silent for longest is forgotten
_MOST_SENSORS: Final = 64  # of a connection, likewise
_ALL: Final = (1 << WINDOW) - 1


@dataclass(slots=True)
class _Numbers:
    """The numbers of one sensor by one connection: bit n is the number ``highest`` - n."""

    highest: int
    bits: int = 0

    def first(self, number: int) -> bool:
        behind = self.highest - number
        if behind >= WINDOW:
            return True  # nobody knows
        if behind < 0:
            self.bits = self.bits << -behind & _ALL if -behind < WINDOW else 0
            self.highest, behind = number, 0
        came = bool(self.bits >> behind & 1)
        self.bits |= 1 << behind
        return not came


@dataclass(slots=True)
class Arrivals:
    """What is remembered of one board."""

    connections: dict[int, dict[str, _Numbers]] = field(default_factory=dict)

    def first(self, connection: int, sensor: str, number: int) -> bool:
        """Note a reading; return whether it is the first with its number, or not known any more."""
        sensors = _latest(self.connections, connection, {}, _MOST_CONNECTIONS)
        numbers: _Numbers = _latest(sensors, sensor, _Numbers(number), _MOST_SENSORS)
        return numbers.first(number)

    def to_bytes(self) -> bytes:
        """Return what ``from_bytes`` takes."""
        said = [
            [connection, [[sensor, n.highest, f"{n.bits:x}"] for sensor, n in sensors.items()]]
            for connection, sensors in self.connections.items()
        ]
        return zlib.compress(json.dumps(said, separators=(",", ":")).encode(), 1)

    @classmethod
    def from_bytes(cls, said: bytes) -> "Arrivals":
        """Return what ``to_bytes`` was called of."""
        return cls(
            {
                connection: {sensor: _Numbers(at, int(bits, 16)) for sensor, at, bits in sensors}
                for connection, sensors in json.loads(zlib.decompress(said))
            }
        )


def first_arrivals(readings: DataFrame) -> DataFrame:
    """Return a stream of ``silver_telemetry`` without copies; readings without ``seq`` are none.

    A copy is known if its number is less than ``WINDOW`` below the highest of its sensor, and its
    connection one of the latest 8 of its board. Executors need pandas and pyarrow.
    """
    # As numbers: pandas would take times for those of the session's zone.
    times = [each.name for each in readings.schema if isinstance(each.dataType, TimestampType)]
    numbered = readings.withColumns({name: F.unix_micros(name) for name in times})
    schema = StructType(
        [
            StructField(each.name, LongType() if each.name in times else each.dataType)
            for each in readings.schema
        ]
    )
    found = numbered.groupBy("board").applyInPandasWithState(
        _first_of_a_board, schema, "said binary", "append", GroupStateTimeout.NoTimeout
    )
    return found.withColumns({name: F.timestamp_micros(name) for name in times})


def _first_of_a_board(
    _: Any, frames: Iterable[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    known = state.getOption
    arrivals = Arrivals.from_bytes(known[0]) if known else Arrivals()
    rows = pd.concat(list(frames)).sort_values(["partition", "message_seq"], kind="stable")
    columns = (rows["connection"], rows["sensor"], rows["seq"])
    kept = [
        pd.isna(number) or arrivals.first(int(connection), sensor, int(number))
        for connection, sensor, number in zip(*columns, strict=True)
    ]
    state.update((arrivals.to_bytes(),))
    yield rows[kept]


def _latest(of: dict[Any, Any], key: Any, new: Any, most: int) -> Any:
    """Return ``of[key]``, be it ``new``, as its last; without the first if they are too many."""
    found = of.pop(key, new)
    of[key] = found
    if len(of) > most:
        del of[next(iter(of))]
    return found
