"""What went wrong, in one line for a person; the whole of it in a log."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from motemq_pipeline.errors import PipelineError

_OURS = re.compile(r"^(?:\S*\.)?(?:JournalError|PipelineError): (.+)$", re.MULTILINE)


@contextlib.contextmanager
def spark_log() -> Iterator[Path]:
    """Give a file for Spark's words; it stays only when an error sends a person there."""
    with tempfile.NamedTemporaryFile(prefix="motemq-spark-", suffix=".log", delete=False) as file:
        log = Path(file.name)
    try:
        yield log
    except PipelineError as error:
        if str(log) not in str(error):
            log.unlink(missing_ok=True)
        raise
    except BaseException:
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)


@contextlib.contextmanager
def in_words(log: Path) -> Iterator[None]:
    """Turn Spark's errors into ``PipelineError``, while its session lives: they ask Java."""
    from pyspark.errors import PySparkException  # costs a second

    try:
        yield
    except PySparkException as error:
        text = str(error)
        with log.open("a") as words:
            words.write(text)
        raise PipelineError(in_one_line(text, log)) from error


def is_ours(text: str) -> bool:
    """Return whether Spark's text has an error of ours, which says what a person must mend."""
    return _OURS.search(text) is not None


def in_one_line(text: str, log: Path) -> str:
    """Return our own error out of Spark's Java and Python traces, else their first line."""
    ours = _OURS.search(text)
    return ours[1] if ours else f"Spark failed: {text.splitlines()[0]}; its log is {log}"
