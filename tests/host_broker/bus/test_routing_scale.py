"""What routing costs, in steps through the index: it does not grow with what is unrelated."""

import pytest

from host_broker.bus.bus import Bus
from host_broker.bus.subscriptions import SubscriptionKey
from host_broker.settings import BusSettings

_SIZES = (10, 1_000, 100_000)
_UNRELATED = (b"site/%d/x", b"site/x%d/*", b"*/x%d/x")


def _bus(limit: int) -> Bus:
    settings = BusSettings(
        max_subscriptions=limit, max_retained=1_000_000, max_retained_bytes=1 << 30
    )
    return Bus(settings, b"$")


def _subscribe(bus: Bus, subscriber: int, topic: bytes, quiet: bool) -> None:
    bus.subscribe(subscriber, SubscriptionKey(topic), None, quiet)


def _crowded(size: int, unrelated: tuple[bytes, ...] = _UNRELATED) -> Bus:
    """One client with what is asked for below, and ``size`` subscriptions that are unrelated."""
    bus = _bus(size + 10)
    for topic in (b"home/kitchen/temperature", b"home/*/temperature", b"*/hall/*"):
        _subscribe(bus, 1, topic, quiet=True)
    for number in range(size):
        topic = unrelated[number % len(unrelated)] % number
        _subscribe(bus, 2, topic, quiet=True)
    return bus


def _published(bus: Bus, topic: bytes) -> tuple[int, list[int]]:
    before = bus.work.steps
    route = bus.route(topic)
    return bus.work.steps - before, [*route.verbatim, *(each.subscriber for each in route.matches)]


@pytest.mark.parametrize(
    ("topic", "receivers"),
    [
        (b"home/kitchen/temperature", [1]),
        (b"home/hall/light", [1]),
        (b"none/of/them", []),
    ],
)
def test_a_publication(topic: bytes, receivers: list[int]) -> None:
    """R14: with wildcard subscriptions of all kinds about, the first time; then nothing at all."""
    costs = set()
    for size in _SIZES:
        bus = _crowded(size)
        first, found = _published(bus, topic)
        assert found == receivers
        again, found = _published(bus, topic)
        assert (again, found) == (0, receivers)
        costs.add(first)
    assert len(costs) == 1
    assert max(costs) < 20


@pytest.mark.parametrize("topic", [b"home/*/temperature", b"home/kitchen/*", b"home/*/*"])
def test_a_wildcard_publication(topic: bytes) -> None:
    """R11, R14: it visits the branches its ``*`` stands for, and no others."""
    costs = set()
    for size in _SIZES:
        bus = _crowded(size, (b"site/%d/x", b"site/x%d/*"))
        cost, found = _published(bus, topic)
        assert found == [1]
        assert _published(bus, topic) == (0, [1])
        costs.add(cost)
    assert len(costs) == 1
    assert max(costs) < 20


def test_a_subscription_and_its_end() -> None:
    """R14, R16, R21: with many cached routes, subscriptions and retained messages about."""
    costs = set()
    for size in _SIZES:
        bus = _crowded(size)
        for number in range(min(size, 10_000)):
            _published(bus, b"site/%d/x" % number)
        for number in range(size):
            bus.retained.put(b"kept/%d/x" % number, b"x")
        bus.retained.put(b"home/a/b", b"x")
        before = bus.work.steps
        for topic in (b"home/kitchen/light", b"home/*/light", b"home/*/b"):
            _subscribe(bus, 3, topic, quiet=False)
            bus.retained.equivalent(topic)
            bus.unsubscribe(3, SubscriptionKey(topic))
        costs.add(bus.work.steps - before)
    assert len(costs) == 1
    assert max(costs) < 100


def test_who_changes_something_else_costs_a_publisher_nothing() -> None:
    """R14: a thousand clients subscribe, unsubscribe and leave; the route stays cached."""
    bus = _crowded(10)
    _published(bus, b"home/kitchen/temperature")
    for client in range(10, 1_010):
        _subscribe(bus, client, b"room/%d" % client, quiet=False)
        _subscribe(bus, client, b"*/%d/temperature" % client, quiet=False)
        bus.unsubscribe(client, SubscriptionKey(b"room/%d" % client))
        bus.unsubscribe(client, SubscriptionKey(b"home/kitchen/temperature"))
        assert list(bus.detach(client))
        assert _published(bus, b"home/kitchen/temperature") == (0, [1])


@pytest.mark.parametrize("subscribed", [b"a/b", b"a/*", b"*/b", b"*/*"])
@pytest.mark.parametrize("published", [b"a/b", b"a/*", b"*/b", b"*/*"])
def test_what_concerns_a_cached_route_changes_it(subscribed: bytes, published: bytes) -> None:
    """R11, R14, R16: by equivalence, as the route itself."""
    bus = _bus(10)
    assert _published(bus, published)[1] == []
    _subscribe(bus, 1, subscribed, quiet=False)
    assert _published(bus, published)[1] == [1]
    bus.unsubscribe(1, SubscriptionKey(subscribed))
    assert _published(bus, published)[1] == []
    _subscribe(bus, 1, subscribed, quiet=False)
    assert _published(bus, published)[1] == [1]
    assert len(list(bus.detach(1))) == 1
    assert _published(bus, published)[1] == []


def test_the_cache_of_routes_is_bounded() -> None:
    """Endless different topics, deep ones too: it starts anew, and is right."""
    bus = _crowded(10)
    for number in range(40_000):
        _published(bus, b"a/%d" % number)
    for number in range(2_000):
        _published(bus, b"%d" % number + b"/d" * 120)
    routes = bus._routes
    assert len(routes.by_topic) <= 16_384
    assert routes._index.nodes < 65_536 + 128
    assert _published(bus, b"home/kitchen/temperature")[1] == [1]
