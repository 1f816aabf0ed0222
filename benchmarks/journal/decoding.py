"""How fast blocks become RecordBatches, by how many messages a read and a write had."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.journal import journals
from pyspark_motemq.columns import batches
from pyspark_motemq.folder import Folder

_BYTES = 32_000_000
_TRIES = 5
# Messages of a read, and reads of a write to the journal.
SHAPES = {"2,800": (2800, 1), "1, 2,800 at once": (1, 2800), "1, 50 at once": (1, 50), "1": (1, 1)}


@dataclass(frozen=True, slots=True)
class Decoded:
    """Rows a second of the best of some tries, and bytes of a message on disk."""

    shape: str
    rows_per_s: float
    message_bytes: float


def measure(folder: Path) -> Iterator[Decoded]:
    """Decode journals of every shape, and read the rows of the first from Parquet."""
    parquet = folder / "rows.parquet"
    for number, (shape, (messages, flush)) in enumerate(SHAPES.items()):
        journal = folder / f"journal-{number}"
        records = journals.reads(max(1, 8400 // messages), messages)
        total = journals.write(journal, records, flush, _BYTES if flush > 1 else _BYTES // 4)
        client = Folder(journal)
        state = client.partitions()[0]
        pieces = [piece for part in client.split(0, 0, total) for piece in part.slices()]
        seconds = []
        for _ in range(_TRIES):
            began = time.perf_counter()
            rows = sum(batch.num_rows for data, slice in pieces for batch in batches(data, slice))
            seconds.append(time.perf_counter() - began)
            if rows != total:
                raise AssertionError(f"{rows} rows of {total} messages")
        if number == 0:
            every = [batch for data, slice in pieces for batch in batches(data, slice)]
            pq.write_table(pa.Table.from_batches(every), parquet)
        yield Decoded(shape, total / min(seconds), state.size / total)
    seconds = []
    for _ in range(_TRIES):
        began = time.perf_counter()
        rows = pq.read_table(parquet, use_threads=False).num_rows
        seconds.append(time.perf_counter() - began)
    yield Decoded(
        "Parquet, the rows of the first", rows / min(seconds), parquet.stat().st_size / rows
    )
