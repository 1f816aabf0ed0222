"""FMQP topic patterns as a filter of columns (FMQP R10 to R13)."""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

_ECHOES = "motemq/echo/"


def pattern(topics: str) -> str:
    """Return the regular expression of the topics equivalent to one of ``a/b, c/*``.

    Levels are equivalent if equal or if one of the two is ``*``; slashes at the ends do not count.
    """
    found = []
    for topic in topics.split(","):
        levels = topic.strip().strip("/").split("/")
        if levels == [""]:
            raise ValueError(f"'{topics}' has an empty topic; write it like home/*, lab/lamp")
        if refused := mqtt(levels):
            raise ValueError(refused)
        found.append("/".join("[^/]*" if level == "*" else _level(level) for level in levels))
    return f"(?s)^/*(?:{'|'.join(found)})/*$"


def mqtt(levels: Sequence[str]) -> str:
    """Return what is wrong with levels that are MQTT's wildcards, which are names here, or ""."""
    odd = next((level for level in levels if level in ("#", "+")), None)
    if odd is None:
        return ""
    stars = "/".join("*" if level in ("#", "+") else level for level in levels)
    text = f"'{odd}' is no wildcard here but a name; '*' stands for one level: '{stars}'"
    return text + (f", and below that '{stars}/*', …" if levels[-1] == "#" else "")


def anywhere(regex: str) -> str:
    """Return a regular expression for whole topics; raises ``ValueError`` if it is none."""
    whole = f"^(?:{regex})$"
    try:
        pc.match_substring_regex(pa.array([""]), whole)
    except pa.ArrowInvalid as error:
        raise ValueError(f"'{regex}' is no regular expression: {error}") from None
    return whole


def matching(batch: pa.RecordBatch, regex: str) -> pa.RecordBatch:
    """Return the rows whose ``path`` matches."""
    return batch.filter(pc.match_substring_regex(batch.column("path"), regex))


def without_echoes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that are no client's echo of itself (docs/journal.md)."""
    echoes = pc.starts_with(batch.column("path"), _ECHOES)
    return batch.filter(pc.invert(echoes)) if pc.any(echoes).as_py() else batch


def _level(level: str) -> str:
    return rf"(?:{re.escape(level)}|\*)"
