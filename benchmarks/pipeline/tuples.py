"""The same rows from a source that yields tuples, as most Python sources do."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_motemq.columns import spark_schema
from pyspark_motemq.options import Options
from pyspark_motemq.source import JournalReader


class TupleSource(DataSource):
    """``motemq``, row by row."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "motemq_tuples"

    def schema(self) -> str:
        """Return the columns of ``motemq``."""
        return spark_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _Reader(JournalReader(Options.read(self.options)))


class _Reader(DataSourceReader):
    def __init__(self, columns: JournalReader) -> None:
        self._columns = columns

    def partitions(self) -> "list[InputPartition]":
        return self._columns.partitions()

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._columns.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
