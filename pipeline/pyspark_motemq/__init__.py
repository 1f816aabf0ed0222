"""The Spark data source ``motemq``: reads the broker's journal as RecordBatches.

``spark.read.format("motemq").option("path", JOURNAL).load()`` finds it by itself: Spark imports
every top-level module called ``pyspark_*`` and takes its ``DefaultSource``.

- ``records``   bytes of a segment -> records (docs/journal.md); ``packets`` of their bodies
- ``columns``   records -> RecordBatches; ``topics`` which rows of them
- ``shelf``     what a journal offers: ``folder`` on this disk, ``remote`` one of the ``brokers``
- ``snapshot``  a whole journal folder -> the ranges that one read covers
- ``options``   what was asked for: ``offsets`` where to begin, ``limits`` of a micro-batch
- ``sink``      what Spark calls to publish rows
- ``stream``    what Spark calls for a stream, ``source`` for everything else
"""

from pyspark_motemq.records import JournalError
from pyspark_motemq.source import DefaultSource

__all__ = ["DefaultSource", "JournalError"]
