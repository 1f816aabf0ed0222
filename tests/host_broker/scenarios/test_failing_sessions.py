"""A session that raises an exception is disconnected; the others of the same turn are served."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from host_broker.bus.commands import (
    Command,
    Consume,
    Disconnect,
    Enqueue,
    OpenQueue,
    Publish,
    Send,
    Subscribe,
)
from host_broker.bus.publication import Properties
from tests.host_broker.scripted import Stage, run


def _stage() -> Stage:
    stage = Stage()
    stage.failures_expected = True
    return stage


@pytest.mark.parametrize("order", ["failing first", "failing last"])
def test_a_receiver_that_fails_is_no_fault_of_the_publisher(order: str) -> None:
    stage = _stage()
    one, two, publisher = stage.enter(), stage.enter(), stage.enter()
    failing, fine = (one, two) if order == "failing first" else (two, one)
    for client in (one, two):
        stage.do(client, Subscribe(b"a"))
    stage.session(failing).fails = True
    stage.do(publisher, run((b"a", b"1")), run((b"a", b"2")))
    assert len(stage.given(fine)) == 2
    assert [close.connection for close in stage.closes] == [failing]
    assert {failure.connection for failure in stage.failures} == {failing}
    assert "a mistake in a protocol" in stage.closes[0].reason
    stage.do(publisher, run((b"a", b"3")))
    stage.close(failing)
    assert len(stage.given(fine)) == 1
    assert sum(record.count for record in stage.records) == 3


def test_a_consumer_that_fails_loses_nothing_of_its_queue() -> None:
    stage = _stage()
    failing, fine, publisher = stage.enter(), stage.enter(), stage.enter()
    stage.session(failing).fails = True
    stage.do(failing, Consume(b"q", 9))
    stage.do(fine, Consume(b"q", 9))
    stage.do(publisher, *(Enqueue(b"q", b"%d" % number) for number in range(4)))
    assert sorted(stage.queued(fine)) == [b"0", b"1", b"2", b"3"]


def test_a_clock_that_fails_stops_nobody_elses() -> None:
    stage = _stage()
    clients = [stage.enter() for _ in range(5)]
    for client in clients:
        session = stage.session(client)
        stage.do(client, Subscribe(b"a", id=client))
        session.deadline = stage.now + 1
        session.due = [Publish(b"due", b"%d" % client)]
        stage.broker._deadlines.renew(client, session.deadline)
    stage.session(clients[2]).fails = True
    watching = stage.enter()
    stage.do(watching, Subscribe(b"due"))
    stage.advance(5)
    assert len(stage.given(watching)) == 4
    assert [close.connection for close in stage.closes] == [clients[2]]


def test_an_end_that_fails_is_an_end() -> None:
    stage = _stage()
    failing, other = stage.enter(), stage.enter()
    stage.do(failing, Subscribe(b"a"))
    stage.session(failing).fails = True
    before = stage.broker.client_count
    stage.close(failing)
    assert stage.broker.client_count == before - 1
    assert not any(stage.broker.wanted([b"a"], 100))
    stage.do(other, run((b"a", b"x")))


def test_a_read_that_fails_is_that_connections() -> None:
    stage = _stage()
    failing, other = stage.enter(), stage.enter()
    stage.do(other, Subscribe(b"a"))
    stage.session(failing).fails = True
    stage.do(failing, run((b"a", b"x")))
    assert [close.connection for close in stage.closes] == [failing]
    stage.do(other, run((b"a", b"y")))
    assert len(stage.given(other)) == 1


def test_a_filter_that_fails_wants_nothing_and_harms_nobody() -> None:
    """Of a session that translates, of a queue, and of what is retained."""
    stage = _stage()

    def fails(topic: bytes, properties: Properties, body: bytes) -> bool:
        raise RuntimeError("a mistake in a filter")

    failing, fine, publisher = stage.enter(), stage.enter(), stage.enter()
    stage.do(publisher, Publish(b"a", b"kept", retain=True))
    stage.do(failing, Subscribe(b"a", 1, filter=fails), Subscribe(b"a", 2, retained=False))
    stage.do(failing, Subscribe(b"a", filter=fails, queue=b"q"), Consume(b"q", 9))
    stage.do(fine, Subscribe(b"a", retained=False))
    stage.do(publisher, run((b"a", b"1")))
    (given,) = stage.given(failing)
    assert given.subscriptions == (2,)
    assert len(stage.given(fine)) == 1
    assert stage.closes == []
    assert {failure.part for failure in stage.failures} == {"filter"}
    assert [failure.connection for failure in stage.failures] == [failing, 0, failing]

    stage.do(publisher, run(*([(b"a", b"x")] * 1000)))
    assert len(stage.failures) < 200


def _stops_halfway(*_: object) -> Iterator[Command]:
    yield Send(b"x")
    raise RuntimeError("a mistake in a protocol")


_NO_COMMANDS = {
    "no command": lambda *_: [object()],
    "text for bytes": lambda *_: [Publish("b", b"x")],  # type: ignore[arg-type]
    "a generator": _stops_halfway,
    "nothing": lambda *_: None,
}


@pytest.mark.parametrize("what", _NO_COMMANDS)
@pytest.mark.parametrize("how", ["deliver", "received", "tick", "closed", "answer"])
def test_what_is_no_command_is_no_fault_of_others(what: str, how: str) -> None:
    """A session may return anything, even what fails only when it is looked at."""
    stage = _stage()
    says: Any = _NO_COMMANDS[what]
    failing, fine, publisher = stage.enter(), stage.enter(), stage.enter()
    session = stage.session(failing)
    stage.do(failing, Subscribe(b"a"))
    stage.do(fine, Subscribe(b"a"))
    match how:
        case "deliver":
            session.reply = says
        case "received":
            session.lines.append(says())
            stage.send(failing, b".")
        case "tick":
            session.due = says()
            stage.broker._deadlines.renew(failing, stage.now + 1)
            stage.advance(2)
        case "closed":
            session.last = says()
            stage.close(failing)
        case "answer":
            stage.do(failing, Subscribe(b"c", answer=says))
    stage.do(publisher, run((b"a", b"1")))
    assert len(stage.given(fine)) == 1
    assert {failure.connection for failure in stage.failures} == {failing}
    assert {close.connection for close in stage.closes} <= {failing}
    assert bool(stage.closes) == (how != "closed")
    stage.close(failing)
    stage.do(publisher, run((b"a", b"2")))
    assert len(stage.given(fine)) == 1


@pytest.mark.parametrize("what", ["no command", "a generator", "nothing"])
def test_what_fails_while_it_waits_is_that_connections(what: str) -> None:
    """A client that is yet to be told what is retained is listened to, but nothing is done."""
    stage = _stage()
    failing, fine = stage.enter(), stage.enter()
    for number in range(8):
        stage.do(fine, Publish(b"kept/%d" % number, b"x" * 100_000, retain=True))
    stage.do(fine, Subscribe(b"a"))
    stage.slow.add(failing)
    stage.do(failing, Subscribe(b"kept/*"))
    assert stage.broker.is_suspended(failing)
    says: Any = _NO_COMMANDS[what]
    stage.session(failing).lines.append(says())
    stage.send(failing, b".")
    stage.slow.discard(failing)
    while stage.broker.is_suspended(failing):
        stage.broker.proceed(failing, stage.now)
        stage.done()
    stage.do(fine, run((b"a", b"1")))
    assert len(stage.given(fine)) == 1
    assert {failure.connection for failure in stage.failures} == {failing}
    assert [close.connection for close in stage.closes] == [failing]


@pytest.mark.parametrize("what", ["it raises", *_NO_COMMANDS])
def test_a_protocol_that_fails_to_take_notice_harms_nobody(what: str) -> None:
    """Of clients that come and go, and of subscriptions that begin and end."""
    stage = _stage()

    def raises(*_: object) -> Sequence[Command]:
        raise RuntimeError("a mistake in a protocol")

    says: Any = _NO_COMMANDS.get(what, raises)
    stage.servers[0].heard = says
    heard: list[object] = []

    def hear(news: object) -> Sequence[Command]:
        heard.append(news)
        return ()

    stage.servers[1].heard = hear
    one, two = stage.enter(), stage.enter()
    stage.do(one, Subscribe(b"a"))
    stage.do(two, run((b"a", b"1")))
    assert len(stage.given(one)) == 1
    stage.close(one)
    stage.broker.stop(stage.now)
    stage.done()
    assert stage.closes == []
    assert [news for news in heard if type(news) is int] == [1, 2, 1]
    assert len(heard) == 5  # and that an interest began and ended
    assert {(failure.part, failure.connection) for failure in stage.failures} == {("server", 0)}
    assert len(stage.failures) == 5


def test_what_a_consumer_fails_to_say_stays_in_its_queue() -> None:
    stage = _stage()
    failing, publisher = stage.enter(), stage.enter()
    says: Any = _NO_COMMANDS["no command"]
    stage.session(failing).reply = says
    stage.do(failing, Consume(b"q", 9))
    stage.do(publisher, Enqueue(b"q", b"1"), Enqueue(b"q", b"2"))
    assert [close.connection for close in stage.closes] == [failing]
    assert len(stage.broker.queues[b"q"]) == 2


def test_a_session_that_fails_to_speak_first_is_disconnected() -> None:
    stage = _stage()

    def fail(now: float) -> Sequence[Command]:
        raise RuntimeError("a mistake in a protocol")

    other = stage.enter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(stage.session(other)), "opened", lambda session, now: fail(now))
        failing = stage.enter()
    assert [close.connection for close in stage.closes] == [failing]
    stage.do(other, Send(b"fine"))
    assert stage.sent[other] == b"fine"


class _Undecided:
    """What a filter returns that has no truth, as an array of several numbers."""

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


def test_a_filter_whose_answer_is_neither_true_nor_false_harms_nobody() -> None:
    stage = _stage()
    undecided: Any = lambda *_: _Undecided()  # noqa: E731
    failing, fine, publisher = stage.enter(), stage.enter(), stage.enter()
    stage.do(failing, Subscribe(b"a", 1, filter=undecided))
    stage.do(failing, Subscribe(b"a", filter=undecided, queue=b"q"), Consume(b"q", 9))
    stage.do(fine, Subscribe(b"a"))
    stage.do(publisher, run((b"a", b"1")))
    assert stage.given(failing) == []
    assert len(stage.given(fine)) == 1
    assert stage.closes == []
    assert [failure.part for failure in stage.failures] == ["filter"] * 2


@pytest.mark.parametrize("how", ["after its end", "as its last words"])
def test_who_has_ended_subscribes_to_nothing_and_takes_nothing(how: str) -> None:
    """What waits in the queue is for others; nobody looks for a consumer that is not there."""
    stage = Stage()
    gone, fine = stage.enter(), stage.enter()
    stage.do(fine, OpenQueue(b"q"), Enqueue(b"q", b"1"))
    wants = Subscribe(b"a"), Consume(b"q", 9)
    if how == "after its end":
        stage.do(gone, Disconnect("it has had enough"), *wants)
    else:
        stage.session(gone).last = wants
    stage.close(gone)
    assert not any(stage.broker.wanted([b"a"], 100))
    assert not stage.broker.queues[b"q"].consumers
    stage.do(fine, Consume(b"q", 9))
    assert stage.queued(fine) == [b"1"]


@pytest.mark.parametrize("data", [None, [b"x"], "text"])
def test_what_is_no_bytes_is_sent_to_nobody(data: Any) -> None:
    """Or what others are sent in the same turn would go with it."""
    stage = _stage()
    failing, fine = stage.enter(), stage.enter()
    stage.do(failing, Send(data))
    assert [close.connection for close in stage.closes] == [failing]
    stage.do(fine, Send(bytearray(b"f")), Send(memoryview(b"ine")))
    assert stage.sent[fine] == b"fine"


@pytest.mark.parametrize("name", ["x" * 65_536, "\ud800", 5])
def test_a_name_that_the_journal_cannot_keep_ends_that_client(name: Any) -> None:
    """It is said before anybody is sent what the client publishes."""
    stage = _stage()
    failing, fine, receiver = stage.enter(), stage.enter(), stage.enter()
    stage.do(receiver, Subscribe(b"a"))
    stage.session(fine).client = "x" * 65_535
    stage.session(failing).client = name
    stage.do(failing, run((b"a", b"1")))
    assert [close.connection for close in stage.closes] == [failing]
    assert [failure.connection for failure in stage.failures] == [failing]
    stage.do(fine, run((b"a", b"2")))
    assert [[body for _, _, body in each.each()] for each in stage.given(receiver)] == [[b"2"]]
    assert [record.client for record in stage.records] == ["x" * 65_535]


@pytest.mark.parametrize("limits", [{"max_messages": 1.5}, {"max_bytes": "9"}])
def test_limits_of_a_queue_that_are_no_whole_numbers_open_none(limits: Any) -> None:
    """What is on file of a queue is read when the broker starts."""
    stage = _stage()
    failing = stage.enter()
    stage.do(failing, OpenQueue(b"q", **limits))
    assert [close.connection for close in stage.closes] == [failing]
    assert b"q" not in stage.broker.queues


@pytest.mark.parametrize("how", ["given", "tick"])
def test_a_deadline_that_is_no_time_is_that_connections(how: str) -> None:
    stage = _stage()
    failing, fine, publisher = stage.enter(), stage.enter(), stage.enter()
    for client in (failing, fine):
        stage.do(client, Subscribe(b"a"))
    session = stage.session(failing)
    soon: Any = "soon"

    def say(*_: object) -> Sequence[Command]:
        session.deadline = soon
        return ()

    if how == "given":
        session.reply = say
        stage.do(publisher, run((b"a", b"1")))
    else:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(session), "tick", lambda each, now: each.reply(now))
            for client in (failing, fine):
                stage.broker._deadlines.renew(client, stage.now + 1)
            session.reply = say
            stage.advance(2)
        session.reply = lambda given: ()
        stage.do(publisher, run((b"a", b"1")))
    assert len(stage.given(fine)) == 1
    assert {close.connection for close in stage.closes} == {failing}


def test_a_deadline_that_is_no_number_is_nobody_elses() -> None:
    stage = Stage()
    strange, fine, watching = stage.enter(), stage.enter(), stage.enter()
    stage.do(watching, Subscribe(b"due"))
    stage.broker._deadlines.renew(strange, stage.now + 1)
    stage.broker._deadlines.renew(strange, float("nan"))
    stage.advance(2)
    stage.session(fine).due = [Publish(b"due", b"x")]
    stage.broker._deadlines.renew(fine, stage.now + 1)
    stage.advance(2)
    assert len(stage.given(watching)) == 1
