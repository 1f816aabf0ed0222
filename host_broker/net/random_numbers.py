"""Random numbers that nobody can guess, many from one call of the system.

Ids of messages take one each, and keys of clients are made of them. To ask the system for two
bytes takes 1.5 µs, more than all else that such a message costs.
"""

import os
from array import array
from collections.abc import Callable, Iterator

DRAWN_AT_ONCE = 2048


def unguessable_u16() -> Callable[[], int]:
    """Return a source of numbers from 0 to 65535; for one thread."""

    def numbers() -> Iterator[int]:
        while True:
            yield from array("H", os.urandom(2 * DRAWN_AT_ONCE))

    return numbers().__next__
