"""Values under paths, found by equivalence: a level ``*`` on either side equals any level."""

from collections.abc import Iterator
from typing import Generic, TypeVar

from host_broker.bus.work import Work

V = TypeVar("V")

ANY = b"*"
NODE_BYTES = 330  # measured on CPython 3.11: node, its dict, the level, the entry in its parent


class _Node(Generic[V]):
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[V]] = {}
        self.value: V | None = None


class Trie(Generic[V]):
    """A map from paths to values that also answers "which are equivalent to this path".

    Costs follow the path and the matches, never the number of entries, except that a ``*`` asked
    for must visit every branch of its level. They are counted in ``work``.

    ``apart``: a first level that no ``*`` equals; what is below it can only be named.
    """

    def __init__(self, work: Work | None = None, apart: bytes | None = None) -> None:
        self._root: _Node[V] = _Node()
        self._work = work if work is not None else Work()
        self._apart = apart
        self.nodes = 0  # below the root: what the memory used follows

    def get(self, path: bytes) -> V | None:
        """Return the value under exactly this path; ``*`` is a letter here."""
        node: _Node[V] | None = self._root
        for level in path.split(b"/"):
            node = node.children.get(level) if node else None
        return node.value if node else None

    def put(self, path: bytes, value: V) -> None:
        """Set the value under exactly this path."""
        node = self._root
        levels = path.split(b"/")
        self._work.spend(len(levels))
        for level in levels:
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _Node()
                self.nodes += 1
            node = child
        node.value = value

    def remove(self, path: bytes) -> None:
        """Forget exactly this path, and the branch that led only to it."""
        trail = []
        node = self._root
        levels = path.split(b"/")
        self._work.spend(len(levels))
        for level in levels:
            child = node.children.get(level)
            if child is None:
                return
            trail.append((node, level))
            node = child
        node.value = None
        for parent, level in reversed(trail):
            child = parent.children[level]
            if child.children or child.value is not None:
                return
            del parent.children[level]
            self.nodes -= 1

    def equivalent(self, path: bytes) -> list[V]:
        """Return the value of every path equivalent to this one (FMQP R10 to R13).

        Returns nothing when the work that is left does not suffice: see ``Work.left`` afterwards.
        """
        work = self._work
        left = work.left
        if left <= 0:
            return []
        nodes = [self._root]
        levels = path.split(b"/")
        steps = 0
        if self._apart is not None:
            nodes = self._first(levels.pop(0))
            steps = len(nodes) or 1
        for level in levels:
            found: list[_Node[V]] = []
            for node in nodes:
                children = node.children
                if level == ANY:
                    found += children.values()
                    continue
                child = children.get(level)
                if child is not None:
                    found.append(child)
                child = children.get(ANY)
                if child is not None:
                    found.append(child)
            nodes = found
            steps += len(nodes) or 1
            if not nodes or steps >= left:
                nodes = []
                break
        work.spend(steps)
        return [node.value for node in nodes if node.value is not None]

    def look(self, path: bytes) -> Iterator[V | None]:
        """Look for paths equivalent to this one, a node for each step: its value, or None.

        For who may pause in between: changes made meanwhile are found, or not. Steps are counted,
        and not taken from what is left: whoever asks bounds them.
        """
        levels = path.split(b"/")
        depth = len(levels)
        work = self._work
        if self._apart is None:
            waiting = [(0, iter((self._root,)))]
        else:
            waiting = [(1, iter(self._first(levels[0])))]
        while waiting:
            at, nodes = waiting[-1]
            node = next(nodes, None)
            if node is None:
                waiting.pop()
                continue
            work.steps += 1
            if at == depth:
                yield node.value
                continue
            yield None
            children, level = node.children, levels[at]
            if level == ANY:
                waiting.append((at + 1, iter(list(children.values()))))
            elif children:
                found = [children[name] for name in (level, ANY) if name in children]
                if found:
                    waiting.append((at + 1, iter(found)))

    def beginning_with(self, prefix: bytes) -> Iterator[V]:
        """Give the value of every path that begins with these bytes; ``*`` is a letter here.

        Ends early when the work that is left does not suffice: see ``Work.left`` afterwards.
        """
        work = self._work
        *levels, beginning = prefix.split(b"/")
        node: _Node[V] | None = self._root
        for level in levels:
            work.spend(1)
            node = node.children.get(level) if node else None
        if node is None:
            return
        work.spend(len(node.children) if beginning else 1)
        nodes = [child for name, child in node.children.items() if name.startswith(beginning)]
        while nodes and work.left > 0:
            node = nodes.pop()
            work.spend(1)
            if node.value is not None:
                yield node.value
            nodes.extend(node.children.values())

    def _first(self, level: bytes) -> list[_Node[V]]:
        """Return the nodes of a first level, where ``apart`` is equal to itself only."""
        children = self._root.children
        if level == ANY:
            return [child for name, child in children.items() if name != self._apart]
        wanted = (level,) if level == self._apart else (level, ANY)
        return [children[name] for name in wanted if name in children]
