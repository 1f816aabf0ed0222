"""The Spark data source ``motemq``: reads the broker's journal as RecordBatches.

``spark.read.format("motemq").option("path", JOURNAL).load()`` finds it by itself: Spark imports
every top-level module called ``pyspark_*`` and takes its ``DefaultSource``.

- ``blocks``    bytes of a segment -> blocks (docs/journal.md)
- ``columns``   blocks -> RecordBatches; ``topics`` which rows of them
- ``journal``   what a journal offers: ``folder`` (``index``) on this disk, ``remote`` one of the
  ``brokers``
- ``options``   what was asked for: ``offsets`` where to begin, ``limits`` of a micro-batch
- ``tasks``     which messages each task reads, and what of them
- ``position``  up to where a query has read, of which journal
- ``sink``      what Spark calls to publish rows
- ``stream``    what Spark calls for a stream, ``source`` for everything else
"""

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.source import DefaultSource

__all__ = ["DefaultSource", "JournalError"]
