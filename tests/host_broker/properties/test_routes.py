"""Routes against a naive matcher: whatever was subscribed to and published before, in any order."""

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.bus import Bus
from host_broker.bus.delivery import Filter
from host_broker.bus.publication import NO_PROPERTIES
from host_broker.bus.subscriptions import SubscriptionKey
from host_broker.settings import BusSettings

_LEVEL = st.sampled_from(["a", "b", "ab", "*", "$"])
_TOPIC = st.lists(_LEVEL, min_size=1, max_size=3).map("/".join).map(str.encode)
_PREFIX = st.text("ab/*$", max_size=4).map(str.encode)
_VERBATIM, _TRANSLATING = (1, 2), (3, 4, -1)
_BODIES = (b"x", b"y", b"z")
_FILTERS: tuple[Filter | None, ...] = (
    None,
    lambda topic, properties, body: body == b"x",
    lambda topic, properties, body: b"a" in topic,
)
_Key = tuple[bytes, bool, int]  # topic, prefix, id


@dataclass(frozen=True)
class _Said:
    """One step: subscribe, unsubscribe, leave, or publish (``subscriber`` 0)."""

    what: str
    subscriber: int
    key: _Key
    filter: int


_SAID = st.builds(
    _Said,
    st.sampled_from(["subscribe", "subscribe", "unsubscribe", "leave", "publish", "publish"]),
    st.sampled_from(_VERBATIM + _TRANSLATING),
    st.one_of(
        st.tuples(_TOPIC, st.just(False), st.integers(0, 1)),
        st.tuples(_PREFIX, st.just(True), st.integers(0, 1)),
    ),
    st.integers(0, len(_FILTERS) - 1),
)


def _matches(topic: bytes, key: _Key, apart: bool) -> bool:
    wanted, prefix, _ = key
    if prefix:
        return topic.startswith(wanted)
    ones, others = topic.split(b"/"), wanted.split(b"/")
    if len(ones) != len(others):
        return False
    if apart and b"$" in (ones[0], others[0]) and ones[0] != others[0]:
        return False
    return all(a == b or b"*" in (a, b) for a, b in zip(ones, others, strict=True))


def _expected(
    subscribed: dict[int, dict[_Key, int]], topic: bytes, body: bytes, apart: bool
) -> dict[int, set[int]]:
    """Who gets a publication, and the ids by which (none: as it is)."""
    found: dict[int, set[int]] = {}
    for subscriber, keys in subscribed.items():
        for key, number in keys.items():
            wanted = _FILTERS[number]
            if _matches(topic, key, apart) and (
                wanted is None or wanted(topic, NO_PROPERTIES, body)
            ):
                found.setdefault(subscriber, set()).add(key[2])
    return found


def _found(bus: Bus, topic: bytes, body: bytes) -> dict[int, set[int]]:
    route = bus.route(topic)
    assert len(set(route.verbatim)) == len(route.verbatim)
    found: dict[int, set[int]] = {each: set() for each in route.verbatim}
    for match in route.matches:
        assert match.subscriber not in found
        assert len(set(match.ids)) == len(match.ids)
        ids = {
            each.id
            for each in match.filtered
            if each.filter is not None and each.filter(topic, NO_PROPERTIES, body)
        }
        if match.ids or ids:
            found[match.subscriber] = ids.union(match.ids)
    return found


@settings(max_examples=500)
@given(st.lists(_SAID, max_size=40), st.booleans())
def test_a_route_is_what_a_naive_matcher_finds(said: list[_Said], apart: bool) -> None:
    """Wildcards on both sides, prefixes, filters, ids; what was cached before is never stale."""
    bus = Bus(BusSettings(wildcard_matches_service=not apart), b"$")
    subscribed: dict[int, dict[_Key, int]] = {}

    def enter(subscriber: int) -> None:
        if subscriber in _VERBATIM:
            bus.attach(subscriber, verbatim=True)
        subscribed[subscriber] = {}

    for subscriber in _VERBATIM + _TRANSLATING:
        enter(subscriber)
    published: set[bytes] = set()
    for each in said:
        topic, prefix, id = each.key
        key = SubscriptionKey(topic, prefix=prefix, id=id)
        if each.what == "subscribe":
            bus.subscribe(each.subscriber, key, _FILTERS[each.filter], each.filter == 0)
            subscribed[each.subscriber][each.key] = each.filter
        elif each.what == "unsubscribe":
            bus.unsubscribe(each.subscriber, key)
            subscribed[each.subscriber].pop(each.key, None)
        elif each.what == "leave":
            list(bus.detach(each.subscriber))
            enter(each.subscriber)
        else:
            published.add(topic if topic.strip(b"/") == topic != b"" else b"a")
        for asked in published:
            for body in _BODIES:
                found, expected = (
                    _found(bus, asked, body),
                    _expected(subscribed, asked, body, apart),
                )
                assert found.keys() == expected.keys()
                for subscriber, ids in found.items():
                    assert not ids or ids == expected[subscriber]
                    assert ids or subscriber in _VERBATIM
            assert any(bus.look_for_subscribers(asked)) == any(
                _matches(asked, key, apart) for keys in subscribed.values() for key in keys
            )
