"""The release of Spark that this MoteMQ works with; another one is refused in words."""

import sys

from motemq_pipeline.errors import PipelineError

RELEASE = "4.3"  # of which the extra ``pipeline`` takes any version


def check_release() -> None:
    """Raise ``PipelineError`` if the PySpark that is imported here is of another release.

    It may be that of a Spark whose ``spark-submit`` started this program, not the installed one.
    """
    import pyspark  # costs a second

    found = pyspark.__version__
    if found.split(".")[:2] != RELEASE.split("."):
        raise PipelineError(
            f"this MoteMQ works with Spark {RELEASE}, and {sys.executable} imports PySpark {found} "
            f"from {pyspark.__path__[0]}; install that of 'motemq[pipeline]', or take Spark's "
            f"programs of {RELEASE}"
        )
