"""What all UMQ connections of a broker share."""

from host_broker.broker_view import BrokerView, CallTopics
from host_broker.bus.subscriptions import Interest
from host_broker.protocol import BrokerContext
from host_broker.protocols.umq.settings import UmqSettings
from host_broker.stats import Dropped

NAME = "umq"


class UmqShared:
    """``view``: the broker, to look at. ``dropped``: what slow clients were not told. ``version``:
    what the broker calls itself."""

    def __init__(self, settings: UmqSettings, context: BrokerContext, version: str) -> None:
        assert context.view is not None  # noqa: S101 - every broker has one
        self.settings = settings
        self.bus = context.bus
        self.held = context.held
        self.view: BrokerView = context.view
        self.dropped: Dropped = context.stats.dropped_of(NAME)
        self.version = version
        self.max_attachment = min(settings.max_attachment, context.bus.max_body)
        self._wall_ns = context.wall_ns
        self._call_topics = list(context.view.call_topics)
        self._callable: set[bytes] = set()  # who takes calls is interested in these

    def wall_ms(self) -> int:
        """Return the time of day in ms since 1970."""
        return self._wall_ns() // 1_000_000

    def interested(self, interest: Interest) -> None:
        """Note whether somebody takes calls."""
        for topics in self._call_topics:
            before, _, behind = topics.interest.encode().partition(b"%c")
            if interest.topic.startswith(before) and interest.topic.endswith(behind):
                if interest.count:
                    self._callable.add(interest.topic)
                else:
                    self._callable.discard(interest.topic)

    def callable(self, level: bytes) -> CallTopics | None:
        """Return how the client of this level is called; None: it takes no calls."""
        for topics in self._call_topics:
            if topics.interest.encode().replace(b"%c", level) in self._callable:
                return topics
        return None
