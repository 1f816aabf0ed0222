"""The Spark data source ``motemq``: reads the broker's journal as RecordBatches.

``spark.read.format("motemq").option("path", JOURNAL).load()`` finds it by itself: Spark imports
every top-level module called ``pyspark_*`` and takes its ``DefaultSource``.

- ``records``   bytes of a segment -> records (docs/journal.md); no files
- ``columns``   records -> RecordBatches
- ``snapshot``  a journal folder -> the ranges that one read covers
- ``source``    what Spark calls
"""

from pyspark_motemq.records import JournalError
from pyspark_motemq.source import DefaultSource

__all__ = ["DefaultSource", "JournalError"]
