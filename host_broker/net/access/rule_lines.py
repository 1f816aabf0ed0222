"""In which line of an ACL a rule stands."""

import re
import tomllib
from typing import Any

from host_broker.access.rules import Rule

_TEXTS = re.compile(r""" "(?:\\.|[^"\\])*" | '[^']*' | \#.* """, re.VERBOSE)  # and comments


def line_of(text: str, rule: Rule) -> int:
    """Return the number of the line, from 1, with the pattern of a rule of this TOML document.

    Any spelling of TOML will do: it is looked for in beginnings of the document that are whole.
    """
    lines = text.split("\n")  # TOML knows no other ends of a line
    low, high = 0, len(lines)  # it is not in the first ``low`` lines, but in ``high``
    while high - low > 1:
        middle = (low + high) // 2
        at, document = _whole(lines, middle, high)
        if document is None:  # the statement goes on to the end of the range
            at, document = _whole_before(lines, middle, low)
            if at <= low:
                break
        if _has(document, rule):
            high = at
        else:
            low = at
    for number in range(low, high):
        if any(_is_spelled(each, rule.pattern) for each in _TEXTS.findall(lines[number])):
            return number + 1
    return high


def _is_spelled(text: str, pattern: str) -> bool:
    """Whether this spells the pattern, with or without escapes."""
    try:
        return not text.startswith("#") and tomllib.loads(f"text = {text}") == {"text": pattern}
    except tomllib.TOMLDecodeError:  # a part of a text of several lines
        return False


def _whole(lines: list[str], at: int, high: int) -> tuple[int, dict[str, Any] | None]:
    """Return the first place from ``at`` on, before ``high``, where a document could end."""
    while at < high:
        try:
            return at, tomllib.loads("\n".join(lines[:at]))
        except tomllib.TOMLDecodeError:
            at += 1
    return at, None


def _whole_before(lines: list[str], at: int, low: int) -> tuple[int, dict[str, Any]]:
    while at > low:
        try:
            return at, tomllib.loads("\n".join(lines[:at]))
        except tomllib.TOMLDecodeError:
            at -= 1
    return at, {}


def _has(document: dict[str, Any], rule: Rule) -> bool:
    kind, _, name = rule.subject.partition(".")
    table = document.get(kind, {}).get(name, {})
    if rule.denies:
        table = table.get("deny", {})
    return rule.pattern in table.get(rule.action, ())
