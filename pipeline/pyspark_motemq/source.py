"""What Spark calls: ``spark.read.format("motemq")`` and ``readStream``."""

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.columns import spark_schema
from pyspark_motemq.folder import Folder, FolderPart
from pyspark_motemq.options import Options, columns_of
from pyspark_motemq.sink import SinkOptions, StreamWriter, Writer
from pyspark_motemq.stream import StreamReader
from pyspark_motemq.tasks import Range, read_task, task_of, tasks_of
from pyspark_motemq.workers import settle


class DefaultSource(DataSource):
    """The data source ``motemq``: the messages in a broker's journal, one row each.

    Options (docs/source.md): ``path``, the journal folder, or ``brokers``, where it is read by
    HTTP; ``topics``, offsets, limits, ``failOnDataLoss``, ``group``. A batch read is a snapshot:
    what was there when Spark planned it, also while the broker appends. Written to, it publishes.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(...)``."""
        return "motemq"

    def schema(self) -> str:
        """Return the columns (docs/source.md): of ``bronze_messages``, or what is asked for."""
        settle()
        return spark_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader; raises ``JournalError`` for an option that is wrong."""
        return JournalReader(Options.read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the streaming reader; raises ``JournalError`` for an option that is wrong."""
        return StreamReader(Options.read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what publishes a batch; raises ``JournalError`` for an option that is wrong."""
        return Writer(SinkOptions.read(self.options, schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return what publishes a stream; raises ``JournalError`` for an option that is wrong."""
        return StreamWriter(SinkOptions.read(self.options, schema))


class JournalReader(DataSourceReader):
    """Reads a journal, or a part of it, in tasks of about 16 MiB."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Return the parts of the tasks; raises ``JournalError``."""
        settle()
        options = self._options
        if options.everything():
            slices = Folder(Path(options.path)).everything()
            return [task_of(FolderPart(each), options) for each in slices]
        journal = options.journal()
        partitions = journal.partitions()
        now_ns = time.time_ns()
        starting = options.starting("earliest").resolve(journal, partitions, now_ns)
        ending = options.ending().resolve(journal, partitions, now_ns)
        found: list[Range] = []
        for number, state in partitions.items():
            start, end = starting[number], ending[number]
            if start < min(state.first, end) and options.fail_on_data_loss:
                last = min(state.first, end) - 1
                raise JournalError(
                    f"messages {start} to {last} of {options.name(number)} are no longer in the "
                    "journal; read on without them by option failOnDataLoss=false"
                )
            if start > state.next and options.fail_on_data_loss:
                raise JournalError(options.beyond(number, start, state.next))
            start, end = max(start, state.first), min(end, state.next)
            if start < end:
                found.append((number, start, end))
        return tasks_of(journal, found, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one part; raises ``JournalError`` for corruption."""
        return read_task(partition)
