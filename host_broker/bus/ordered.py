"""Keys in order, however many there are: one more, one less, and a page of them cost little."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Any)  # has an order

_PART = 512  # keys; a part with twice as many becomes two


class OrderedKeys(Generic[K]):
    """Distinct keys. They are in parts, each a list, so that none that comes or goes moves more
    than a part, nor the list of parts more than it is long."""

    __slots__ = ("_firsts", "_parts")

    def __init__(self) -> None:
        self._parts: list[list[K]] = []  # none is empty
        self._firsts: list[K] = []  # of each part

    def add(self, key: K) -> None:
        """Add a key that is not there."""
        parts, firsts = self._parts, self._firsts
        if not parts:
            parts.append([key])
            firsts.append(key)
            return
        at = max(0, bisect_right(firsts, key) - 1)
        part = parts[at]
        if key > part[-1]:
            part.append(key)
        else:
            insort(part, key)
            firsts[at] = part[0]
        if len(part) > 2 * _PART:
            parts.insert(at + 1, part[_PART:])
            firsts.insert(at + 1, part[_PART])
            del part[_PART:]

    def discard(self, key: K) -> None:
        """Remove a key, if it is there."""
        parts, firsts = self._parts, self._firsts
        at = bisect_right(firsts, key) - 1
        if at < 0:
            return
        part = parts[at]
        place = bisect_left(part, key)
        if place == len(part) or part[place] != key:
            return
        del part[place]
        if not part:
            del parts[at], firsts[at]
        elif not place:
            firsts[at] = part[0]

    def behind(self, key: K, *, itself: bool = False) -> Iterator[K]:
        """Give the keys behind this one, which need not be there; ``itself``: and first itself, if
        it is. Nothing is to change meanwhile."""
        at = max(0, bisect_right(self._firsts, key) - 1)
        find = bisect_left if itself else bisect_right
        for number in range(at, len(self._parts)):
            part = self._parts[number]
            for place in range(find(part, key) if number == at else 0, len(part)):
                yield part[place]

    def before(self, key: K | None = None) -> Iterator[K]:
        """Give the keys before this one (None: all), the last one first. Nothing is to change
        meanwhile."""
        at = len(self._parts) - 1
        if key is not None:
            at = bisect_left(self._firsts, key) - 1
        for number in range(at, -1, -1):
            part = self._parts[number]
            end = len(part) if key is None or number < at else bisect_left(part, key)
            for place in range(end - 1, -1, -1):
                yield part[place]
