"""Three kinds of clients on one bus: FMQP, LightMQ, and FMQP inside LightMQ, in every direction."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from tests.host_broker.desk import Desk, Message, packets
from tests.host_broker.lightmq_peer import Peer, board

_KINDS = ["fmqp", "lightmq+fmqp"]


@dataclass
class Program:
    """A client that speaks FMQP, plainly or inside LightMQ."""

    desk: Desk
    connection: int
    peer: Peer | None

    def say(self, packet: bytes) -> None:
        if self.peer is None:
            self.desk.send(self.connection, packet)
        else:
            self.desk.send(self.connection, self.peer.codec.send(1, packet))

    def pub(self, topic: str, body: bytes, **flags: bool) -> None:
        self.say(encode_publication(topic, body, **flags))

    def sub(self, topic: str, **flags: bool) -> None:
        self.say(encode_subscription(topic, **flags))

    def messages(self) -> list[Message]:
        if self.peer is None:
            return self.desk.messages(self.connection)
        return packets(b"".join(getattr(e, "data", b"") for e in self.peer.heard()))

    def close(self) -> None:
        self.desk.close(self.connection)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def program(desk: Desk) -> Callable[[str], Program]:
    """Make a program of a kind."""
    numbers = itertools.count()

    def make(kind: str) -> Program:
        if kind == "fmqp":
            return Program(desk, desk.open(), None)
        peer = board(desk, f"program-{next(numbers)}", listener=kind)
        return Program(desk, peer.connection, peer)

    return make


_Make = Callable[[str], Program]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_program_and_a_board_both_ways(desk: Desk, program: _Make, kind: str) -> None:
    """R14: publisher to board, board to subscriber, and the board's response."""
    ours, kitchen = program(kind), board(desk, "kitchen")
    ours.sub("lightmq/kitchen/up")
    ours.sub("lightmq/kitchen/reply")
    ours.pub("lightmq/kitchen/down", b"\0down\xff")
    (send,) = kitchen.sends()
    assert send.data == b"\0down\xff"
    kitchen.say(kitchen.codec.sendresp(send.id, b"done"))
    kitchen.say(kitchen.codec.send(9, b"\xffup\0"))
    assert ours.messages() == [
        (0, "lightmq/kitchen/reply", b"done"),
        (0, "lightmq/kitchen/up", b"\xffup\0"),
    ]


@pytest.mark.parametrize("kinds", list(itertools.product(_KINDS, repeat=2)), ids=" to ".join)
def test_programs_of_both_kinds(program: _Make, kinds: tuple[str, str]) -> None:
    """R18 to R23, R14 to R17: live, kept, by wildcards, and no more after unsubscribing."""
    one, two = map(program, kinds)
    one.pub("home/hall", b"kept", cache=True)
    two.sub("home/*")
    one.pub("home/kitchen", b"live")
    one.pub("*/garden", b"anywhere")
    one.pub("home/hall", b"", cache=True)
    two.sub("home/*", unsubscribe=True)
    one.pub("home/kitchen", b"too late")
    late = program(kinds[1])
    late.sub("home/*")
    assert two.messages() == [
        (4, "home/hall", b"kept"),
        (0, "home/kitchen", b"live"),
        (0, "*/garden", b"anywhere"),
    ]
    assert late.messages() == []


