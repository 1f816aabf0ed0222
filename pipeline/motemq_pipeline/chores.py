"""What a run does beside its streams, in a thread: tables made of tables, compaction."""

import threading
import time

from pyspark.sql import SparkSession

from motemq_pipeline import compaction
from motemq_pipeline.config import RunConfig
from motemq_pipeline.refresh import Refresh

_LOOK_S = 0.5
_END_S = 60.0


class Chores:
    """Starts with the block and ends with it, in the middle of its work if need be."""

    def __init__(self, spark: SparkSession, config: RunConfig) -> None:
        self._spark = spark
        self._config = config
        self._derived = Refresh(spark, config)
        self._ended = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="chores", daemon=True)

    def __enter__(self) -> "Chores":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        deadline = time.monotonic() + _END_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            # Again and again: it may just be about to begin one.
            self._spark.sparkContext.cancelAllJobs()
            self._thread.join(0.2)

    def check(self) -> None:
        """Raise what went wrong."""
        if self._failure is not None:
            raise self._failure

    def finish(self) -> None:
        """Make everything that is out of date, now; raises what went wrong."""
        self._ended.set()
        self._thread.join()
        self.check()
        self._derived.follow(at_once=True)

    def _work(self) -> None:
        compact_at = time.monotonic() + self._config.compact_every_s
        while not self._ended.wait(_LOOK_S):
            try:
                self._derived.follow()
                if time.monotonic() >= compact_at:
                    compaction.compact_small(self._config.tables)
                    compact_at = time.monotonic() + self._config.compact_every_s
            except Exception as error:  # the main thread tells of it
                if not self._ended.is_set():  # at the end jobs are cancelled
                    self._failure = error
                return
