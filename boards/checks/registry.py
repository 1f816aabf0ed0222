"""All checks by name, in the order in which a run does them, and how a person chooses."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path

from boards.checks import (
    baseline,
    confirmed,
    heap,
    last_will,
    noise,
    ping,
    pubsub,
    reconnect,
    requests,
    slow_line,
    streams,
    together,
    topics,
)
from boards.checks.declared import Check
from boards.checks.own_file import OwnChecksError, load_checks

# Boards that wait for each other do so while they are about equally far. Heap last: what the others
# left in use is what it measures.
_FAMILIES = (
    *(pubsub, together, topics, streams, requests, noise),
    *(baseline, ping, slow_line, reconnect, confirmed, last_will, heap),
)

CHECKS: Mapping[str, Check] = {
    check.name: check for check in chain.from_iterable(family.CHECKS for family in _FAMILIES)
}


class NoSuchCheck(Exception):
    """A pattern chooses nothing, or a file of checks is wrong; the text says what there is."""


def known_checks(files: Sequence[str | Path]) -> dict[str, Check]:
    """Return all checks by name: ours, then those of ``files``. Raises ``NoSuchCheck``."""
    known = dict(CHECKS)
    for file in files:
        try:
            found = load_checks(Path(file))
        except OwnChecksError as error:
            raise NoSuchCheck(str(error)) from None
        for check in found:
            if check.name in known:
                raise NoSuchCheck(f"{file}: there is a check {check.name!r} already; rename it")
            known[check.name] = check
    return known


def choose(patterns: Sequence[str]) -> tuple[list[Check], list[Path]]:
    """Return the checks that fit any of the shell-like ``patterns``, all of ours for none; and the
    files that they come from besides.

    A pattern may be several, with commas between. One that ends in ``.py`` is a file of checks, of
    which all are taken. Raises ``NoSuchCheck``.
    """
    wanted = [part.strip() for pattern in patterns for part in pattern.split(",")]
    files = [Path(part).absolute() for part in wanted if part.endswith(".py")]
    names = [part for part in wanted if not part.endswith(".py")]
    for pattern in names:
        if not any(fnmatchcase(name, pattern) for name in CHECKS):
            raise NoSuchCheck(f"no check fits {pattern!r}; there are {', '.join(CHECKS)}")
    chosen = [
        check
        for name, check in known_checks(files).items()
        if not wanted or name not in CHECKS or any(fnmatchcase(name, each) for each in names)
    ]
    return chosen, files
