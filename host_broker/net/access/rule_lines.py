"""In which line of an ACL a rule stands."""

import tomllib
from typing import Any

from host_broker.access.rules import Rule


def line_of(text: str, rule: Rule) -> int:
    """Return the number of the line, from 1, with the pattern of a rule of this TOML document.

    Any spelling of TOML will do: it is looked for in beginnings of the document that are whole.
    """
    lines = text.splitlines()
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
    wanted = f'"{rule.pattern}"', f"'{rule.pattern}'"
    for number in range(low, high):
        if any(each in lines[number] for each in wanted):
            return number + 1
    return high


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
