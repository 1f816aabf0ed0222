"""What became of the messages of a read, for whoever has published them."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from host_broker.bus.delivery import SubscriptionId


@dataclass(slots=True)
class Outcome:
    """What became of messages: how often one was given to a receiver, how often one was not since
    a queue was full, and how many have no receiver at all."""

    routed: int = 0
    dropped: int = 0
    unrouted: int = 0


class Outcomes:
    """The outcome of each group of messages of one ``PublishMany``.

    ``groups`` is the group of each message, or one for all of them. ``unfiltered``: queues that
    wanted messages by subscriptions without a filter: which these are, and how many messages.
    Whoever has a filter is asked, and can count by itself.
    """

    __slots__ = ("_groups", "_only", "by_group", "unfiltered")

    def __init__(self, groups: Sequence[Hashable]) -> None:
        self.by_group = {group: Outcome() for group in groups}
        self.unfiltered: list[tuple[bytes, tuple[SubscriptionId, ...], int]] = []
        self._groups = groups
        self._only = self.by_group[groups[0]] if len(self.by_group) == 1 else None

    def routed(self, which: Sequence[int], times: int = 1) -> None:
        """These messages, by their places, were each given to so many receivers."""
        for group, count in self._count(which):
            self.by_group[group].routed += times * count

    def dropped(self, which: Sequence[int]) -> None:
        """These messages were dropped by a queue."""
        for group, count in self._count(which):
            self.by_group[group].dropped += count

    def unrouted(self, which: Sequence[int]) -> None:
        """These messages have no receiver."""
        for group, count in self._count(which):
            self.by_group[group].unrouted += count

    def _count(self, which: Sequence[int]) -> Iterable[tuple[Hashable, int]]:
        groups = self._groups
        if self._only is not None:
            return [(groups[0], len(which))]
        return Counter([groups[place] for place in which]).items()
