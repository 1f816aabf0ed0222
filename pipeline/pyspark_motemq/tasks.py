"""What the tasks of a read do: some messages of a partition, what columns and topics of them."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from pyspark_motemq.columns import batches
from pyspark_motemq.journal import JournalClient, Part
from pyspark_motemq.options import Options
from pyspark_motemq.topics import matching, without_echoes
from pyspark_motemq.workers import settle

Range = tuple[int, int, int]  # partition, first message, number after the last
_PATH = "path"


@dataclass
class Task(InputPartition):
    """One task's part of the journal, and what is wanted of it."""

    part: Part
    columns: tuple[str, ...]
    topics: str  # a regular expression; empty: all
    echoes: bool  # those, too, by which clients see that the broker is there


def tasks_of(
    journal: JournalClient, ranges: Sequence[Range], options: Options
) -> list[InputPartition]:
    """Return the tasks for some messages: about 16 MiB each, and at least ``minPartitions``."""
    total = sum(end - start for _, start, end in ranges)
    found: list[InputPartition] = []
    for partition, start, end in ranges:
        # Rounded up: then all of them together are no fewer than was asked for. A message is not
        # divided, whatever number was asked for.
        parts = max(1, -(-options.min_partitions * (end - start) // max(total, 1)))
        parts = min(parts, end - start)
        edges = [start + (end - start) * at // parts for at in range(parts + 1)]
        for low, high in itertools.pairwise(edges):
            if low < high:
                found += [task_of(part, options) for part in journal.split(partition, low, high)]
    return found


def task_of(part: Part, options: Options) -> Task:
    """Return the task that reads ``part``."""
    return Task(part, options.columns, options.topics, options.echoes)


def read_task(task: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task; raises ``JournalError``."""
    settle()
    if not isinstance(task, Task):
        return  # Spark reads an empty journal as one partition without a value
    chosen = bool(task.topics) or not task.echoes
    columns = task.columns if not chosen or _PATH in task.columns else (*task.columns, _PATH)
    for data, slice in task.part.slices():
        for batch in batches(data, slice, columns):
            if task.topics:
                batch = matching(batch, task.topics)
            if not task.echoes:
                batch = without_echoes(batch)
            yield batch.select(task.columns) if columns is not task.columns else batch
