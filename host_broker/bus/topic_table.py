"""What is known of topics, and the hot path's three loops over runs of publications.

This is the Python twin of ``_topic_table``, which is compiled where that is possible; both have the
same signatures and give the same answers (tests/host_broker/bus/test_topic_table.py).
``MOTEMQ_PURE_PYTHON=1`` in the environment leaves the compiled one out.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from host_broker.bus.publication import HEADER

V = TypeVar("V")

_HEADER_LENGTH = HEADER.size


class PythonTopicTable(Generic[V]):
    """What is known of topics of at most 255 bytes: a value that is not None, a mark, or both.

    Values and marks come and go on their own. Length and ``in`` are about values. They are in one
    table because a publication's topic is looked up for its mark first (``scan``) and for its value
    soon after (``split``): the compiled table does that once.
    """

    __slots__ = ("_marks", "_values")

    def __init__(self) -> None:
        self._values: dict[bytes, V] = {}
        self._marks: set[bytes] = set()

    def __len__(self) -> int:
        """How many topics have a value."""
        return len(self._values)

    def __contains__(self, topic: bytes) -> bool:
        """Whether a topic has a value."""
        return topic in self._values

    def get(self, topic: bytes) -> V | None:
        """Return a topic's value, None if it has none."""
        return self._values.get(topic)

    def put(self, topic: bytes, value: V) -> None:
        """Set a topic's value."""
        self._values[topic] = value

    def discard(self, topic: bytes) -> None:
        """Forget a topic's value, if it has one."""
        self._values.pop(topic, None)

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    @property
    def marked(self) -> int:
        """How many topics are marked."""
        return len(self._marks)

    def is_marked(self, topic: bytes) -> bool:
        """Whether a topic is marked."""
        return topic in self._marks

    def mark(self, topic: bytes) -> None:
        """Mark a topic."""
        self._marks.add(topic)

    def topics(self) -> list[bytes]:
        """Return all that anything is known of, in no order."""
        return list(self._values.keys() | self._marks)

    def unmark_all(self) -> None:
        """Forget all marks."""
        self._marks.clear()

    def scan(self, data: bytes, position: int, max_body: int) -> tuple[int, int]:
        """Skip the plain publications (``Run``) that begin at ``position``.

        Those are whole, have flags 0, a body of 1 to ``max_body`` bytes and a topic that is marked.
        Returns the position of the first other byte, and how many were skipped.
        """
        marks = self._marks
        header = HEADER.unpack_from
        size = len(data)
        count = 0
        while size - position >= _HEADER_LENGTH:
            flags, topic_length, body_length = header(data, position)
            body = position + _HEADER_LENGTH + topic_length
            end = body + body_length
            if flags or not 0 < body_length <= max_body or end > size:
                break
            if data[body - topic_length : body] not in marks:
                break
            position = end
            count += 1
        return position, count

    def split(self, data: bytes, position: int, end: int) -> tuple[int, list[tuple[V, int]]]:
        """Divide ``data[position:end]``, whole publications, where the value of topics changes.

        Returns the values with the positions where their stretches end. It stops at the first topic
        without a value: the position returned, which is ``end`` if all were there.
        """
        values = self._values
        header = HEADER.unpack_from
        stretches: list[tuple[V, int]] = []
        current: V | None = None
        while position < end:
            _, topic_length, body_length = header(data, position)
            body = position + _HEADER_LENGTH + topic_length
            value = values.get(data[body - topic_length : body])
            if value is None:
                break
            if value is not current:
                if current is not None:
                    stretches.append((current, position))
                current = value
            position = body + body_length
        if current is not None:
            stretches.append((current, position))
        return position, stretches


def python_deal(
    data: bytes,
    start: int,
    stretches: Sequence[tuple[V, int]],
    groups: Mapping[V, Sequence[int]],
    group_count: int,
    most: int,
) -> list[bytes] | None:
    """Copy each stretch of ``data`` to all groups of its value, in order; returns their bytes.

    The first stretch begins at ``start``, each other one where the one before it ends. Returns None
    if the copies would be more than ``most`` bytes together.
    """
    size = 0
    position = start
    for value, end in stretches:
        size += (end - position) * len(groups[value])
        position = end
    if size > most:
        return None
    parts: list[list[bytes]] = [[] for _ in range(group_count)]
    position = start
    for value, end in stretches:
        part = data[position:end]
        for group in groups[value]:
            parts[group].append(part)
        position = end
    return [b"".join(part) for part in parts]


COMPILED = True
try:
    from host_broker.bus._topic_table import TopicTable as TopicTable
    from host_broker.bus._topic_table import deal as deal
except ImportError:  # not wanted, or no compiler where this was installed: slower, and the same
    COMPILED = False
    TopicTable = PythonTopicTable  # type: ignore[assignment,misc]
    deal = python_deal
