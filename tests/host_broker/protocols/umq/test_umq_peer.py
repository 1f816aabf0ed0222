"""Both ends of a UMQ connection, in simulated time and without any."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_broker.protocols.umq.codec import spell_id
from host_broker.protocols.umq.events import (
    Call,
    Callback,
    ClearAttribute,
    Failed,
    Fatal,
    Hello,
    Missing,
    Result,
    SetAttribute,
    TopicEnd,
    Unsubscribe,
    Update,
    Welcome,
)
from host_broker.protocols.umq.peer import Peer, PeerLimits
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation


class Pair:
    """A client and a server; what one says the other is given at once, in order."""

    def __init__(self, greeted: bool = True, **limits: Any) -> None:
        self.client = Peer("client", PeerLimits(**limits))
        self.server = Peer("server", PeerLimits(**limits))
        if greeted:
            self.client.hello("")
            assert self.to_server() == [Hello(1, "", ())]
            self.server.welcome(1, "")
            assert self.to_client() == [Welcome(1, "", ())]

    def to_server(self) -> list[Any]:
        return _moved(self.client, self.server)

    def to_client(self) -> list[Any]:
        return _moved(self.server, self.client)


def _moved(sender: Peer, receiver: Peer) -> list[Any]:
    said, sender.out = sender.out, []
    return [event for message in said for event in receiver.receive(message)]


def _server(**limits: Any) -> Peer:
    server = Peer("server", PeerLimits(**limits))
    server.receive("H1:")
    server.welcome(1, "")
    server.out.clear()
    return server


def _ends(peer: Peer, message: str | bytes, said: str, rule: str = "") -> None:
    """A message ends it: F is said, and nothing more is read or said."""
    (fault,) = peer.receive(message)
    assert isinstance(fault, Violation)
    assert fault.fatal
    assert not rule or fault.rule == rule
    (fatal,) = peer.out
    assert isinstance(fatal, str)
    assert fatal.startswith(said), fatal
    assert peer.is_closed
    assert peer.receive("C1:x") == []
    peer.call("x")
    assert peer.out == [fatal]


# ---- handshake ----


def test_the_client_says_hello_and_the_server_welcome() -> None:
    """R8, R9, R10: both with payload and attachments."""
    pair = Pair(greeted=False)
    pair.client.hello("me", attachments=[b"key"])
    assert pair.to_server() == [Hello(1, "me", [b"key"])]
    pair.server.welcome(1, "you")
    assert pair.server.is_open
    assert pair.to_client() == [Welcome(1, "you", ())]
    assert pair.client.is_open


def test_a_welcome_may_have_attachments() -> None:
    """R10."""
    client = Peer("client", PeerLimits())
    client.hello("")
    assert client.receive("A1:W1:x") == []
    assert not client.is_open
    assert client.receive(b"proof") == [Welcome(1, "x", [b"proof"])]


@pytest.mark.parametrize("first", ["C1:x", "W1:", "T1:", "S:a=b", "R1:", "U1:"])
def test_the_first_message_is_hello(first: str) -> None:
    """R8."""
    _ends(Peer("server", PeerLimits()), first, "F0:3 Protocol error", "R8")


def test_the_server_lowers_the_version_and_knows_none_below_its_own() -> None:
    """R9, A12: H2 is answered by W1, H0 by F 5."""
    server = Peer("server", PeerLimits())
    assert server.receive("H2:x") == [Hello(2, "x", ())]
    server.welcome(2, "")
    assert server.out == ["W1:"]
    _ends(Peer("server", PeerLimits()), "H:x", "F0:5 Unsupported version", "A12")


def test_a_client_is_not_given_a_higher_version_than_it_asked_for() -> None:
    """R9, A12: nor none."""
    for welcome in ("W2:", "W0:"):
        client = Peer("client", PeerLimits())
        client.hello("")
        client.out.clear()
        _ends(client, welcome, "F0:5 Unsupported version", "A12")


@pytest.mark.parametrize("first", ["H1:", "C1:x", "R1:x", "T1:x"])
def test_a_client_waits_for_welcome(first: str) -> None:
    """R9."""
    client = Peer("client", PeerLimits())
    client.hello("")
    client.out.clear()
    _ends(client, first, "F0:3 Protocol error", "R9")


def test_a_hello_may_be_answered_by_fatal() -> None:
    """R9, R12, R13: the client says nothing more."""
    pair = Pair(greeted=False)
    pair.client.hello("me")
    pair.to_server()
    pair.server.end(123, "Authorization failed")
    assert pair.to_client() == [Fatal(123, "Authorization failed")]
    assert pair.client.is_closed
    assert pair.client.out == []


def test_nobody_greets_twice_or_in_the_others_place() -> None:
    """A24."""
    for message in ("H1:", "W1:"):
        _ends(_server(), message, "F0:3 Protocol error", "A24")
        pair = Pair()
        _ends(pair.client, message, "F0:3 Protocol error", "A24")


def test_between_hello_and_welcome_others_may_not_come_again() -> None:
    """A24."""
    server = Peer("server", PeerLimits())
    server.receive("H1:")
    _ends(server, "H1:", "F0:3 Protocol error", "A24")


# ---- the end ----


def test_fatal_is_the_last_message() -> None:
    """R11, R13, R14, A19: at any time; what came behind it is not read."""
    pair = Pair()
    pair.server.end(8, "closing time")
    pair.server.update(1, "late")
    pair.server.end(8, "again")
    assert pair.server.out == ["F0:8 closing time"]
    assert pair.to_client() == [Fatal(8, "closing time")]
    assert pair.client.receive("C1:x") == []


def test_both_sides_say_everything_once_they_are_open() -> None:
    """A26."""
    pair = Pair()
    for one, other in ((pair.client, pair.to_server), (pair.server, pair.to_client)):
        pair.client.out, pair.server.out = [], []
        number = one.call("a")
        one.call_back(5, "b")
        one.set_attribute("k", "v")
        one.clear_attribute("k")
        heard = other()
        assert heard == [Call(number, "a", ()), SetAttribute("k", "v", ()), ClearAttribute("k")]


# ---- calls ----


def test_answers_have_the_ids_of_their_calls_in_any_order() -> None:
    """R17, R18, R20."""
    pair = Pair()
    one, two, three = (pair.client.call(text) for text in ("a", "b", "c"))
    assert pair.to_server() == [Call(one, "a", ()), Call(two, "b", ()), Call(three, "c", ())]
    assert pair.server.unanswered == 3
    pair.server.answer(three, "C")
    pair.server.fail(one, 4, "no")
    pair.server.answer(two, "B")
    assert pair.to_client() == [
        Result(three, "C", ()),
        Failed(one, "4 no"),
        Result(two, "B", ()),
    ]


def test_each_call_is_answered_once() -> None:
    """R19: whatever else is said of it."""
    pair = Pair()
    number = pair.client.call("a")
    pair.to_server()
    pair.server.answer(number, "first")
    pair.server.answer(number, "second")
    pair.server.fail(number, 1, "third")
    assert pair.to_client() == [Result(number, "first", ())]
    assert pair.client.receive(f"R{spell_id(number)}:again") == []
    assert pair.client.receive("E77:never asked") == []


def test_ids_are_answered_in_their_shortest_form() -> None:
    """A3, R17."""
    server = _server()
    assert server.receive("C00A:x") == [Call(10, "x", ())]
    server.answer(10, "y")
    assert server.out == ["RA:y"]


def test_an_id_in_use_is_none() -> None:
    """A25: of C and B together; after the answer it may be used again."""
    server = _server()
    server.receive("C1:x")
    server.answer(1, "")
    server.out.clear()
    assert server.receive("C1:y") == [Call(1, "y", ())]
    _ends(server, "B01:2:z", "F0:3 Protocol error", "A25")


def test_calls_and_results_have_attachments() -> None:
    """R21: and errors have none."""
    pair = Pair()
    number = pair.client.call("send me duck.png", [b"please"])
    assert pair.to_server() == [Call(number, "send me duck.png", [b"please"])]
    pair.server.answer(number, "image/png", [b"duck", b"pond"])
    assert pair.to_client() == [Result(number, "image/png", [b"duck", b"pond"])]


def test_a_call_that_was_refused_early_may_be_said_so() -> None:
    """A14: with ``!``, which is read as a failed call."""
    pair = Pair(rpc_error="!")
    number = pair.client.call("x")
    pair.to_server()
    pair.server.fail(number, 6, "Not RPC server", early=True)
    assert pair.server.out == [f"!{spell_id(number)}:6 Not RPC server"]
    assert pair.to_client() == [Failed(number, "6 Not RPC server", early=True)]
    usual = _server()
    usual.receive("C1:x")
    usual.fail(1, 6, "Not RPC server", early=True)
    assert usual.out == ["E1:6 Not RPC server"]


# ---- callbacks ----


def test_a_callback_is_called_with_an_argument_and_answered() -> None:
    """R22, R23, R24, A20: it is B that says it."""
    pair = Pair()
    pair.client.register_callback(int("4454", 36))
    number = pair.server.call_back(int("4454", 36), "a: work", [b"tool"])
    assert pair.server.out == [f"A1:B{spell_id(number)}:4454:a: work", b"tool"]
    assert pair.to_client() == [Callback(number, int("4454", 36), "a: work", [b"tool"])]
    pair.client.answer(number, "done", [b"proof"])
    assert pair.to_server() == [Result(number, "done", [b"proof"])]


def test_a_callback_may_fail() -> None:
    """R23."""
    pair = Pair()
    pair.client.register_callback(1)
    number = pair.server.call_back(1, "")
    pair.to_client()
    pair.client.fail(number, 1, "no time")
    assert pair.to_server() == [Failed(number, "1 no time")]


def test_a_callback_of_nobody_fails() -> None:
    """A15: or ends it."""
    pair = Pair()
    number = pair.server.call_back(9, "x")
    assert pair.to_client() == []
    assert pair.to_server() == [Failed(number, "2 Callback not found")]
    _ends(_server(unknown_callback_fatal=True), "B1:9:x", "F0:2 ", "A15")


def test_a_callback_is_called_once() -> None:
    """A16: unless they last."""
    for lasts in (False, True):
        pair = Pair(callback_persistent=lasts)
        pair.client.register_callback(1)
        pair.server.call_back(1, "a")
        pair.server.call_back(1, "b")
        assert len(pair.to_client()) == 1 + lasts


# ---- topics ----


def test_updates_have_the_id_that_the_subscriber_chose() -> None:
    """R25, R26, R27, R28."""
    pair = Pair()
    topic = int("9A8Z", 36)
    pair.client.subscribe(topic)
    assert pair.server.open_topic(topic)
    assert not pair.server.open_topic(topic)
    pair.server.update(topic, "one")
    pair.server.update(topic, "two", [b"x"])
    assert pair.server.out == ["T9A8Z:one", "A1:T9A8Z:two", b"x"]
    assert pair.to_client() == [Update(topic, "one", ()), Update(topic, "two", [b"x"])]
    pair.server.close_topic(topic)
    pair.server.update(topic, "late")
    assert pair.server.out == ["D9A8Z:"]
    assert pair.to_client() == [TopicEnd(topic)]
    assert pair.client.receive("D9A8Z:") == []


def test_who_unsubscribes_hears_what_was_under_way_no_more() -> None:
    """R29, R31, A18: until D, which is always the answer."""
    pair = Pair()
    pair.client.subscribe(5)
    pair.server.open_topic(5)
    pair.server.update(5, "under way")
    pair.client.unsubscribe(5)
    pair.client.unsubscribe(5)
    assert pair.client.out == ["U5:"]
    assert pair.to_client() == []
    assert pair.to_server() == [Unsubscribe(5)]
    pair.server.close_topic(5)
    assert pair.server.out == ["D5:"]
    assert pair.to_client() == [TopicEnd(5)]


def test_unsubscribing_from_what_has_ended_is_ignored() -> None:
    """R30."""
    server = _server()
    server.open_topic(5)
    server.close_topic(5)
    server.out.clear()
    assert server.receive("U5:") == []
    assert server.receive("U6:") == []
    assert server.out == []


def test_an_update_that_nobody_wants_is_answered_once() -> None:
    """A17: for each topic."""
    pair = Pair()
    for number in (1, 2, 1, 1):
        pair.client.receive(f"T{number}:x")
    assert pair.client.out == ["U1:", "U2:"]
    assert pair.to_server() == []


# ---- attributes ----


def test_attributes_are_set_and_cleared() -> None:
    """R32, R33, R34, R35: their attachments are part of them, ids mean nothing."""
    pair = Pair()
    pair.client.set_attribute(" k", "a=b ")
    pair.client.set_attribute("icon", "png", [b"\x89PNG"])
    assert pair.to_server() == [
        SetAttribute(" k", "a=b ", ()),
        SetAttribute("icon", "png", [b"\x89PNG"]),
    ]
    assert {name: each.value for name, each in pair.server.attributes.items()} == {
        " k": "a=b ",
        "icon": "png",
    }
    assert pair.server.attributes["icon"].attachments == [b"\x89PNG"]
    pair.server.receive("X7: k")
    pair.server.receive("S9:k=v")
    assert set(pair.server.attributes) == {"icon", "k"}
    with pytest.raises(ValueError, match="has no '='"):
        pair.client.set_attribute("a=b", "c")


def test_an_attribute_without_a_value_ends_it() -> None:
    """A22."""
    _ends(_server(), "S:key", "F0:3 Protocol error", "R32")


def test_attributes_are_so_many_and_so_long() -> None:
    """umq.max_attributes, umq.max_attribute_bytes: more are not kept, and nothing else happens."""
    server = _server(max_attributes=2, max_attribute_bytes=10)
    for message, rule in (
        ("S:a=1", ""),
        ("S:b=1", ""),
        ("S:c=1", "umq.max_attributes"),
        ("S:a=2", ""),
        ("S:a=123456789", "umq.max_attribute_bytes"),
    ):
        (event,) = server.receive(message)
        assert (event.rule if isinstance(event, Violation) else "") == rule
    server.receive("A1:S:b=1")
    (event,) = server.receive(bytes(8))
    assert isinstance(event, Violation)
    assert not event.fatal
    assert {name: each.value for name, each in server.attributes.items()} == {"a": "2", "b": "1"}


# ---- attachments ----


def test_other_texts_may_come_before_the_attachments() -> None:
    """A10, R5: a message is there when its last attachment is."""
    server = _server()
    assert server.receive("A2:C1:x") == []
    assert server.receive("C2:y") == [Call(2, "y", ())]
    assert server.receive(b"a") == []
    assert server.receive("-:gone") == [Call(1, "x", [b"a", Missing("gone")])]


def test_what_nobody_announced_is_ignored_or_ends_it() -> None:
    """A9."""
    server = _server()
    assert server.receive(b"stray") == []
    assert server.receive("-:stray") == []
    assert server.strays == 2
    _ends(_server(strict_attachments=True), b"stray", "F0:3 Protocol error", "A9")


def test_attachments_of_what_has_none_may_be_dropped() -> None:
    """A11: the binary is taken, and is nobody else's."""
    server = _server(lenient_attachments=True)
    server.open_topic(5)
    assert server.receive("A1:U5:") == []
    assert server.receive("A1:C1:x") == []
    assert server.receive(b"of U") == [Unsubscribe(5)]
    assert server.receive(b"of C") == [Call(1, "x", [b"of C"])]


