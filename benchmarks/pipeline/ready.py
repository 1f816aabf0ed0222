"""The same rows as Arrow's batches that are there already: as fast as a source in Python can be."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_motemq.columns import arrow_schema, spark_schema
from pyspark_motemq.options import Options, columns_of
from pyspark_motemq.source import JournalReader
from pyspark_motemq.workers import settle


def write(folder: Path, options: dict[str, str]) -> None:
    """Write what ``motemq`` with these options yields into ``folder``, a file for each task."""
    folder.mkdir(parents=True)
    reader = JournalReader(Options.read(options))
    for number, task in enumerate(reader.partitions()):
        schema = arrow_schema(columns_of(options))
        with pa.ipc.new_file(folder / f"{number:04}.arrow", schema) as file:
            for batch in reader.read(task):
                file.write_batch(batch)


class ReadySource(DataSource):
    """What ``motemq`` would yield, with nothing left to do; ``path`` is what ``write`` wrote."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "motemq_ready"

    def schema(self) -> str:
        """Return the columns of ``motemq``."""
        settle()
        return spark_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return _Reader(self.options["path"])


@dataclass
class _File(InputPartition):
    path: str


class _Reader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> "list[InputPartition]":
        return [_File(str(file)) for file in sorted(Path(self._folder).iterdir())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle()
        if not isinstance(partition, _File):
            raise TypeError(f"{partition!r} is of another source")
        with pa.memory_map(partition.path) as mapped, pa.ipc.open_file(mapped) as file:
            for number in range(file.num_record_batches):
                yield file.get_batch(number)
