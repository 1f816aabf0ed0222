"""What any session may ask of the broker, its edge and other clients; and being told to go on."""

from collections.abc import Sequence
from typing import Any

import pytest

from host_broker import broker as broker_module
from host_broker.access.access import Access, Peer
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.broker_view import BrokerView
from host_broker.bus.commands import (
    Ask,
    Command,
    Pace,
    Ping,
    Ponged,
    Publish,
    Send,
    Subscribe,
)
from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import pack
from host_broker.outputs import ConnectionId
from host_broker.questions import AskStatistics
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.umq.peer import UmqPeer
from tests.host_broker.scripted import Stage


def test_a_session_that_paces_is_told_once() -> None:
    """Not before what it was sent is taken, and never if it did not ask."""
    stage = Stage()
    one = stage.enter()
    session = stage.session(one)
    told: list[float] = []
    session.drained = lambda now: told.append(now) or [Send(b"more")]  # type: ignore[method-assign]
    stage.slow.add(one)
    stage.do(one, Send(b"first"), Pace())
    assert told == []
    stage.broker.proceed(one, 5.0)
    stage.done()
    assert (told, stage.got(one)) == ([5.0], b"firstmore")
    stage.broker.proceed(one, 6.0)
    stage.done()
    assert told == [5.0]


def test_the_edge_answers_whoever_asked_in_any_order() -> None:
    stage = Stage()
    one, other = stage.enter(), stage.enter()

    def say(what: bytes) -> Any:
        return lambda answer: [Send(b"%s=%s" % (what, str(answer).encode()))]

    stage.do(one, Ask(AskStatistics(), say(b"a")), Ask(AskStatistics(), say(b"b")))
    stage.do(other, Ask(AskStatistics(), say(b"c")))
    numbers = [number for number, _ in stage.questions]
    assert [question for _, question in stage.questions] == [AskStatistics()] * 3
    for number, answer in zip(reversed(numbers), (3, 2, 1), strict=True):
        stage.broker.answered(number, answer, stage.now)
        stage.done()
    assert (stage.got(one), stage.got(other)) == (b"b=2a=1", b"c=3")


def test_who_has_left_is_not_answered() -> None:
    stage = Stage()
    one = stage.enter()
    stage.do(one, Ask(AskStatistics(), lambda answer: [Publish(b"late", b"x")]))
    ((number, _),) = stage.questions
    stage.close(one)
    stage.broker.answered(number, {}, stage.now)
    assert not stage.done().records


def test_an_answer_that_fails_ends_who_asked_and_nobody_else() -> None:
    stage = Stage()
    stage.failures_expected = True
    one = stage.enter()

    def fail(answer: object) -> Sequence[Command]:
        raise RuntimeError("a mistake in a protocol")

    stage.do(one, Ask(AskStatistics(), fail))
    stage.broker.answered(stage.questions[0][0], {}, stage.now)
    stage.done()
    assert [close.connection for close in stage.closes] == [one]


def test_a_ping_is_what_the_other_protocol_makes_of_it() -> None:
    stage = Stage()
    asker, pinged = stage.enter(), stage.enter(verbatim=True)
    tags: list[int] = []
    session = stage.session(pinged)
    session.client = "board"
    session.ping = lambda tag, now: tags.append(tag) or [Send(b"there?")]  # type: ignore[method-assign]
    answers: list[tuple[float | None, str]] = []

    def take(seconds: float | None, why: str) -> Sequence[Command]:
        answers.append((seconds, why))
        return ()

    for whom in ("board", pinged):
        stage.do(asker, Ping(whom, take))
        assert stage.got(pinged) == b"there?"
        stage.now += 0.5
        stage.do(pinged, Ponged(tags[-1]), Ponged(tags[-1]), Ponged(77))
    assert answers == [(0.5, ""), (0.5, "")]
    stage.do(asker, Ping("nobody", take), Ping(99, take), Ping(asker, take))
    assert answers[2:] == [
        (None, "is not connected"),
        (None, "is not connected"),
        (None, "cannot be asked that: it speaks translating"),
    ]
    stage.do(asker, Ping("board", take))
    stage.close(pinged)
    assert answers[5:] == [(None, "has left")]


def test_of_several_with_a_name_the_latest_is_pinged() -> None:
    stage = Stage()
    asker = stage.enter()
    asked: list[ConnectionId] = []
    for _ in range(3):
        each = stage.enter()
        session = stage.session(each)
        session.label = "board"
        session.ping = lambda tag, now, each=each: asked.append(each) or []  # type: ignore[method-assign,misc]
    stage.do(asker, Ping("board", lambda seconds, why: ()))
    assert asked == [4]


