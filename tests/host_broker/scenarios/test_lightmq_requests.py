"""Requests with a tag: an FMQP program asks a board, the response finds its way back."""

import pytest

from host_broker.protocols.lightmq.codec import MAX_SEND
from host_broker.protocols.lightmq.events import Send
from tests.host_broker.desk import Desk, Message
from tests.host_broker.lightmq_peer import Peer, board


def asker(desk: Desk, *tags: str, of: str = "kitchen") -> int:
    client = desk.open()
    for tag in tags:
        desk.sub(client, f"lightmq/{of}/reply/{tag}")
        desk.sub(client, f"lightmq/{of}/done/{tag}")
    return client


def ask(desk: Desk, client: int, tag: str, body: bytes, of: str = "kitchen") -> None:
    desk.pub(client, f"lightmq/{of}/request/{tag}", body)


def reply(tag: str, body: bytes, how: bytes = b"answered") -> list[Message]:
    done = (0, f"lightmq/kitchen/done/{tag}", how)
    return [(0, f"lightmq/kitchen/reply/{tag}", body), done] if body else [done]


def respond(peer: Peer, send: Send, data: bytes) -> None:
    assert peer.say(peer.codec.sendresp(send.id, data)) == []


def test_a_request_is_answered() -> None:
    """R14, R17, R18, A9: by the response to the SEND that carried it."""
    desk = Desk()
    kitchen, client = board(desk, "kitchen"), asker(desk, "t1")
    ask(desk, client, "t1", b"how warm?")
    (send,) = kitchen.sends()
    assert (send.flags, send.data) == (0, b"how warm?")
    assert desk.messages(client) == []
    respond(kitchen, send, b"21.5")
    assert desk.messages(client) == reply("t1", b"21.5")


def test_two_programs_ask_at_once_and_each_gets_its_own_answer() -> None:
    """R18: the board answers in the other order; a plain ``down`` in between confuses nobody."""
    desk = Desk()
    kitchen, one, two = board(desk, "kitchen"), asker(desk, "1"), asker(desk, "2")
    other = desk.open()
    desk.sub(other, "lightmq/kitchen/reply")
    ask(desk, one, "1", b"q1")
    desk.pub(other, "lightmq/kitchen/down", b"plain")
    ask(desk, two, "2", b"q2")
    first, plain, second = kitchen.sends()
    assert len({first.id, plain.id, second.id}) == 3
    respond(kitchen, second, b"a2")
    respond(kitchen, plain, b"noted")
    respond(kitchen, first, b"a1")
    assert desk.messages(one) == reply("1", b"a1")
    assert desk.messages(two) == reply("2", b"a2")
    assert desk.messages(other) == [(0, "lightmq/kitchen/reply", b"noted")]


def test_an_empty_answer_is_done_all_the_same() -> None:
    """FMQP R18 delivers nothing that is empty, so ``done`` says it."""
    desk = Desk()
    kitchen, client = board(desk, "kitchen"), asker(desk, "t")
    ask(desk, client, "t", b"do it")
    respond(kitchen, kitchen.sends()[0], b"")
    assert desk.messages(client) == reply("t", b"")


def test_whoever_does_not_answer_in_time_is_late() -> None:
    """Settings.lightmq.request_timeout_s, to the moment; each request has its own."""
    desk = Desk(lightmq={"request_timeout_s": 5, "ping_interval_s": 0})
    kitchen, client = board(desk, "kitchen"), asker(desk, "1", "2")
    ask(desk, client, "1", b"q")
    desk.advance(2)
    ask(desk, client, "2", b"q")
    first, second = kitchen.sends()
    desk.advance(2.9)
    assert desk.messages(client) == []
    desk.advance(0.2)
    assert desk.messages(client) == reply("1", b"", b"unanswered")
    respond(kitchen, first, b"late")
    respond(kitchen, second, b"in time")
    assert desk.messages(client) == reply("2", b"in time")
    assert desk.discarded["R17"] == 1
    assert desk.broker.next_deadline() is None or desk.broker.next_deadline() > desk.now
    desk.advance(100)
    assert desk.messages(client) == []
    assert not kitchen.closed


def test_requests_and_pings_keep_their_own_time() -> None:
    """A17: a request that waits moves neither PING nor the PONG that is missing."""
    desk = Desk(lightmq={"request_timeout_s": 3, "ping_interval_s": 7, "ping_timeout_s": 2})
    kitchen, client = board(desk, "kitchen"), asker(desk, "t")
    desk.advance(6)
    ask(desk, client, "t", b"q")
    assert len(kitchen.sends()) == 1
    desk.advance(1.1)
    assert len(kitchen.heard()) == 1  # PING, 7 s after its last word
    desk.advance(1.8)
    assert desk.messages(client) == []
    desk.advance(0.2)
    assert desk.messages(client) == reply("t", b"", b"unanswered")
    assert "no PONG" in kitchen.why_closed