def test_attachments_are_so_many_and_so_long() -> None:
    """umq.max_attachments, umq.max_attachment, bus.max_held_bytes."""
    _ends(_server(max_attachments=3), "A4:C1:x", "F0:1 umq.max_attachments", "umq.max_attachments")
    _ends(_server(max_attachment=3), b"1234", "F0:1 umq.max_attachment", "umq.max_attachment")
    held = Budget(5)
    server = Peer("server", PeerLimits(), held)
    server.receive("H1:")
    server.welcome(1, "")
    server.out.clear()
    server.receive("A2:C1:x")
    server.receive(b"123")
    _ends(server, b"456", "F0:1 bus.max_held_bytes", "bus.max_held_bytes")
    assert held.left == 5


# ---- any history ----

_ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            ["call", "answer", "fail", "open", "update", "close", "unsubscribe", "set"]
        ),
        st.integers(0, 3),
        st.lists(st.binary(max_size=3), max_size=3),
    ),
    max_size=60,
)


@given(_ACTIONS, st.data())
def test_two_peers_never_break_the_protocol_to_each_other(
    actions: list[tuple[str, int, list[bytes]]], data: st.DataObject
) -> None:
    """A26, R17 to R31: whatever both do, and however late it comes."""
    pair = Pair()
    answered: dict[int, int] = {}
    to_answer: list[int] = []
    ended: set[int] = set()
    heard_ended: set[int] = set()

    def flow(move: Callable[[], list[Any]]) -> None:
        for event in move():
            assert not isinstance(event, Violation | Fatal)
            if isinstance(event, Call):
                to_answer.append(event.id)
            elif isinstance(event, Result | Failed):
                answered[event.id] = answered.get(event.id, 0) + 1
            elif isinstance(event, Unsubscribe):
                pair.server.close_topic(event.topic)
                ended.add(event.topic)
            elif isinstance(event, TopicEnd):
                heard_ended.add(event.topic)
            elif isinstance(event, Update):
                assert event.topic not in heard_ended

    made: list[int] = []
    topics = 0
    for action, number, attachments in actions:
        match action:
            case "call":
                made.append(pair.client.call("x", attachments))
            case "answer" if to_answer:
                pair.server.answer(to_answer.pop(number % len(to_answer)), "y", attachments)
            case "fail" if to_answer:
                pair.server.fail(to_answer.pop(number % len(to_answer)), 1, "no")
            case "open":
                topics += 1
                pair.client.subscribe(topics)
                pair.server.open_topic(topics)
            case "update":
                pair.server.update(number, "u", attachments)
            case "close":
                pair.server.close_topic(number)
            case "unsubscribe":
                pair.client.unsubscribe(number)
            case "set":
                pair.client.set_attribute(str(number), "v", attachments)
        if data.draw(st.booleans()):
            flow(pair.to_server)
        if data.draw(st.booleans()):
            flow(pair.to_client)
    for _ in range(3):
        flow(pair.to_server)
        flow(pair.to_client)
    for number in to_answer:
        pair.server.answer(number, "")
    flow(pair.to_client)
    assert answered == dict.fromkeys(made, 1)
