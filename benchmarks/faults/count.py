"""Whether the tables have what the journal has: every message once, and nothing else."""

import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from benchmarks.faults.processes import Failed
from motemq_pipeline.delta import Table
from motemq_pipeline.storage import Storage
from pyspark_motemq.columns import batches
from pyspark_motemq.folder import Folder

Message = tuple[str, bytes]  # path and payload
_Key = tuple[int, int]
_WRITTEN_S = 10.0
_TELEMETRY = "telemetry/"


@dataclass(frozen=True, slots=True)
class Count:
    """Messages of the journal that are no client's echo; rows of a table, how many of them more
    than once, and missing."""

    journal: int
    rows: int
    twice: int
    missing: int
    others: int

    @property
    def exact(self) -> bool:
        """Whether every message is there once, as it was, and nothing else."""
        return self.journal == self.rows and not (self.twice or self.missing or self.others)


def journalled(journal: Path) -> dict[_Key, Message]:
    """Return path and payload of the messages of a journal folder, by partition and number.

    Without clients' echoes, which are no rows of tables.
    """
    folder = Folder(journal)
    found: dict[_Key, Message] = {}
    for partition, state in folder.partitions().items():
        for part in folder.split(partition, state.first, state.next):
            for data, slice in part.slices():
                for batch in batches(data, slice):
                    found.update(_rows(pa.Table.from_batches([batch]), "seq"))
    return {key: row for key, row in found.items() if not row[0].startswith("motemq/echo/")}


def complete(journal: Path, newest: Message | None) -> dict[_Key, Message]:
    """Return ``journalled`` as soon as it has the newest message that was acknowledged.

    Raises ``Failed``: what was acknowledged is in a segment within ``journal.flush_s``.
    """
    deadline = time.monotonic() + _WRITTEN_S
    while True:
        found = journalled(journal)
        if newest is None or newest in found.values():
            return found
        if time.monotonic() > deadline:
            raise Failed(f"the journal lacks an acknowledged message: {newest}")
        time.sleep(0.1)


def bronze(messages: dict[_Key, Message], tables: Path) -> Count:
    """Compare ``bronze_messages`` with the journal, payloads included."""
    table = _read(tables / "bronze_messages", ["partition", "seq", "path", "payload"])
    rows = _rows(table, "seq")
    wrong = sum(messages.get(key) != row for key, row in rows.items())
    missing = len(messages.keys() - rows.keys())
    return Count(len(messages), table.num_rows, table.num_rows - len(rows), missing, wrong)


def silver(messages: dict[_Key, Message], tables: Path) -> Count:
    """Compare ``silver_telemetry`` with the telemetry of the journal, by number."""
    wanted = {key for key, (path, _) in messages.items() if path.startswith(_TELEMETRY)}
    table = _read(tables / "silver_telemetry", ["partition", "message_seq"])
    columns = table.to_pydict()
    rows = set(zip(columns["partition"], columns["message_seq"], strict=True))
    twice = table.num_rows - len(rows)
    return Count(len(wanted), table.num_rows, twice, len(wanted - rows), len(rows - wanted))


def up_to_date(messages: dict[_Key, Message], tables: Path) -> bool:
    """Whether both tables have as many rows as they must have in the end."""
    readings = sum(path.startswith(_TELEMETRY) for path, _ in messages.values())
    wanted = {"bronze_messages": len(messages), "silver_telemetry": readings}
    place = Storage.at(tables)
    return all(Table(place, name).count() >= rows for name, rows in wanted.items())


def _rows(table: pa.Table, number: str) -> dict[_Key, Message]:
    columns = table.to_pydict()
    keys = zip(columns["partition"], columns[number], strict=True)
    said = zip(columns["path"], columns["payload"], strict=True)
    return dict(zip(keys, said, strict=True))


def _read(folder: Path, columns: list[str]) -> pa.Table:
    return DeltaTable(folder).to_pyarrow_table(columns=columns)
