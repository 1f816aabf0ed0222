"""What a run does beside its streams, in a thread: tables made of tables, compaction."""

import threading
import time

from pyspark.sql import SparkSession

from motemq_pipeline import compaction
from motemq_pipeline.config import RunConfig
from motemq_pipeline.refresh import Refresh
from motemq_pipeline.restarts import Restarts

_LOOK_S = 0.5
_WAIT_S = 0.1
_END_S = 60.0


class Chores:
    """Starts with the block and ends with it, in the middle of its work if need be."""

    def __init__(self, spark: SparkSession, config: RunConfig) -> None:
        self._spark = spark
        self._config = config
        self._derived = Refresh(spark, config)
        self._restarts = Restarts()
        self._rounds = 0
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
        while True:
            try:
                self._derived.follow(at_once=True)
                return
            except Exception as error:
                if not self._may_pass(error):
                    raise
                while not self._restarts.due(time.monotonic()):
                    time.sleep(_WAIT_S)

    def _work(self) -> None:
        compact_at = time.monotonic() + self._config.compact_every_s
        waiting = False
        while not self._ended.wait(_LOOK_S):
            if waiting and not self._restarts.due(time.monotonic()):
                continue
            waiting = False
            try:
                self._derived.follow()
                if time.monotonic() >= compact_at:
                    compaction.compact_small(self._config.tables)
                    compact_at = time.monotonic() + self._config.compact_every_s
                self._rounds += 1
            except Exception as error:  # the main thread tells of it
                if self._ended.is_set():  # at the end jobs are cancelled
                    return
                if not self._may_pass(error):
                    self._failure = error
                    return
                waiting = True

    def _may_pass(self, error: Exception) -> bool:
        return self._restarts.failed(str(error), self._rounds, time.monotonic())
