"""Path patterns of the ACL, in an index in which thousands are searched as quickly as ten.

A pattern is levels between slashes: a name, ``*`` (any one level), ``%c`` (the principal's own
name), and at the end perhaps ``**`` (all that follows, also nothing). What is asked about may have
``*`` levels itself: FMQP's topics have them on both sides.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

ANY = b"*"
REST = b"**"
OWN = b"%c"

V = TypeVar("V")


class PatternError(ValueError):
    """A text is no pattern; says why."""


def pattern_levels(text: str) -> tuple[bytes, ...]:
    """Return a pattern's levels. Raises ``PatternError``."""
    levels = tuple(level.encode() for level in text.split("/"))
    if (text != "/" and (text.startswith("/") or text.endswith("/"))) or not text:
        raise PatternError(f"{text!r} begins or ends with a slash" if text else "it is empty")
    for index, level in enumerate(levels):
        if REST in level and (level != REST or index != len(levels) - 1):
            raise PatternError(f"in {text!r} '**' must be the whole last level")
        if ANY in level and level not in (ANY, REST):
            raise PatternError(f"in {text!r} '*' must be a whole level")
        if OWN in level and level != OWN:
            raise PatternError(f"in {text!r} '%c' must be a whole level")
    return levels


class _Node(Generic[V]):
    __slots__ = ("children", "ends", "rest")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[V]] = {}
        self.ends: V | None = None  # of the pattern that ends here
        self.rest: V | None = None  # of the pattern that ends here with ``**``


class PatternTree(Generic[V]):
    """Patterns with a value each. A search visits each node of the index at most once."""

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()

    def __bool__(self) -> bool:
        """Whether there is any pattern."""
        root = self._root
        return bool(root.children) or root.rest is not None or root.ends is not None

    def put(self, levels: tuple[bytes, ...], value: V) -> None:
        """Add a pattern; where there is one already, the first stays."""
        node = self._root
        for level in levels:
            if level == REST:
                node.rest = value if node.rest is None else node.rest
                return
            node = node.children.setdefault(level, _Node())
        node.ends = value if node.ends is None else node.ends

    def covering(self, path: bytes, own: bytes = b"", *, prefix: bool = False) -> V | None:
        """Return the value of a pattern under which *everything* comes that ``path`` can mean.

        ``own`` is what ``%c`` stands for, b"" = nothing. ``prefix``: ``path`` is the beginning of
        all the paths that are meant.
        """
        levels = path.split(b"/")
        tail = levels.pop() if prefix else None
        size = len(levels)
        nodes: list[tuple[_Node[V], int]] = [(self._root, 0)]
        while nodes:
            node, at = nodes.pop()
            if node.rest is not None:
                return node.rest
            children = node.children
            some = children.get(ANY)
            if at == size:
                if tail is None:
                    if node.ends is not None:
                        return node.ends
                elif some is not None and some.rest is not None:
                    return some.rest
                continue
            level = levels[at]
            if some is not None:
                nodes.append((some, at + 1))
            if level == ANY:
                continue
            if own and level == own and OWN in children:
                nodes.append((children[OWN], at + 1))
            if level in children:
                nodes.append((children[level], at + 1))
        return None

    def overlapping(self, path: bytes, own: bytes = b"", *, prefix: bool = False) -> V | None:
        """Return the value of a pattern under which *anything* comes that ``path`` can mean."""
        levels = path.split(b"/")
        tail = levels.pop() if prefix else None
        size = len(levels)
        nodes: list[tuple[_Node[V], int]] = [(self._root, 0)]
        while nodes:
            node, at = nodes.pop()
            if node.rest is not None:
                return node.rest
            if at == size:
                if tail is None:
                    if node.ends is not None:
                        return node.ends
                    continue
                found = _any_value(list(_beginning(node, tail, own)), own)
                if found is not None:
                    return found
                continue
            level = levels[at]
            if level == ANY:
                nodes += [
                    (child, at + 1) for name, child in node.children.items() if name != OWN or own
                ]
                continue
            names = {ANY, level, OWN} if own == level and own else {ANY, level}
            nodes += [(node.children[name], at + 1) for name in names if name in node.children]
        return None


def _beginning(node: _Node[V], tail: bytes, own: bytes) -> Iterator[_Node[V]]:
    """Yield the children whose level can begin with ``tail``."""
    for name, child in node.children.items():
        level = own if name == OWN else name
        if name == ANY or (level.startswith(tail) and (own or name != OWN)):
            yield child


def _any_value(nodes: list[_Node[V]], own: bytes) -> V | None:
    """Return a value at or below one of the nodes."""
    while nodes:
        node = nodes.pop()
        if node.rest is not None:
            return node.rest
        if node.ends is not None:
            return node.ends
        nodes += [child for name, child in node.children.items() if name != OWN or own]
    return None
