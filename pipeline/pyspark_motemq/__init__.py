"""The Spark data source ``motemq``: reads the broker's journal as RecordBatches.

``spark.read.format("motemq").option("path", JOURNAL).load()`` finds it by itself: Spark imports
every top-level module called ``pyspark_*`` and takes its ``DefaultSource``.

- ``blocks``    bytes of a segment -> blocks (docs/journal.md)
- ``columns``   blocks -> RecordBatches; ``topics`` which rows of them
- ``journal``   what a journal offers: ``folder`` on this disk, ``remote`` those of brokers
- ``options``   what was asked for
- ``offsets``   where a read begins and ends, how far a micro-batch goes, what a query has read
- ``tasks``     which messages each task reads, and what of them
- ``sink``      what Spark calls to publish rows
- ``stream``    what Spark calls for a stream, ``source`` for everything else
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_motemq.blocks import JournalError
    from pyspark_motemq.source import DefaultSource

__all__ = ["DefaultSource", "JournalError"]


def __getattr__(name: str) -> object:
    """Import what is exported when it is asked for.

    Commands that need no Spark take parts of this package; PySpark and pandas cost them a second.
    """
    if name == "DefaultSource":
        from pyspark_motemq.source import DefaultSource

        return DefaultSource
    if name == "JournalError":
        from pyspark_motemq.blocks import JournalError

        return JournalError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