def test_a_client_is_looked_for_among_many_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_module, "_LOOKS_AT_ONCE", 10)
    stage = Stage()
    pinged, asker = stage.enter(), stage.enter()
    stage.session(pinged).client = "board"
    asked: list[int] = []
    stage.session(pinged).ping = lambda tag, now: asked.append(tag) or []  # type: ignore[method-assign]
    crowd = [stage.enter() for _ in range(25)]
    answers: list[str] = []

    def take(seconds: float | None, why: str) -> Sequence[Command]:
        answers.append(why)
        return ()

    stage.do(asker, Ping("board", take), Ping("nobody", take), Ping("board", take))
    for _ in range(2):
        assert (asked, answers) == ([], [])
        assert stage.broker.next_deadline() is not None
        for connection in (crowd.pop(), crowd.pop(0)):  # who leaves meanwhile is in nobody's way
            stage.close(connection)
        stage.broker.tick(stage.now)
    assert len(asked) == 1
    stage.advance(1)
    assert (len(asked), answers) == (2, ["is not connected"])
    stage.do(asker, Ping("nobody", take))
    stage.close(asker)
    stage.advance(1)
    assert stage.broker.next_deadline() is None
    assert answers == ["is not connected"]


def test_there_is_an_end_to_how_many_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "_LOOKS_AT_ONCE", 2)
    monkeypatch.setattr(broker_module, "_MOST_PINGS", 3)
    stage = Stage()
    asker, *_ = [stage.enter() for _ in range(9)]
    answers: list[tuple[int, str]] = []
    pings = [
        Ping("nobody", lambda seconds, why, number=number: answers.append((number, why)) or ())  # type: ignore[misc]
        for number in range(5)
    ]
    stage.do(asker, *pings)
    assert answers == [(0, "has not been found yet"), (1, "has not been found yet")]
    stage.advance(1)
    assert answers[2:] == [(number, "is not connected") for number in (2, 3, 4)]


def test_wills_are_looked_for_among_many_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "_LOOKS_AT_ONCE", 10)
    stage = Stage()
    looked_at: list[ConnectionId] = []
    for number in range(35):
        each = stage.enter()
        wills = [Publish(b"gone/%d" % each, b"x")] if number in (3, 4, 33) else []
        stage.session(each).wills = (  # type: ignore[method-assign]
            lambda each=each, wills=wills: looked_at.append(each) or wills  # type: ignore[misc]
        )
    found: list[ConnectionId] = []
    pages: list[int] = []
    after: ConnectionId | None = 0
    while after is not None:
        page, after = stage.broker.wills(after, 1)
        found += [each.connection for each in page]
        pages.append(len(looked_at))
        looked_at.clear()
    assert found == [4, 5, 34]
    assert pages == [4, 1, 10, 10, 9, 1]


def test_clients_are_given_in_order_whoever_leaves() -> None:
    stage = Stage()
    crowd = [stage.enter() for _ in range(40)]
    for connection in crowd[5:20]:
        stage.close(connection)
    left = crowd[:5] + crowd[20:]
    assert [each.connection for each in stage.broker.clients(0, 100)] == left
    assert [each.connection for each in stage.broker.clients(crowd[3], 3)] == [
        crowd[4],
        *crowd[20:22],
    ]
    assert stage.broker.clients_by_protocol() == {"translating": 25}
    assert stage.broker.client_count == 25


def test_who_asked_for_a_ping_and_left_is_forgotten() -> None:
    stage = Stage()
    asker, pinged = stage.enter(), stage.enter()
    tags: list[int] = []
    stage.session(pinged).ping = lambda tag, now: tags.append(tag) or []  # type: ignore[method-assign]
    stage.do(asker, Ping(pinged, lambda seconds, why: [Publish(b"late", b"x")]))
    stage.close(asker)
    assert not stage.do(pinged, Ponged(tags[0])).records


