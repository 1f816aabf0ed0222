"""Under pytest-xdist all tests of a board go to one worker: it flashes that board once.

pytest-xdist 3.8 cannot do that itself with pytest 9.2: it writes the group into the private id of
a test, which pytest no longer reads. Here the board's name in the test's own parameters tells.
"""

import re
from collections.abc import Iterable
from typing import Any

# What xdist does with -n alone would put the tests of one board into several workers.
SCATTERING = ("load", "worksteal", "loadgroup")


def group_of(nodeid: str, ids: Iterable[str]) -> str:
    """Return the boards, joined by +, in the parameters of a test; the test itself if none is."""
    names = "|".join(re.escape(id) for id in sorted(ids, key=len, reverse=True))
    parameters = nodeid.partition("::")[2].partition("[")[2].removesuffix("]")
    found = re.search(rf"(?:^|-)((?:{names})(?:\+(?:{names}))*)(?=-|$)", parameters)
    return found[1] if names and found else nodeid


def scheduling(config: Any, log: Any, ids: Iterable[str]) -> Any:
    """Return xdist's scheduler that keeps each board's tests together."""
    from xdist.scheduler import LoadScopeScheduling

    known = tuple(ids)

    scheduler = LoadScopeScheduling(config, log)
    # Made to be overridden; not by a subclass, as the base has no types.
    scheduler._split_scope = lambda nodeid: group_of(nodeid, known)
    return scheduler
