"""A connection with many subscriptions leaves step by step: the same words in the same order."""

from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from tests.host_broker.desk import Desk, Message

MANY = 1000
STEP = 256  # as departures.py has it


def _crowd(desk: Desk, name: str, count: int = MANY) -> int:
    """Open a client with many subscriptions and two wills."""
    client = desk.open()
    topics = (encode_subscription(f"{name}/{number}") for number in range(count))
    desk.send(client, b"".join(topics))
    for number in range(2):
        desk.send(client, encode_publication(f"will/{name}", b"%d" % number, will=True))
    return client


def _observer(desk: Desk) -> int:
    observer = desk.open()
    desk.sub(observer, "*/*", feedback=True)
    desk.sub(observer, "will/*")
    desk.sub(observer, "$/info/clients")
    return observer


def _said(messages: list[Message], name: str, clients: int) -> list[tuple[str, bytes]]:
    """Check that a departure was said whole and in order, as the only one; return nothing else."""
    expected = [(f"{name}/{number}", b"") for number in range(MANY)]
    expected += [(f"will/{name}", b"0"), (f"will/{name}", b"1")]
    expected += [("$/info/clients", clients.to_bytes(8, "big"))]
    said = [(topic, body) for _, topic, body in messages]
    assert said[: len(expected)] == expected
    return said[len(expected) :]


def test_first_the_interests_then_the_wills_then_the_count() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a")
    desk.messages(observer)
    desk.close(client)
    first = desk.messages(observer)
    assert [topic for _, topic, _ in first] == [f"a/{number}" for number in range(STEP)]
    assert desk.broker.next_deadline() == desk.now
    desk.advance(0.0)
    assert _said(first + desk.messages(observer), "a", 1) == []
    assert desk.broker.next_deadline() is None or desk.broker.next_deadline() > desk.now


def test_a_departure_of_exactly_full_steps_ends() -> None:
    desk = Desk()
    client = _crowd(desk, "a", STEP * 2)
    desk.close(client)
    desk.advance(0.0)
    watcher = desk.open()
    desk.sub(watcher, "$/info/clients")
    assert desk.messages(watcher)[-1][2] == (1).to_bytes(8, "big")


def test_others_are_served_meanwhile_and_not_told_of_topics_too_early() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a")
    desk.close(client)
    desk.messages(observer)
    other = desk.open()
    desk.messages(observer)
    # The last topic has not been given up yet: two want it, then one.
    last = f"a/{MANY - 1}"
    desk.sub(other, last)
    assert desk.messages(observer) == [(0x24, last, (2).to_bytes(8, "big"))]
    desk.pub(other, last, b"still served")
    assert (0, last, b"still served") in desk.messages(other)
    desk.advance(0.0)
    assert (0x24, last, (1).to_bytes(8, "big")) in desk.messages(observer)
    desk.pub(other, last, b"and now")
    assert desk.messages(other) == [(0, last, b"and now")]
    assert client not in desk.sent or b"and now" not in desk.sent[client]


def test_who_leaves_first_is_said_first_and_whole() -> None:
    desk = Desk()
    observer = _observer(desk)
    first, second, small = _crowd(desk, "a"), _crowd(desk, "b"), _crowd(desk, "c", 1)
    desk.messages(observer)
    desk.close(first)
    desk.close(second)
    desk.close(small)
    heard = desk.messages(observer)
    # A small one need not wait for the large ones.
    assert [topic for _, topic, _ in heard[STEP * 2 :]] == [
        *("c/0", "will/c", "will/c", "$/info/clients")
    ]
    heard = heard[: STEP * 2]
    desk.advance(0.0)
    heard += desk.messages(observer)
    assert _said(_said_messages(heard, "a"), "a", 1) == []
    assert _said(_said_messages(heard, "b"), "b", 1) == []


def _said_messages(heard: list[Message], name: str) -> list[Message]:
    """What of ``heard`` is of one departure; the count of clients follows its wills."""
    found = []
    for message in heard:
        topic = message[1]
        count = topic == "$/info/clients" and found and found[-1][1] == f"will/{name}"
        if count or topic.startswith((f"{name}/", f"will/{name}")):
            found.append(message)
    return found


def test_a_stop_in_the_middle_of_it_says_everything() -> None:
    desk = Desk()
    observer = _observer(desk)
    client = _crowd(desk, "a")
    desk.messages(observer)
    desk.close(client)
    desk.done(desk.broker.stop(desk.now))
    assert _said(desk.messages(observer), "a", 1) == []


def test_its_wills_are_in_the_journal_once() -> None:
    desk = Desk()
    client = _crowd(desk, "a")
    desk.journal()
    desk.close(client)
    assert desk.journal() == []
    desk.advance(0.0)
    (record,) = desk.journal()
    assert record[0] == client
    assert [(topic, body) for _, topic, body in record[3]] == [("will/a", b"0"), ("will/a", b"1")]
    desk.advance(60.0)
    assert desk.journal() == []