@pytest.mark.parametrize("ending", ["closed", "violation", "takeover"])
def test_whoever_goes_is_gone(ending: str) -> None:
    """Nobody waits for an answer that cannot come."""
    desk = Desk(lightmq={"duplicate_client": "takeover"})
    kitchen, client = board(desk, "kitchen"), asker(desk, "t")
    ask(desk, client, "t", b"q")
    if ending == "violation":
        kitchen.say(b"\xff\0\0")
    elif ending == "takeover":
        board(desk, "kitchen")
    desk.close(kitchen.connection)
    assert desk.messages(client) == reply("t", b"", b"gone")


def test_more_requests_than_can_wait() -> None:
    """Settings.lightmq.max_pending: the oldest has lost; every one was sent."""
    desk = Desk(lightmq={"max_pending": 2})
    kitchen, client = board(desk, "kitchen"), asker(desk, "1", "2", "3")
    for tag in ("1", "2", "3"):
        ask(desk, client, tag, b"q")
    assert desk.messages(client) == reply("1", b"", b"unanswered")
    for send in kitchen.sends():
        respond(kitchen, send, b"a")
    assert desk.messages(client) == reply("2", b"a") + reply("3", b"a")


def test_one_request_to_all_boards() -> None:
    """FMQP R11: a wildcard in the topic; each board answers under its own name."""
    desk = Desk()
    names = ["kitchen", "hall", "long-" + "x" * 250]
    boards = [board(desk, name) for name in names]
    client = desk.open()
    desk.sub(client, "lightmq/*/reply/all")
    ask(desk, client, "all", b"who?", of="*")
    for name, peer in zip(names, boards, strict=True):
        (send,) = peer.sends()
        respond(peer, send, name[:4].encode())
    answers = desk.messages(client)
    assert [body for *_, body in answers] == [b"kitc", b"hall", b"long"]
    assert len({topic for _, topic, _ in answers}) == 3


def test_a_reply_that_has_no_topic_is_not_asked_for() -> None:
    """A tag of a wildcard request can be longer than any board's own topics allow."""
    desk = Desk()
    kitchen, client = board(desk, "k" * 200), desk.open()
    ask(desk, client, "t" * 200, b"q", of="*")
    assert kitchen.sends() == []
    assert desk.discarded["R17"] == 1


def test_a_request_too_long_for_a_send() -> None:
    """R16."""
    desk = Desk()
    kitchen, client = board(desk, "kitchen"), asker(desk, "t")
    ask(desk, client, "t", bytes(MAX_SEND + 1))
    assert kitchen.sends() == []
    assert desk.discarded["R16"] == 1
    assert desk.messages(client) == reply("t", b"", b"too long")  # nobody waits for it in vain
    ask(desk, client, "t", bytes(MAX_SEND))
    assert len(kitchen.sends()) == 1


def test_programs_see_who_can_be_asked() -> None:
    """FMQP R45: a connected board is interest in its requests."""
    desk = Desk()
    client = desk.open()
    desk.sub(client, "lightmq/*/request/*", feedback=True)
    kitchen = board(desk, "kitchen")
    topic = "lightmq/kitchen/request/*"
    assert desk.messages(client) == [(0x24, topic, (1).to_bytes(8, "big"))]
    desk.close(kitchen.connection)
    assert desk.messages(client) == [(0x24, topic, b"")]


def test_what_the_journal_gets_of_a_request() -> None:
    """docs/journal.md: the request is the asker's, the reply the board's, ``done`` the broker's."""
    desk = Desk()
    kitchen, client = board(desk, "kitchen"), asker(desk, "t")
    desk.journal()
    ask(desk, client, "t", b"q")
    respond(kitchen, kitchen.sends()[0], b"a")
    found = desk.journal()
    assert (client, 1, "", [(0, "lightmq/kitchen/request/t", b"q")]) in found
    answer = [(0, "lightmq/kitchen/reply/t", b"a")]
    assert (kitchen.connection, 2, "kitchen", answer) in found
    assert (0, 0, "", [(0, "lightmq/kitchen/done/t", b"answered")]) in found
    assert len(found) == 3


def test_a_stop_tells_those_who_wait() -> None:
    """FMQP R36: before the connections are closed."""
    desk = Desk()
    board(desk, "kitchen")
    client = asker(desk, "t")
    ask(desk, client, "t", b"q")
    desk.done(desk.broker.stop(desk.now))
    assert desk.messages(client) == reply("t", b"", b"gone")
