"""Values under prefixes, found by what begins with them."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from host_broker.bus.work import Work

V = TypeVar("V")


class _Node(Generic[V]):
    """``edges``: by their first byte, the bytes that follow and the node that they lead to."""

    __slots__ = ("edges", "value")

    def __init__(self) -> None:
        self.edges: dict[int, tuple[bytes, _Node[V]]] = {}
        self.value: V | None = None


class PrefixTree(Generic[V]):
    """A map from byte strings to values that also answers "which of them does this begin with".

    A radix tree: a search looks at no more nodes than there are branches on the way of what is
    searched for, however many prefixes there are. Costs are counted in ``work``.
    """

    def __init__(self, work: Work) -> None:
        self._root: _Node[V] = _Node()
        self._work = work
        self._exact: dict[bytes, V] = {}

    def __len__(self) -> int:
        """How many prefixes it has."""
        return len(self._exact)

    def get(self, prefix: bytes) -> V | None:
        """Return the value under exactly this prefix."""
        return self._exact.get(prefix)

    def put(self, prefix: bytes, value: V) -> None:
        """Set the value under exactly this prefix."""
        self._exact[prefix] = value
        node = self._root
        position = 0
        while position < len(prefix):
            self._work.spend(1)
            edge = node.edges.get(prefix[position])
            if edge is None:
                child: _Node[V] = _Node()
                node.edges[prefix[position]] = prefix[position:], child
                node = child
                break
            label, child = edge
            shared = _shared_length(label, prefix, position)
            if shared < len(label):
                between: _Node[V] = _Node()
                node.edges[label[0]] = label[:shared], between
                between.edges[label[shared]] = label[shared:], child
                child = between
            node = child
            position += shared
        node.value = value

    def remove(self, prefix: bytes) -> None:
        """Forget exactly this prefix, and the branch that led only to it."""
        if self._exact.pop(prefix, None) is None:
            return
        trail = []
        node = self._root
        position = 0
        while position < len(prefix):
            self._work.spend(1)
            label, child = node.edges[prefix[position]]
            trail.append((node, label))
            position += len(label)
            node = child
        node.value = None
        for parent, label in reversed(trail):
            if node.value is not None or len(node.edges) > 1:
                return
            if node.edges:
                ((rest, child),) = node.edges.values()
                parent.edges[label[0]] = label + rest, child
                return
            del parent.edges[label[0]]
            node = parent

    def beginning(self, topic: bytes) -> Iterator[V]:
        """Give the value of every prefix that a topic begins with, the shortest first.

        Ends early when the work that is left does not suffice: see ``Work.left`` afterwards.
        """
        node = self._root
        position = 0
        while True:
            if node.value is not None:
                yield node.value
            if position >= len(topic) or self._work.left <= 0:
                return
            self._work.spend(1)
            edge = node.edges.get(topic[position])
            if edge is None or not topic.startswith(edge[0], position):
                return
            position += len(edge[0])
            node = edge[1]


def _shared_length(label: bytes, prefix: bytes, position: int) -> int:
    """Return how many bytes of a label are those of a prefix from ``position`` on."""
    most = min(len(label), len(prefix) - position)
    for length in range(1, most):
        if label[length] != prefix[position + length]:
            return length
    return most