def test_a_publication_may_be_answered() -> None:
    """Before anybody is sent it; with the limit or the rule that refused it."""
    stage = Stage(bus={"max_retained": 1})
    one, other = stage.enter(), stage.enter()
    stage.do(other, Subscribe(b"a", 1))
    said: list[str] = []

    def answer(limit: str) -> Sequence[Command]:
        said.append(limit)
        assert stage.session(other).given == []
        return [Send(limit.encode() or b"ok")]

    stage.do(one, Publish(b"a", b"x", answer=answer))
    assert (said, stage.got(one)) == ([""], b"ok")
    assert len(stage.given(other)) == 1
    for topic, properties, rule in (
        (b"$/a", {}, "R30"),
        (b"/a", {}, "bus.topic"),
        (b"a", {"": b""}, "bus.properties"),
    ):
        stage.do(one, Publish(topic, b"x", properties=properties, answer=answer))
        assert said.pop() == rule
        assert stage.discarded[rule] == 1
    stage.do(one, Publish(b"a", b"", retain=True, answer=answer))
    assert said.pop() == ""


def test_what_was_retained_says_so_and_since_when() -> None:
    times = iter(range(1_000_000, 10_000_000_000, 1_000_000))
    stage = Stage(wall_ns=lambda: next(times))
    one, other = stage.enter(), stage.enter()
    stage.broker.restore([(b"old", b"\x04\x03\0\0\0\1oldx", b"")])
    stage.do(one, Publish(b"new", b"x", retain=True))
    stage.do(other, Subscribe(b"*", 1))
    stage.do(one, Publish(b"new", b"y", retain=True))
    given = [each for each in stage.given(other) if isinstance(each, Delivery)]
    found = {next(each.each())[1:]: (each.kept, each.kept_ms > 0) for each in given}
    assert found == {
        (b"old", b"x"): (True, False),
        (b"new", b"x"): (True, True),
        (b"new", b"y"): (False, False),
    }


def test_a_broker_can_be_looked_at() -> None:
    stage = Stage()
    view: BrokerView = stage.broker
    one, other = stage.enter(), stage.enter(verbatim=True)
    stage.session(one).client = "me"
    for number in range(25):
        stage.do(one, Subscribe(b"t/%02d" % number, number))
    stage.do(one, Subscribe(b"p/", 99, prefix=True), Publish(b"t/01", b"x"))
    mine, others = view.clients(0, 10)
    assert (mine.connection, mine.protocol, mine.client) == (one, "translating", "me")
    assert (mine.subscriptions, len(mine.patterns), mine.published) == (26, 20, 1)
    assert (others.connection, others.published) == (other, 0)
    assert [each.connection for each in view.clients(one, 10)] == [other]
    assert len(view.clients(0, 1)) == 1
    will = Publish(b"gone", b"x")
    stage.session(other).wills = lambda: [will, will]  # type: ignore[method-assign]
    found, after = view.wills(0, 10)
    assert [(each.connection, each.topic) for each in found] == [(other, b"gone")] * 2
    assert after is None
    assert view.wills(other, 10) == ([], None)


def test_a_session_that_cannot_say_its_wills_is_ended_alone() -> None:
    stage = Stage()
    stage.failures_expected = True
    one, other = stage.enter(), stage.enter()
    session = stage.session(one)

    def fail() -> Sequence[Publish]:
        raise RuntimeError("a mistake in a protocol")

    session.wills = fail  # type: ignore[method-assign]
    assert stage.broker.wills(0, 10) == ([], None)
    stage.done()
    assert [close.connection for close in stage.closes] == [one]
    assert [each.connection for each in stage.broker.clients(0, 10)] == [one, other]


def test_records_are_made_from_the_first_client_on_that_may_look_back() -> None:
    """Without a journal; before that the hot path pays nothing."""
    for remembers in (False, True):
        stage = Stage(journalled=False, remembers=remembers)
        one = stage.enter()
        assert not stage.do(one, Publish(b"a", b"1")).records
    desk = Desk(journalled=False, remembers=True)
    board = desk.open()
    assert not desk.send(board, pack(0, b"a", b"1")).records
    # Whoever asks for a WebSocket and says no more is none.
    stranger = UmqPeer(desk)
    stranger.heard()
    assert not desk.send(board, pack(0, b"a", b"1")).records
    stranger.say("H1:")
    assert len(desk.send(board, pack(0, b"a", b"1")).records) == 1


def test_who_is_not_let_in_has_nothing_remembered() -> None:
    users = Users.read({"users": {"alice": {"token": token_hash("alices")}}})
    rules = Rules.read({"roles": {"users": {"connect": ["umq"]}, "anyone": {"connect": ["fmqp"]}}})
    desk = Desk(journalled=False, remembers=True, access=Access(users, rules))
    for secret, recording in (("wrong", False), ("alices", True)):
        client = UmqPeer(desk, peer=Peer("192.0.2.7", loopback=False))
        client.heard()
        client.say(f'H1:{{"token": "{secret}"}}')
        assert desk.broker._recording == recording
