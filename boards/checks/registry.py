"""All checks by name, in the order in which a run does them, and how a person chooses."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain

from boards.checks import (
    baseline,
    client_takeover,
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

# Boards that wait for each other do so while they are about equally far. Heap last: what the others
# left in use is what it measures.
_FAMILIES = (
    *(pubsub, together, topics, streams, requests, noise),
    *(baseline, ping, slow_line, reconnect, last_will, client_takeover, heap),
)

CHECKS: Mapping[str, Check] = {
    check.name: check for check in chain.from_iterable(family.CHECKS for family in _FAMILIES)
}


class NoSuchCheck(Exception):
    """A pattern chooses nothing; the text says what there is."""


def choose(patterns: Sequence[str]) -> list[Check]:
    """Return the checks that fit any of the shell-like ``patterns``; all for none.

    A pattern may be several, with commas between. Raises ``NoSuchCheck``.
    """
    wanted = [part.strip() for pattern in patterns for part in pattern.split(",")]
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in CHECKS):
            raise NoSuchCheck(f"no check fits {pattern!r}; there are {', '.join(CHECKS)}")
    return [
        check
        for check in CHECKS.values()
        if not wanted or any(fnmatchcase(check.name, pattern) for pattern in wanted)
    ]
