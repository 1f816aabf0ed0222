"""Bindings are found by what routes begin with: the right ones, at a cost that does not grow."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.protocols.fq.functions import BUILT_IN
from host_broker.protocols.fq.programs import Call, Parsed, interpret, spell
from tests.host_broker.protocols.fq.peer import Peer, fq_desk

# What is spelled in more than one way on the bus, or is no topic at all.
_PIECES = [
    b"a",
    b"b",
    b"/",
    b"*",
    b"$",
    b"%",
    b"%2",
    b"%25",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xb6",
    b"~",
]
_texts = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=6).map(b"".join),
    st.binary(max_size=5),
    st.sampled_from([b"", b"\xff" * 127, b"\xff" * 126 + b"a", b"/" * 127, b"%25" * 42]),
)
_rules = st.sampled_from(
    [Call("true"), Call("route_contains", (b"a",)), Call("payload_contains", (b"b",))]
)
_programs = st.builds(Parsed, _texts, st.booleans(), _rules)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([b"ex", b"", b"*", b"$", b"a/b", b"\xff\0", b"\xff" * 127]),
    st.lists(_programs, min_size=1, max_size=6),
    st.lists(st.tuples(_texts, st.sampled_from([b"", b"b"])), min_size=1, max_size=6),
)
def test_a_queue_gets_what_a_program_of_it_wants_once(
    exchange: bytes, programs: list[Parsed], messages: list[tuple[bytes, bytes]]
) -> None:
    """R40, R41, R44: for any bytes, what the index finds is what asking every program would."""
    desk = fq_desk()
    consumer, publisher = Peer(desk, b"c\0mem"), Peer(desk, b"p\0mem")
    for program in programs:
        assert consumer.bind(exchange, spell(program)) != 0xFFFFFFFF
    for route, payload in messages:
        publisher.publish(exchange, route, payload)
    wanted = [
        (exchange, route, payload)
        for route, payload in messages
        if any(interpret(each, BUILT_IN, route, payload) for each in programs)
    ]
    heard = [(each.exchange, each.route, each.payload) for each in consumer.heard()]
    assert heard == wanted
    missed = len(messages) - len(wanted)
    assert publisher.status()["no_route"] == missed


def _cost(count: int) -> tuple[int, int]:
    """Return how many rules are asked, and how many steps are made, for a hundred messages of
    routes that are new, with so many bindings."""
    desk = fq_desk(bus={"max_subscriptions": 2 * count})
    consumer, publisher = Peer(desk, b"c\0mem"), Peer(desk, b"p\0mem")
    for number in range(count):
        consumer.bind(b"e", b'prefix:"rack.%d." payload_contains("x")' % number)
    server: Any = desk.broker._servers["fq"]
    work = desk.broker._bus.work
    before = work.steps
    for number in range(100):
        publisher.publish(b"e", b"rack.%d.t%d" % (number % 10, number), b"x")
    assert len(consumer.heard()) == 100
    asked = sum(
        each.invocations for each in server._shared.queues.exchanges[b"e"].bindings.values()
    )
    return asked, work.steps - before


def test_ten_thousand_prefixes_cost_hardly_more_than_ten() -> None:
    """R40, R44: only what a route begins with is asked; at most 3 times the steps."""
    few, many = _cost(10), _cost(10_000)
    assert few[0] == many[0] == 100
    assert many[1] <= 3 * few[1]


def test_many_bindings_of_one_queue_are_one_copy() -> None:
    """R44: however many match."""
    desk = fq_desk()
    consumer, other = Peer(desk, b"c\0mem"), Peer(desk, b"o\0mem")
    for program in (b"prefix:", b"prefix:a", b"exact:a.b", b'prefix:a route_contains("b")'):
        consumer.bind(b"e", program)
    other.bind(b"e", b"prefix:a")
    other.publish(b"e", b"a.b", b"1", b"2")
    assert consumer.payloads() == other.payloads() == [b"1", b"2"]
    assert other.status()["routed"] == 4


def test_invocations_are_counted_with_and_without_a_rule() -> None:
    """R50: of programs without a rule nobody is asked, and they are counted."""
    desk = fq_desk()
    consumer, publisher = Peer(desk, b"c\0mem"), Peer(desk, b"p\0mem")
    routes = [
        consumer.bind(b"e", program)
        for program in (b"prefix:a", b"exact:a", b'prefix:b payload_prefix("x")', b"prefix:c")
    ]
    publisher.publish(b"e", b"a", b"1", b"2")
    publisher.publish(b"e", b"b", b"x", b"y", b"x")
    server: Any = desk.broker._servers["fq"]
    bindings = server._shared.queues.exchanges[b"e"].bindings
    assert [bindings[route].invocations for route in routes] == [2, 2, 3, 0]
