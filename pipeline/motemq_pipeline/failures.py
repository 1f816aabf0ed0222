"""What went wrong, in one line for a person; the whole of it in a log."""

import contextlib
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from motemq_pipeline.errors import PipelineError
from motemq_pipeline.spark_release import RELEASE
from motemq_pipeline.storage import is_no_answer

JSON_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")  # PySpark's, on stderr

_OURS = re.compile(
    r"^(?:\S*\.)?(JournalError|PipelineError|BrokerUnavailable|StoreUnavailable): (.+)$",
    re.MULTILINE,
)
_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^((?:\w+\.)*\w+(?:Error|Exception): .+)$", re.MULTILINE)  # of Python's
_LACKS = re.compile(r"^(?:ModuleNotFoundError|ImportError): .+$", re.MULTILINE)
_EXCEPTION = re.compile(r"^([a-z]\w*\.)+\w+(: |$)")  # its name
# What Java says when it ends before it has begun: of its options, of Spark's.
_JAVA_ENDED = re.compile(
    r'^(?:Exception in thread "main" (?:[\w.$]+: )?(.+)|(Invalid .+|Unrecognized .+|Error: .+))$',
    re.MULTILINE,
)
_NO_MASTER = re.compile(r"Application has been killed\. Reason: (All masters are unresponsive)")
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )?(.+)$", re.MULTILINE)
_UNAVAILABLE = ("BrokerUnavailable", "StoreUnavailable")


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
def without_json() -> Iterator[None]:
    """Keep PySpark from printing pages of JSON before an error's one sentence."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in JSON_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextlib.contextmanager
def in_words(log: Path) -> Iterator[None]:
    """Turn Spark's errors into ``PipelineError``, while its session lives: they ask Java."""
    from py4j.protocol import Py4JError  # what of Java's errors PySpark does not translate
    from pyspark.errors import PySparkException  # costs a second

    with without_json():
        try:
            yield
        except (PySparkException, Py4JError) as error:
            text = str(error)
            if isinstance(error, Py4JError):
                text = f"{of_java(error)}\n{text}"
            with log.open("a") as words:
                words.write(text)
            raise PipelineError(in_one_line(text, log)) from error


def of_java(error: BaseException) -> str:
    """Return what an error says in one line: of an exception of Java's, what that one says."""
    lines = str(error).splitlines() or [type(error).__name__]
    for line in lines:
        if line.startswith(": "):  # py4j's first line only says what it called
            return _EXCEPTION.sub("", line.removeprefix(": ")) or line.removeprefix(": ")
    return lines[0]


def why(error: BaseException) -> str:
    """Return what an error says in one line: our own words where Spark's have them."""
    text = str(error)
    if ours := _OURS.search(text):
        return ours[2]
    line = of_java(error)
    raised = _RAISED.search(text)
    return line.removesuffix(_TRACEBACK) + raised[1] if _is_cut(line) and raised else line


def _is_cut(line: str) -> bool:
    """Return whether a line of Spark's ends where Python's traceback, and its sentence, begin."""
    return line.endswith(_TRACEBACK)


def why_java_ended(log: Path) -> str:
    """Return why Java ended before it had begun, "" if its words do not say that."""
    words = _words_of(log)
    if silent := _NO_MASTER.search(words):  # that of another release does not understand us
        return f"{silent[1]}; a master must be of Spark {RELEASE}, as the driver is"
    found = _JAVA_ENDED.search(words)
    return (found[1] or found[2]) if found else ""


def is_ours(text: str) -> bool:
    """Return whether Spark's text has an error of ours, which says what a person must mend."""
    return any(found[1] not in _UNAVAILABLE for found in _OURS.finditer(text))


def is_unavailable(text: str) -> bool:
    """Return whether Spark's text says that a broker or the store does not answer: it passes."""
    return not is_ours(text) and (_OURS.search(text) is not None or is_no_answer(text))


def in_one_line(text: str, log: Path) -> str:
    """Return our own error out of Spark's Java and Python traces, else their first sentence."""
    ours = _OURS.search(text)
    if ours:
        return ours[2]
    reason = next((line for line in text.splitlines() if line.strip(" ;")), "no reason was given")
    raised = _RAISED.search(text)
    if raised and _is_cut(reason):  # the sentence of it is its last line
        reason = reason.removesuffix(_TRACEBACK) + raised[1]
    elif reason.endswith(":") and (causes := _CAUSE.findall(text)):
        reason = f"{reason} {causes[-1]}"  # the sentence of it is that of its cause
    elif lacks := _LACKS.search(text) or _LACKS.search(_words_of(log)):
        reason = f"{reason.strip(' ;')}: {lacks[0]}"  # of a worker that only "crashed"
    return f"Spark failed: {reason.strip(' ;')}; its log is {log}"


def _words_of(log: Path) -> str:
    """Return what Spark has said so far, of which an error may have only the last sentence."""
    try:
        return log.read_text(errors="replace")
    except OSError:
        return ""
