"""Whether topics fit patterns that are not subscriptions."""

from collections.abc import Iterable


class TopicFilter:
    """Says of topics whether they are equivalent to one of some others (FMQP R10)."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._topics = [_levels(topic) for topic in topics]

    def matches(self, topic: str) -> bool:
        """Equal number of levels, and each is the same or one of the two is ``*``."""
        levels = _levels(topic)
        return any(
            len(levels) == len(others)
            and all(
                level == other or "*" in (level, other)
                for level, other in zip(levels, others, strict=True)
            )
            for others in self._topics
        )


def _levels(topic: str) -> list[str]:
    return topic.strip("/").split("/")
