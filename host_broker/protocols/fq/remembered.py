"""What was worked out lately, for the hot path: it is asked for every message."""

from collections.abc import Callable, Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Remembered(dict[K, V]):
    """``remembered[key]`` is worked out when it is not there yet.

    With ``most`` of them all are forgotten, before one more is remembered.
    """

    __slots__ = ("_most", "_work_out")

    def __init__(self, work_out: Callable[[K], V], most: int) -> None:
        super().__init__()
        self._work_out = work_out
        self._most = most

    def __missing__(self, key: K) -> V:
        """Work it out."""
        value = self._work_out(key)
        self.put(key, value)
        return value

    def put(self, key: K, value: V) -> None:
        """Remember what is known already."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
