"""A read of many messages does what as many reads of one message do.

Two brokers are told the same: one in reads of any lengths, the other message by message. Routes,
exchanges, bindings with and without rules, taps of other protocols, rights, and backlogs that are
too short are all mixed; what differs is only how often somebody is called.
"""

from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from host_broker.access.access import Access
from host_broker.access.access import Peer as From
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.bus.publication import unpack, unpack_with_properties
from host_broker.bus.queue import read_place
from host_broker.protocols.fq.codec import (
    PERMANENT,
    spell_head,
    spell_message,
    spell_origin,
    spell_run,
)
from host_broker.protocols.fq.queues import Queues
from tests.host_broker.protocols.fq.peer import ID, Peer, fq_desk
from tests.host_broker.protocols.micromsg2.peer import Peer as BoardPeer
from tests.host_broker.protocols.micromsg2.peer import told

_SECRETS = {b"alice": b"a-token-of-many-letters", b"carol": b"another-of-many-letters"}
_EXCHANGES = [b"e", b"f", b"rules", b"\0/", b"no", b"\0" * 127]
_BOUND = [each for each in _EXCHANGES if each != b"no"]
_ROUTES = [b"", b"a", b"a.b", b"a/*", b"b", b"\xff", b"\0" * 127, b"a" + b"r" * 126]
_PROGRAMS = [
    b"prefix:",
    b"prefix:a",
    b"prefix:a.",
    b"exact:b",
    b'prefix: payload_prefix("1")',
    b'prefix:a payload_contains("x")',
    b'exact:a (payload_prefix("2") || route_contains("b"))',
    b"prefix:zzz",
]
_RULE = b'prefix:a payload_prefix("1")'
_QUEUES = [
    b"mem:public,drop",
    b"mem:public,drop,backlog=3",
    b"mem:public,block,backlog=4",
    b"disk:public,drop,permanent,backlog=5",
    b"disk:public,block,permanent,backlog=3",
]
_PEER, _THERE = b"\x0a\0\0\1", b"\x0a\0\0\2"
_USERS: dict[str, Any] = {
    name.decode(): {"token": token_hash(secret.decode())} for name, secret in _SECRETS.items()
}
_RULES: dict[str, Any] = {
    "roles": {"users": {"connect": ["fq", "fmqp"]}, "everybody": {"connect": ["fmqp"]}},
    "principals": {
        "alice": {"publish": ["e/a/**", "f/**", "f", "e"], "subscribe": ["**"]},
        "carol": {"publish": ["**"], "subscribe": ["**"]},
    },
}

_messages = st.lists(
    st.tuples(
        st.sampled_from([b"e"] * 5 + _EXCHANGES),
        st.sampled_from(_ROUTES),
        st.sampled_from([b"", b"1", b"1x", b"2", b"x" * 300]),
        st.sampled_from([b"", _THERE, b"\x7f\0\0\1"]),  # hops of what a peer says
    ),
    min_size=5,
    max_size=40,
)
_queues = st.lists(
    st.tuples(
        st.sampled_from(_QUEUES),
        st.integers(0, 2),  # consumers with a data connection
        st.lists(
            st.tuples(st.sampled_from([b"e"] * 3 + _BOUND), st.sampled_from(_PROGRAMS)), max_size=4
        ),
    ),
    min_size=1,
    max_size=4,
)
# All of it: bindings that share queues, and share them only in part; each queue with a consumer and
# without one; each message three times, in another order each time.
_ALL_QUEUES = [
    (
        kind,
        count,
        [(b"e", program), (b"f", _PROGRAMS[number - 1]), (b"\0/", b"prefix:"), (b"rules", _RULE)],
    )
    for kind in _QUEUES
    for count in (0, 1, 2)
    for number, program in enumerate(_PROGRAMS)
    if number % 3 == count
]
# A consumer that is not sent yet what it was given takes what comes all the same.
_SMALL_BACKLOG = [(b"disk:public,drop,permanent,backlog=5", 1, [(b"e", b"prefix:")])]
_ALL_MESSAGES = [
    (exchange, route, payload, hops)
    for payload, hops in ((b"1x", b""), (b"2", _THERE), (b"", b"\x7f\0\0\1"), (b"1", b""))
    for route in (_ROUTES if payload != b"2" else _ROUTES[::-1])
    for exchange in _EXCHANGES
]


