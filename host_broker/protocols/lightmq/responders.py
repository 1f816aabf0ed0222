"""Who answers clients: those who subscribe to ``lightmq/ID/up/*``, or to that of every client."""

from host_broker.bus.subscriptions import Interest


class Responders:
    """Knows from interests, which the bus tells anyway, whether a client's SENDs are answered."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}  # by the level of the client, or "*"

    def changed(self, interest: Interest) -> None:
        """Take note of an interest in any topic."""
        topic = interest.topic
        if not (topic.startswith(b"lightmq/") and topic.endswith(b"/up/*")):
            return
        levels = topic.split(b"/")
        if len(levels) != 4:
            return
        if interest.count:
            self._counts[levels[1]] = interest.count
        else:
            self._counts.pop(levels[1], None)

    def wanted(self, level: bytes) -> bool:
        """Whether somebody says to answer the client of this level."""
        return level in self._counts or b"*" in self._counts
