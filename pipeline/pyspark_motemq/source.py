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

from pyspark_motemq.columns import SPARK_SCHEMA
from pyspark_motemq.folder import FolderShare
from pyspark_motemq.options import Options
from pyspark_motemq.records import JournalError
from pyspark_motemq.sink import SinkOptions, StreamWriter, Writer
from pyspark_motemq.snapshot import plan
from pyspark_motemq.stream import SharePartition, StreamReader, read_share


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
        """Return the columns, documented in docs/tables.md as ``bronze_messages``."""
        return SPARK_SCHEMA

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
        """Return the shares of the tasks; raises ``JournalError``."""
        options = self._options
        if options.everything():
            # To the last byte, so that whatever is wrong with them is found.
            stretches = plan(Path(options.path))
            return [SharePartition(FolderShare(each), options.topics) for each in stretches]
        feed = options.feed()
        shelves = feed.shelves()
        now_ns = time.time_ns()
        starting = options.starting("earliest").resolve(feed, shelves, now_ns)
        ending = options.ending().resolve(feed, shelves, now_ns)
        found: list[InputPartition] = []
        for number, shelf in shelves.items():
            start, end = starting[number], ending[number]
            if start < min(shelf.first, end) and options.fail_on_data_loss:
                raise JournalError(
                    f"messages {start} to {min(shelf.first, end) - 1} of partition {number} are no "
                    "longer in the journal; read on without them by option failOnDataLoss=false"
                )
            start, end = max(start, shelf.first), min(end, shelf.next)
            if start < end:
                shares = feed.shares(number, start, end)
                found += [SharePartition(share, options.topics) for share in shares]
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one share; raises ``JournalError`` for corruption."""
        return read_share(partition)
