"""The trie agrees with equivalence as the text defines it (FMQP R10 to R13)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.trie import Trie

_LEVEL = st.sampled_from([b"*", b"a", b"b", b"a*", b"", b"$"])
_PATH = st.lists(_LEVEL, min_size=1, max_size=5).map(b"/".join)


def _equivalent(one: bytes, other: bytes) -> bool:
    """The definition, literally: same number of levels, pairs equal or one of them ``*``."""
    ones, others = one.split(b"/"), other.split(b"/")
    return len(ones) == len(others) and all(
        a == b or b"*" in (a, b) for a, b in zip(ones, others, strict=True)
    )


@given(st.sets(_PATH, max_size=30), st.lists(_PATH, max_size=10), _PATH)
def test_finds_exactly_the_equivalent(put: set[bytes], removed: list[bytes], asked: bytes) -> None:
    trie: Trie[bytes] = Trie()
    for path in put:
        trie.put(path, path)
    for path in removed:
        trie.remove(path)
    left = put - set(removed)
    assert sorted(trie.equivalent(asked)) == sorted(p for p in left if _equivalent(p, asked))
    assert {path for path in put if trie.get(path) is not None} == left
    split = [path.split(b"/") for path in left]
    assert trie.nodes == len({tuple(p[: i + 1]) for p in split for i in range(len(p))})


@pytest.mark.parametrize(
    "path",
    [
        "home/living-space/living-room1/temperature",
        "home/living-space/living-room1/*",
        "home/living-space/*/temperature",
        "home/*/living-room1/temperature",
        "*/living-space/living-room1/temperature",
        "*/*/*/*",
    ],
)
def test_the_examples_of_the_text(path: str) -> None:
    """R10: the text's list of equivalent topics, against its first and last."""
    trie: Trie[str] = Trie()
    trie.put(path.encode(), path)
    assert list(trie.equivalent(b"home/living-space/living-room1/temperature")) == [path]
    assert list(trie.equivalent(b"*/*/*/*")) == [path]
    assert list(trie.equivalent(b"*/*/*")) == []


def test_removing_leaves_no_branch_behind() -> None:
    trie: Trie[int] = Trie()
    trie.put(b"a/b", 1)
    for number in range(100):
        trie.put(b"a/b/%d/x/y" % number, number)
    for number in range(100):
        trie.remove(b"a/b/%d/x/y" % number)
        trie.remove(b"a/b/%d/x" % number)
    assert trie.nodes == 2
    assert trie.get(b"a/b") == 1
