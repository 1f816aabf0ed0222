"""What goes over a broker: counted per topic, in bounded memory. No clock, no sockets."""

import heapq
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from host_broker.cli.message_format import number
from host_broker.client import Message

PREVIEW_BYTES = 200
# Beside names and previews a topic costs some 400 bytes here: 10 MB at most.
_MOST_TOPICS = 10_000
_CLIENTS = "$/info/clients"
_MESSAGES_PER_SECOND = "$/info/messages/second"
# What the broker dropped since it began: $/info/dropped/PROTOCOL/REASON, a number each.
_DROPPED = "$/info/dropped/"
INFO = (_CLIENTS, _MESSAGES_PER_SECOND, f"{_DROPPED}*/*")


Order = Literal["rate", "bytes", "messages", "topic"]


@dataclass(slots=True)
class _Counted:
    messages: int = 0  # since the start
    new_messages: int = 0  # in the interval that is not over
    new_bytes: int = 0
    last_messages: int = 0  # in the one before
    last_bytes_sum: int = 0
    preview: bytes = b""
    last_bytes: int = 0


_Item = tuple[str, _Counted]
_KEYS: dict[Order, Callable[[_Item], tuple[object, ...]]] = {
    "rate": lambda item: (-item[1].last_messages, -item[1].messages, item[0]),
    "bytes": lambda item: (-item[1].last_bytes_sum, -item[1].messages, item[0]),
    "messages": lambda item: (-item[1].messages, item[0]),
    "topic": lambda item: (item[0],),
}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic: rates over the last interval, ``messages`` since the start.

    ``preview`` is the beginning of the last payload, ``last_bytes`` the length of all of it.
    """

    topic: str
    messages_per_second: float
    bytes_per_second: float
    messages: int
    preview: bytes
    last_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    """One interval. ``rows`` are the first topics in the order asked for, of ``topics`` known.

    ``forgotten``: topics dropped since the start, because there were too many to remember.
    ``clients`` and ``broker_messages_per_second`` are the broker's own words (R40, R42), None while
    it has not said them; ``dropped``, by protocol and reason, since the broker began, too. By UMQ
    it says the first one only.
    """

    interval_s: float
    messages_per_second: float
    bytes_per_second: float
    dropped: dict[str, dict[str, int]] | None
    clients: int | None
    broker_messages_per_second: int | None
    topics: int
    forgotten: int
    rows: list[TopicRow]


class Traffic:
    """Counts messages; bodies are payloads, without FMQP's headers."""

    def __init__(self, most_topics: int = _MOST_TOPICS) -> None:
        self._most_topics = most_topics
        self._topics: OrderedDict[str, _Counted] = OrderedDict()  # silent for longest first
        self._forgotten = 0
        self._messages = 0
        self._bytes = 0
        self._last = (1.0, 0, 0)  # the interval that is over: seconds, messages, bytes
        self._said: dict[str, int] = {}

    def heard(self, message: Message) -> None:
        """Count a message; what was only kept by the broker is shown, but is no traffic."""
        if message.topic in INFO or message.topic.startswith(_DROPPED):
            value = number(message)
            if value is not None:
                self._said[message.topic] = value
            return
        counted = self._topics.get(message.topic)
        if counted is None:
            counted = self._remember(message.topic)
        else:
            self._topics.move_to_end(message.topic)
        size = len(message.payload)
        counted.preview = message.payload[:PREVIEW_BYTES]
        counted.last_bytes = size
        if not message.kept:
            counted.messages += 1
            counted.new_messages += 1
            counted.new_bytes += size
            self._messages += 1
            self._bytes += size

    def next_interval(self, seconds: float) -> None:
        """End the interval that began ``seconds`` ago; ``report`` tells of it from now on."""
        self._last = (seconds, self._messages, self._bytes)
        self._messages = self._bytes = 0
        for counted in self._topics.values():
            counted.last_messages, counted.last_bytes_sum = counted.new_messages, counted.new_bytes
            counted.new_messages = counted.new_bytes = 0

    def broker_lost(self) -> None:
        """Forget what the broker said of itself."""
        self._said.clear()

    def report(self, rows: int, order: Order = "rate") -> Report:
        """Sum up the last whole interval: at most ``rows`` topics, the first in that order."""
        seconds, messages, size = self._last
        first = heapq.nsmallest(max(0, rows), self._topics.items(), key=_KEYS[order])
        return Report(
            seconds,
            messages / seconds,
            size / seconds,
            self._dropped(),
            self._said.get(_CLIENTS),
            self._said.get(_MESSAGES_PER_SECOND),
            len(self._topics),
            self._forgotten,
            [_row(topic, counted, seconds) for topic, counted in first],
        )

    def _dropped(self) -> dict[str, dict[str, int]] | None:
        if not self._said.keys() - {_CLIENTS}:
            return None  # where it tells of these, it does so every second
        dropped: dict[str, dict[str, int]] = {}
        for topic, count in self._said.items():
            if topic.startswith(_DROPPED) and count:
                protocol, _, reason = topic.removeprefix(_DROPPED).partition("/")
                dropped.setdefault(protocol, {})[reason] = count
        return dropped

    def _remember(self, topic: str) -> _Counted:
        if len(self._topics) >= self._most_topics:
            self._topics.popitem(last=False)
            self._forgotten += 1
        counted = self._topics[topic] = _Counted()
        return counted


def _row(topic: str, counted: _Counted, interval_s: float) -> TopicRow:
    return TopicRow(
        topic,
        counted.last_messages / interval_s,
        counted.last_bytes_sum / interval_s,
        counted.messages,
        counted.preview,
        counted.last_bytes,
    )
