"""Bronze messages to readings, and what could not be one to the quarantine.

All functions take batch frames and streaming frames and need no state: a message's rows depend on
that message alone, so a stream and a later batch over the same journal give the same rows.
``distinct`` is the one that remembers.

It knows copies by their number and by no clock. Spark's own ``dropDuplicatesWithinWatermark``
forgets by event time, and drops what is older than its watermark: after a broker's clock was set
back, readings that are new. Here a board's state is bounded by counts, so nothing is dropped
because of a time.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from motemq_pipeline.decoding_arrow import MESSAGE_COLUMNS, SILVER_SCHEMA, silver_rows
from motemq_pipeline.parquet_files import Target
from motemq_pipeline.rules import Registry
from motemq_pipeline.schemas import shaped
from pyspark_motemq.workers import settle

# What ``decoded`` has rows of.
TARGETS = (
    Target("silver_telemetry", lacks="reason"),
    Target("silver_quarantine", has="reason"),
)
_STREAM = ["board", "connection"]


def decoded(bronze: DataFrame, registry: Registry) -> DataFrame:
    """Return what the telemetry messages of ``bronze`` say (``decoding_arrow.SILVER_SCHEMA``).

    A good message has a row for each of its readings, a bad one a row with the ``reason``, one
    sentence. So ``TARGETS`` tells them, and both tables are written while messages are looked at
    once. ``event_time`` is the board's clock where the payload has it and it is likely: at most
    the rule's ``max_late_s`` behind the broker's and ``CLOCK_AHEAD_S`` ahead. Else it is the
    arrival. ``clock`` says which. ``last`` says whether it ends its stream, null where streams end
    without a message. Order is that of ``partition`` and ``message_seq``, never that of a clock.
    """
    return bronze.select(*MESSAGE_COLUMNS).mapInArrow(silver_rows(registry.rules), SILVER_SCHEMA)


def telemetry(rows: DataFrame) -> DataFrame:
    """Return ``silver_telemetry`` from what ``decoded`` returned, duplicates included."""
    return shaped(rows.where(F.col("reason").isNull()), "silver_telemetry")


def distinct(readings: DataFrame) -> DataFrame:
    """Return each of ``silver_telemetry``'s readings once, by its first arrival.

    Copies are readings of one stream and sensor with the same ``seq``; without ``seq`` there are
    none. A streaming frame remembers what ``first_arrivals`` says, whatever clocks do: a copy of
    something older is a new reading, and no reading is dropped.
    """
    if readings.isStreaming:
        return first_arrivals(readings)
    alone = F.when(F.col("seq").isNull(), F.struct("partition", "message_seq"))
    key = [*_STREAM, "sensor", "seq", "alone"]
    arrival = Window.partitionBy(*key).orderBy("partition", "message_seq")
    return (
        readings.withColumn("alone", alone)
        .withColumn("arrival", F.row_number().over(arrival))
        .where(F.col("arrival") == 1)
        .drop("alone", "arrival")
    )


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
        state = [
            [connection, [[sensor, n.highest, f"{n.bits:x}"] for sensor, n in sensors.items()]]
            for connection, sensors in self.connections.items()
        ]
        return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), 1)

    @classmethod
    def from_bytes(cls, state: bytes) -> "Arrivals":
        """Return what ``to_bytes`` was called of."""
        return cls(
            {
                connection: {sensor: _Numbers(at, int(bits, 16)) for sensor, at, bits in sensors}
                for connection, sensors in json.loads(zlib.decompress(state))
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
    settle()
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