@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_kept_reaches_a_board_that_comes_later(
    desk: Desk, program: _Make, kind: str
) -> None:
    """R20 to R22: also under a wildcard; each time it connects, until it is cleared."""
    ours = program(kind)
    ours.pub("lightmq/*/down", b"to all", cache=True)
    ours.pub("lightmq/kitchen/down", b"old", cache=True)
    ours.pub("lightmq/kitchen/down", b"to you", cache=True)
    for _ in range(2):
        kitchen = board(desk, "kitchen")
        assert sorted(send.data for send in kitchen.sends()) == [b"to all", b"to you"]
        hall = board(desk, "hall")
        assert [send.data for send in hall.sends()] == [b"to all"]
        desk.close(kitchen.connection)
        desk.close(hall.connection)
    ours.pub("lightmq/*/down", b"", cache=True)
    assert board(desk, "hall").sends() == []


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("receiver", [*_KINDS, "lightmq"])
def test_wills_are_seen_by_all(desk: Desk, program: _Make, kind: str, receiver: str) -> None:
    """R24 to R29: of either kind of program, by either kind and by a board."""
    mortal = program(kind)
    topic = "lightmq/kitchen/down"
    if receiver == "lightmq":
        kitchen = board(desk, "kitchen")
    else:
        heir = program(receiver)
        heir.sub(topic)
    mortal.pub(topic, b"first", will=True)
    mortal.pub(topic, b"last", will=True, cache=True)
    if receiver == "lightmq":
        assert kitchen.sends() == []
        mortal.close()
        assert [send.data for send in kitchen.sends()] == [b"first", b"last"]
    else:
        assert heir.messages() == []
        mortal.close()
        assert heir.messages() == [(8, topic, b"first"), (0x0C, topic, b"last")]


@pytest.mark.parametrize("kind", _KINDS)
def test_the_presence_of_boards_is_seen(desk: Desk, program: _Make, kind: str) -> None:
    """R21, R41: of those who are there, who come, who go and who fall silent."""
    there, gone = board(desk, "there"), board(desk, "gone")
    desk.close(gone.connection)
    watcher = program(kind)
    watcher.sub("lightmq/*/status")
    seen = {topic.split("/")[1]: body for _, topic, body in watcher.messages()}
    itself = {} if kind == "fmqp" else {"program-0": b"online"}
    assert seen == {"there": b"online", "gone": b"offline"} | itself
    board(desk, "new")
    for _ in range(3):
        desk.advance(9)
        watcher.pub("sign/of", b"life")
        there.say(there.codec.ping(1))
    desk.close(desk.closes[0].connection)
    assert watcher.messages() == [
        (4, "lightmq/new/status", b"online"),
        (4, "lightmq/new/status", b"offline"),
    ]


@pytest.mark.parametrize("kind", _KINDS)
def test_feedback_tells_of_boards_and_programs_alike(program: _Make, desk: Desk, kind: str) -> None:
    """R45: how many want a board's path: the board, and a program that listens in."""
    watcher, listener = program("fmqp"), program(kind)
    watcher.sub("lightmq/kitchen/down", feedback=True)
    kitchen = board(desk, "kitchen")
    listener.sub("lightmq/kitchen/down")
    desk.close(kitchen.connection)
    listener.close()
    counts = [int.from_bytes(body, "big") for *_, body in watcher.messages()]
    assert counts == [1, 2, 1, 0]


@pytest.mark.parametrize("kind", _KINDS)
def test_a_program_between_two_boards(desk: Desk, program: _Make, kind: str) -> None:
    """R14: a board asks, a program asks another board, and the answer goes back."""
    broker = program(kind)
    broker.sub("lightmq/hall/up/*")
    broker.sub("lightmq/kitchen/reply/*")
    hall, kitchen = board(desk, "hall"), board(desk, "kitchen")
    assert hall.say(hall.codec.send(5, b"how warm is it there?")) == []
    ((_, topic, question),) = broker.messages()
    number = topic.rpartition("/")[2]
    broker.pub(f"lightmq/kitchen/request/{number}", question)
    (send,) = kitchen.sends()
    kitchen.say(kitchen.codec.sendresp(send.id, b"21.5"))
    ((_, topic, answer),) = broker.messages()
    assert topic == f"lightmq/kitchen/reply/{number}"
    broker.pub(f"lightmq/hall/answer/{number}", answer)
    (response,) = hall.heard()
    assert (response.id, response.data) == (5, b"21.5")
