"""The Python processes that Spark keeps for the tasks that follow."""

import gc
import os
import sys

_REUSED = "SPARK_REUSE_WORKER"  # what Spark sets for them
_settled = 0  # modules that there were the last time


def settle() -> None:
    """Leave what this process has imported out of Python's collections of garbage.

    A worker that is kept for the next task collects after each one (``pyspark.daemon``): 25 ms of a
    processor for the objects of pandas, pyarrow and PySpark, more than it takes to read megabytes.
    What tasks make is collected as before. Called first by what runs in tasks; in a process that
    Spark does not keep, a driver for one, it does nothing.
    """
    global _settled
    if os.environ.get(_REUSED) and len(sys.modules) > _settled:
        _settled = len(sys.modules)
        gc.collect()
        gc.freeze()
