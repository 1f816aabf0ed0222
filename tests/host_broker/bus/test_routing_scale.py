"""What routing costs, in steps through the index: it does not grow with what is unrelated."""

import pytest

from host_broker.bus.exchange import Exchange
from host_broker.bus.publication import pack

_SIZES = (10, 1_000, 100_000)
_UNRELATED = (b"site/%d/x", b"site/x%d/*", b"*/x%d/x")


def _exchange(size: int, unrelated: tuple[bytes, ...] = _UNRELATED) -> Exchange:
    """One client with what is asked for below, and ``size`` subscriptions that are unrelated."""
    exchange = Exchange(size + 10, 1_000_000, 1 << 30)
    for topic in (b"home/kitchen/temperature", b"home/*/temperature", b"*/hall/*"):
        exchange.subscribe(1, topic, feedback=False, quiet=True)
    for number in range(size):
        topic = unrelated[number % len(unrelated)] % number
        exchange.subscribe(2, topic, feedback=False, quiet=True)
    return exchange


def _published(exchange: Exchange, topic: bytes) -> tuple[int, list[int]]:
    before = exchange.work.steps
    sends: dict[int, list[bytes | bytearray | memoryview]] = {}
    exchange.publish(sends, topic, pack(0, topic, b"x"))
    return exchange.work.steps - before, sorted(sends)


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
        exchange = _exchange(size)
        first, found = _published(exchange, topic)
        assert found == receivers
        again, found = _published(exchange, topic)
        assert (again, found) == (0, receivers)
        costs.add(first)
    assert len(costs) == 1
    assert max(costs) < 20


@pytest.mark.parametrize("topic", [b"home/*/temperature", b"home/kitchen/*", b"home/*/*"])
def test_a_wildcard_publication(topic: bytes) -> None:
    """R11, R14: it visits the branches its ``*`` stands for, and no others."""
    costs = set()
    for size in _SIZES:
        exchange = _exchange(size, (b"site/%d/x", b"site/x%d/*"))
        cost, found = _published(exchange, topic)
        assert found == [1]
        assert _published(exchange, topic) == (0, [1])
        costs.add(cost)
    assert len(costs) == 1
    assert max(costs) < 20


def test_a_subscription_and_its_end() -> None:
    """R14, R16, R21: with many cached routes, subscriptions and retained messages about."""
    costs = set()
    for size in _SIZES:
        exchange = _exchange(size)
        for number in range(min(size, 10_000)):
            _published(exchange, b"site/%d/x" % number)
        for number in range(size):
            exchange.retained.put(b"kept/%d/x" % number, b"x")
        exchange.retained.put(b"home/a/b", b"x")
        before = exchange.work.steps
        for topic in (b"home/kitchen/light", b"home/*/light", b"home/*/b"):
            exchange.subscribe(3, topic, feedback=False, quiet=False)
            exchange.retained.equivalent(topic)
            exchange.unsubscribe(3, topic, feedback=False)
        costs.add(exchange.work.steps - before)
    assert len(costs) == 1
    assert max(costs) < 100


def test_who_changes_something_else_costs_a_publisher_nothing() -> None:
    """R14: a thousand clients subscribe, unsubscribe and leave; the route stays cached."""
    exchange = _exchange(10)
    _published(exchange, b"home/kitchen/temperature")
    for client in range(10, 1_010):
        exchange.subscribe(client, b"room/%d" % client, feedback=False, quiet=False)
        exchange.subscribe(client, b"*/%d/temperature" % client, feedback=False, quiet=False)
        exchange.unsubscribe(client, b"room/%d" % client, feedback=False)
        exchange.unsubscribe(client, b"home/kitchen/temperature", feedback=False)
        assert list(exchange.detach(client))
        assert _published(exchange, b"home/kitchen/temperature") == (0, [1])


@pytest.mark.parametrize("subscribed", [b"a/b", b"a/*", b"*/b", b"*/*"])
@pytest.mark.parametrize("published", [b"a/b", b"a/*", b"*/b", b"*/*"])
def test_what_concerns_a_cached_route_changes_it(subscribed: bytes, published: bytes) -> None:
    """R11, R14, R16: by equivalence, as the route itself."""
    exchange = Exchange(10, 10, 10_000)
    assert _published(exchange, published)[1] == []
    exchange.subscribe(1, subscribed, feedback=False, quiet=False)
    assert _published(exchange, published)[1] == [1]
    exchange.unsubscribe(1, subscribed, feedback=False)
    assert _published(exchange, published)[1] == []
    exchange.subscribe(1, subscribed, feedback=False, quiet=False)
    assert _published(exchange, published)[1] == [1]
    assert len(list(exchange.detach(1))) == 1
    assert _published(exchange, published)[1] == []


def test_the_cache_of_routes_is_bounded() -> None:
    """Endless different topics, deep ones too: it starts anew, and is right."""
    exchange = _exchange(10)
    for number in range(40_000):
        _published(exchange, b"a/%d" % number)
    for number in range(2_000):
        _published(exchange, b"%d" % number + b"/d" * 120)
    routes = exchange._routes
    assert len(routes.by_topic) <= 16_384
    assert routes._known.nodes < 65_536 + 128
    assert _published(exchange, b"home/kitchen/temperature")[1] == [1]
