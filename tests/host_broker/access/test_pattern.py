"""Path patterns, against all the concrete paths that they and what is asked about can mean."""

from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from host_broker.access.pattern import PatternError, PatternTree, pattern_levels

# Of those with z there is no pattern: they are "all others".
_NAMES = ["a", "ab", "abz", "me", "mez", "z"]
_DEEPEST = 4
_ALL = [
    "/".join(levels) for depth in range(1, _DEEPEST + 1) for levels in product(_NAMES, repeat=depth)
]

_LEVEL = st.sampled_from(["a", "ab", "*", "%c"])
_PATTERN = st.builds(
    lambda levels, rest: "/".join([*levels, *(["**"] if rest else [])]),
    st.lists(_LEVEL, min_size=1, max_size=3),
    st.booleans(),
)
_PATH = st.lists(st.sampled_from(["a", "ab", "me", "*", "z"]), min_size=1, max_size=4).map("/".join)


def _matches(pattern: str, path: str, own: str) -> bool:
    wanted, levels = pattern.split("/"), path.split("/")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        if len(levels) < len(wanted):
            return False
        levels = levels[: len(wanted)]
    return len(wanted) == len(levels) and all(
        one == "*" or (one == "%c" and own and other == own) or one == other
        for one, other in zip(wanted, levels, strict=True)
    )


def _meant(path: str, prefix: bool) -> list[str]:
    if prefix:
        *whole, tail = path.split("/")
        return [
            each
            for each in _ALL
            if len(levels := each.split("/")) > len(whole)
            and all(one in ("*", other) for one, other in zip(whole, levels, strict=False))
            and levels[len(whole)].startswith(tail)
        ]
    levels = path.split("/")
    return [
        "/".join(concrete)
        for concrete in product(*(_NAMES if level == "*" else [level] for level in levels))
    ]


@settings(max_examples=300)
@given(st.lists(_PATTERN, max_size=5), _PATH, st.sampled_from(["", "me"]), st.booleans())
@example(["*/**"], "a", "", True)
@example(["%c/**"], "m", "me", True)
@example(["%c"], "*", "", False)
def test_all_or_anything_of_what_is_meant(
    patterns: list[str], path: str, own: str, prefix: bool
) -> None:
    tree: PatternTree[str] = PatternTree()
    for pattern in patterns:
        tree.put(pattern_levels(pattern), pattern)
    if prefix and path.endswith("*"):
        path = path[:-1]  # a prefix is of bytes: its last level is no wildcard
    meant = _meant(path, prefix)
    covering = [each for each in patterns if all(_matches(each, one, own) for one in meant)]
    overlapping = [each for each in patterns if any(_matches(each, one, own) for one in meant)]
    found = tree.covering(path.encode(), own.encode(), prefix=prefix)
    assert (found is not None) == bool(covering), (found, covering)
    assert found is None or found in covering
    found = tree.overlapping(path.encode(), own.encode(), prefix=prefix)
    assert (found is not None) == bool(overlapping), (found, overlapping)
    assert found is None or found in overlapping


@pytest.mark.parametrize("text", ["", "/a", "a/", "a*", "**/a", "a/**b", "x%c", "a/%cx/b"])
def test_what_is_no_pattern(text: str) -> None:
    with pytest.raises(PatternError):
        pattern_levels(text)


def test_thousands_of_patterns_cost_no_more_than_a_few() -> None:
    """A search looks at the levels of the path, not at the patterns."""
    tree: PatternTree[int] = PatternTree()
    for number in range(10_000):
        tree.put((b"site", b"%d" % number, b"x"), number)
    visited = _Counted()
    assert tree.covering(b"/".join([b"site", b"9999", b"x"]), visited) == 9999
    assert visited.compared <= 6


class _Counted(bytes):
    """An own name that counts how often it is looked at."""

    compared = 0

    def __bool__(self) -> bool:
        self.compared += 1
        return False
