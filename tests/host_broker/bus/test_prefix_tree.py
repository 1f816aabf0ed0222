"""Prefixes found by what begins with them, against a look at all of them; and what that costs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from host_broker.bus.bus import Bus
from host_broker.bus.prefix_tree import PrefixTree
from host_broker.bus.subscriptions import SubscriptionKey
from host_broker.bus.trie import Trie
from host_broker.bus.work import Work
from host_broker.settings import BusSettings

_TEXT = st.text("ab/", max_size=6).map(str.encode)


@given(st.lists(st.tuples(st.booleans(), _TEXT), max_size=30), st.lists(_TEXT, max_size=5))
def test_the_tree_is_a_look_at_all(history: list[tuple[bool, bytes]], topics: list[bytes]) -> None:
    tree: PrefixTree[bytes] = PrefixTree(Work())
    naive: set[bytes] = set()
    for added, prefix in history:
        if added:
            tree.put(prefix, prefix)
            naive.add(prefix)
        else:
            tree.remove(prefix)
            naive.discard(prefix)
        assert len(tree) == len(naive)
        assert tree.get(prefix) == (prefix if prefix in naive else None)
    for topic in topics:
        found = list(tree.beginning(topic))
        assert found == sorted(each for each in naive if topic.startswith(each))
    for prefix in naive:
        tree.remove(prefix)
    assert not tree._root.edges  # no branch is left that leads nowhere


@given(st.sets(st.lists(st.sampled_from(["a", "ab", "b", "*"]), min_size=1, max_size=3)
               .map("/".join).map(str.encode)), _TEXT)  # fmt: skip
def test_paths_that_begin_with_a_prefix(paths: set[bytes], prefix: bytes) -> None:
    trie: Trie[bytes] = Trie()
    for path in paths:
        trie.put(path, path)
    assert set(trie.beginning_with(prefix)) == {each for each in paths if each.startswith(prefix)}


def _names(count: int) -> list[bytes]:
    """Names of routes as people make them: words of many lengths, in a few exchanges."""
    chance = random.Random(20)
    words = ["".join(chance.choices("abcdefghij", k=chance.randint(1, 30))) for _ in range(count)]
    return [f"exchange{number % 4}/{word}".encode() for number, word in enumerate(words)]


def _costs(count: int) -> tuple[int, int]:
    """Return the steps of publications the first time, and of the same ones again."""
    bus = Bus(BusSettings(max_subscriptions=count + 1), b"$")
    names = _names(count)
    for number, name in enumerate(names):
        bus.subscribe(number % 7, SubscriptionKey(name, prefix=True, id=number), None, True)
    topics = [name + b"/tail" for name in names[:10]]
    steps = []
    for _ in range(2):
        before = bus.work.steps
        for topic in topics:
            assert bus.route(topic).matches
        steps.append(bus.work.steps - before)
    return steps[0], steps[1]


def test_ten_thousand_prefixes_cost_a_publication_what_ten_do() -> None:
    """bus.md §4: at most 3 times as much, the first time; then nothing at all."""
    (few, few_again), (many, many_again) = _costs(10), _costs(10_000)
    assert many <= 3 * few
    assert (few_again, many_again) == (0, 0)


def test_a_prefix_that_comes_or_goes_leaves_other_routes_alone() -> None:
    bus = Bus(BusSettings(), b"$")
    bus.subscribe(1, SubscriptionKey(b"home/kitchen"), None, False)
    bus.route(b"home/kitchen")
    before = bus.work.steps
    for number in range(100):
        key = SubscriptionKey(b"exchange/%d" % number, prefix=True)
        bus.subscribe(2, key, None, False)
        bus.unsubscribe(2, key)
    changes = bus.work.steps - before
    assert bus.route(b"home/kitchen").matches[0].subscriber == 1
    assert bus.work.steps - before == changes  # still known
    assert changes < 100 * 20