class _Scene:
    """A broker with queues, taps and one publisher."""

    def __init__(self, queues: list[Any], taps: list[str], who: bytes, is_peer: bool) -> None:
        more: dict[str, Any] = {}
        if who:
            more["access"] = Access(Users.read({"users": _USERS}), Rules.read(_RULES))
        self.desk = desk = fq_desk(journalled=True, **more)
        self.source = From("127.0.0.1") if who else None
        carol = b"carol", _SECRETS[b"carol"]
        self.consumers: list[Peer] = []
        for number, (kind, count, bindings) in enumerate(queues):
            name = b"q%d\0" % number + kind
            peers = [
                Peer(desk, name, *carol, peer=self.source, data=place < count)
                for place in range(max(count, 1))
            ]
            for exchange, program in bindings:
                peers[0].bind(exchange, program, PERMANENT)
            self.consumers += peers
        # Of what is in the stored form, and of what is translated.
        self.taps = [] if who else [desk.open() for _ in taps]
        self.boards = [] if who else [BoardPeer(desk) for _ in taps]
        for tap, board, pattern in zip(self.taps, self.boards, taps, strict=False):
            desk.sub(tap, pattern)
            board.subscribe("topic/" + pattern)
        self.publisher = Peer(
            desk, b"pub", who or b"u", _SECRETS.get(who, b""), peer=self.source, data=False
        )
        self.publisher.open_data(_PEER if is_peer else b"", is_peer)
        desk.records.clear()

    def stored(self) -> dict[tuple[bytes, int], Any]:
        """What of disk queues is to be stored and forgotten (None), after all that was said."""
        queued = self.desk.done().queued
        places = {read_place(key): entry for key, entry in queued.items()}
        # Of a queue itself: up to where its consumers may have had messages is marked ahead.
        return {place: entry if place[1] else entry and entry[0] for place, entry in places.items()}

    def seen(self) -> dict[str, Any]:
        """All that anybody can see."""
        desk = self.desk
        server: Any = desk.broker._servers["fq"]
        queues: Queues = server._shared.queues
        exchanges = [*queues.exchanges.values(), queues.together]
        return {
            "heard": [peer.heard() if peer.data else [] for peer in self.consumers],
            "taps": [list(unpack(desk.got(tap))) for tap in self.taps],
            "boards": [told(board.heard()) for board in self.boards],
            "status": self.publisher.status(),
            "statuses": [peer.status() for peer in self.consumers],
            "exchanges": [
                (each.name, each.messages, each.octets, each.no_route, each.routed, each.dropped)
                for each in exchanges
            ],
            "no_exchange": queues.no_exchange,
            "asked": [
                (binding.program.text, binding.invocations)
                for exchange in exchanges
                for binding in exchange.bindings.values()
            ],
            "queues": {
                name: (len(queue), queue.size, queue.dropped)
                for name, queue in desk.broker.queues.items()
            },
            "journal": [
                message
                for record in desk.records
                for message in unpack_with_properties(record.body)
            ],
            "records": sum(record.count for record in desk.records),
            "discarded": desk.discarded,
            "held": desk.held,
            "closed": [close.connection for close in desk.closes],
            "publications": desk.broker.stats.publications,
        }


def _spell(message: tuple[bytes, bytes, bytes, bytes], number: int, is_peer: bool) -> bytes:
    exchange, route, payload, hops = message
    id = number.to_bytes(8, "big") * 2
    if not is_peer:
        return spell_message(exchange, route, id, payload)
    origin = spell_origin(b"bob" if number % 3 else b"eve", _PEER + hops)
    return spell_run(spell_head(exchange, route), origin, [id], [payload])


@example(_ALL_QUEUES, ["e/*", "f/a", "*/a.b"], _ALL_MESSAGES, [], b"", False)
@example(_ALL_QUEUES, ["e/*", "*/*"], _ALL_MESSAGES, [], b"", True)
@example(_ALL_QUEUES, [], _ALL_MESSAGES, [], b"alice", False)
@example(_SMALL_BACKLOG, [], [(b"e", b"", b"", b"")] * 9, [439], b"", False)
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=60)
@given(
    _queues,
    st.lists(st.sampled_from(["e/*", "f/a", "*/a.b", "e"]), max_size=3),
    _messages,
    st.lists(st.integers(0, 4000), max_size=4),
    st.sampled_from([b"", b"", b"alice"]),
    st.booleans(),
)
def test_many_at_once_are_what_they_are_one_by_one(
    queues: list[Any],
    taps: list[str],
    said: list[Any],
    cuts: list[int],
    who: bytes,
    is_peer: bool,
) -> None:
    """R25 to R29, R32 to R34, R38 to R40, R44, R46: whatever is mixed, and however it is cut."""
    together, apart = (_Scene(queues, taps, who, is_peer) for _ in range(2))
    frames = [_spell(each, number, is_peer) for number, each in enumerate(said)]
    data = b"".join(frames)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for begin, end in pairwise(places):
        together.desk.broker.received(together.publisher.data, data[begin:end], 1000.0)
    for frame in frames:
        apart.desk.broker.received(apart.publisher.data, frame, 1000.0)
    assert together.stored() == apart.stored()
    assert together.seen() == apart.seen()
    assert not together.desk.failures


def test_what_becomes_of_them_is_counted_by_receivers() -> None:
    """A22, A23: one that takes the stored form each, a queue by its rule, and nobody."""
    desk = fq_desk()
    publisher, consumer = Peer(desk, b"p"), Peer(desk, b"c")
    consumer.bind(b"e", _RULE)
    for _ in range(2):
        desk.sub(desk.open(), "e/b")
    words = [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"c", b"1")]
    desk.send(
        publisher.data, b"".join(spell_message(b"e", route, ID, body) for route, body in words)
    )
    assert consumer.payloads() == [b"1"]
    status = publisher.status()
    assert (status["routed"], status["no_route"], status["no_exchange"]) == (1 + 2, 2, 0)
