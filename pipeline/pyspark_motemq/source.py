"""What Spark calls: ``spark.read.format("motemq").option("path", JOURNAL).load()``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_motemq.columns import SPARK_SCHEMA, batches
from pyspark_motemq.records import JournalError, Stretch, take_records
from pyspark_motemq.snapshot import plan, read_stretch


@dataclass
class _StretchPartition(InputPartition):
    """One task's share of the journal."""

    stretch: Stretch


class DefaultSource(DataSource):
    """The data source ``motemq``: every message in a broker's journal, one row each.

    Options: ``path``, the journal folder (``DATA/journal`` of the broker); required.
    A read is a snapshot: what the files held when Spark planned it, also while the broker appends.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "motemq"

    def schema(self) -> str:
        """Return the columns, documented in docs/tables.md as ``bronze_messages``."""
        return SPARK_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; raises ``JournalError`` if no path was given."""
        path = self.options.get("path")
        if not path:
            raise JournalError(
                "the data source 'motemq' needs the journal folder: "
                'spark.read.format("motemq").option("path", "DATA/journal").load()'
            )
        return JournalReader(Path(path))


class JournalReader(DataSourceReader):
    """Reads the journal in ``journal``, one task per segment (large ones are cut)."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal

    def partitions(self) -> list[InputPartition]:
        """Return the shares of the tasks; raises ``JournalError``."""
        return [_StretchPartition(stretch) for stretch in plan(self._journal)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one share; raises ``JournalError`` for corruption."""
        # Spark reads an empty journal as one partition without a value.
        if isinstance(partition, _StretchPartition):
            data = read_stretch(partition.stretch)
            yield from batches(data, take_records(data, partition.stretch), partition.stretch)
