"""Whether topics fit patterns that are not subscriptions."""

from collections.abc import Iterable


class TopicFilter:
    """Says of topics whether they are equivalent to one of some others (FMQP R10).

    ``beneath``: or to the beginning of one, "" is that of all.
    """

    def __init__(self, topics: Iterable[str], *, beneath: bool = False) -> None:
        self._topics = [_levels(topic) if topic or not beneath else [] for topic in topics]
        self._beneath = beneath

    def matches(self, topic: str) -> bool:
        """Equal number of levels, and each is the same or one of the two is ``*``."""
        levels = _levels(topic)
        return any(
            (len(levels) == len(others) or (self._beneath and len(levels) > len(others)))
            and all(
                level == other or "*" in (level, other)
                for level, other in zip(levels, others, strict=False)
            )
            for others in self._topics
        )


def _levels(topic: str) -> list[str]:
    return topic.strip("/").split("/")
