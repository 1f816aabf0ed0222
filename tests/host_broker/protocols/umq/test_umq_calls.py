"""The broker's own calls, with FMQP and LightMQ clients on the same bus."""

import json
from typing import Any

import pytest
from wsproto.events import Pong

from host_broker.protocols.lightmq.events import Ping
from host_broker.questions import (
    AskHistory,
    AskJournal,
    AskStatistics,
    AskTraffic,
    History,
    NoAnswer,
    PastPublication,
    Traffic,
)
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import board as lightmq_board
from tests.host_broker.protocols.umq.peer import (
    UmqPeer,
    joined,
    spelled_id,
    umq_desk,
    updates,
)

_DAY_MS = 1_795_000_000_000


def _answered(desk: Desk, *answers: object) -> list[Any]:
    """Answer what was asked of the edge, in order; returns the questions."""
    asked, desk.questions = desk.questions, []
    for (number, _), answer in zip(asked, answers, strict=True):
        desk.broker.answered(number, answer, desk.now)
        desk.done()
    return [question for _, question in asked]


# ---- subscribe and unsubscribe ----


def test_a_subscriber_is_told_what_others_publish() -> None:
    """R25: the id is the subscriber's; FMQP publishes."""
    desk = umq_desk(wall_ns=lambda: _DAY_MS * 1_000_000)
    client, board = joined(desk), desk.open()
    assert client.result("subscribe", "home/*", "9A8Z") == {"subscribed": "home/*"}
    desk.pub(board, "home/lamp", b"on")
    desk.pub(board, "home/lamp/x", b"no")
    desk.pub(board, "home/data", b"\xff\0")
    assert client.heard() == [
        f'T9A8Z:[{{"topic":"home/lamp","at":{_DAY_MS},"text":"on"}}]',
        f'A1:T9A8Z:[{{"topic":"home/data","at":{_DAY_MS},"attachment":true}}]',
        b"\xff\0",
    ]


def test_what_is_retained_comes_first() -> None:
    desk = umq_desk(wall_ns=lambda: _DAY_MS * 1_000_000)
    board = desk.open()
    desk.pub(board, "home/lamp", b"on", cache=True)
    client = joined(desk)
    client.result("subscribe", "home/**", "A")
    expected = {"topic": "home/lamp", "at": _DAY_MS, "text": "on", "retained": True}
    assert updates(client.others) == [expected]
    desk.pub(board, "home/lamp", b"off", cache=True)
    assert updates(client.heard()) == [{"topic": "home/lamp", "at": _DAY_MS, "text": "off"}]
    client.result("subscribe", "home/**", "B", {"retained": False})
    assert updates(client.others, "B") == []


@pytest.mark.parametrize(
    ("pattern", "topics"),
    [
        ("home/lamp", ["home/lamp"]),
        ("/home/lamp/", ["home/lamp"]),
        ("home/*", ["home/lamp"]),
        ("home/**", ["home", "home/lamp", "home/lamp/x"]),
        ("**", ["home", "home/lamp", "home/lamp/x", "homes", "office/lamp/x"]),
        ("*/lamp/**", ["home/lamp", "home/lamp/x", "office/lamp/x"]),
        ("home/*/x/**", ["home/lamp/x"]),
    ],
)
def test_patterns(pattern: str, topics: list[str]) -> None:
    """Live and retained are the same topics."""
    for retained in (False, True):
        desk = umq_desk()
        client, board = joined(desk), desk.open()
        if not retained:
            client.result("subscribe", pattern, "A")
            client.heard()
        for topic in ("home", "home/lamp", "home/lamp/x", "homes", "office/lamp/x"):
            desk.pub(board, topic, b"1", cache=retained)
        if retained:
            client.result("subscribe", pattern, "A")
            heard = client.others
        else:
            heard = client.heard()
        found = [each["topic"] for each in updates(heard) if not each["topic"].startswith("$")]
        assert sorted(found) == topics


@pytest.mark.parametrize(
    "said",
    [
        [],
        ["a"],
        ["a", 1],
        [1, "A"],
        ["a", "a"],
        ["a", "A", 3],
        ["a", "A", {"every": 1}],
        ["a", "A", {"every_ms": -1}],
        ["a", "A", {"every_ms": "1"}],
        ["a", "A", {"every_ms": True}],
        ["a", "A", {"retained": 1}],
        ["a", "A", {}, 1],
        ["", "A"],
        ["a/**/b", "A"],
        ["a" * 256, "A"],
        ["\ud800", "A"],
        ["a\0", "A"],
    ],
)
def test_a_subscription_that_is_none_is_refused(said: list[Any]) -> None:
    client = joined(umq_desk())
    assert client.call("subscribe", *said).startswith("E3 ")
    assert client.result("subscribe", "a", "A") == {"subscribed": "a"}


def test_an_id_in_use_is_refused_until_its_topic_has_ended() -> None:
    """R27, R28, R29: unsubscribing is answered, and D is said."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a", "A")
    assert client.call("subscribe", "b", "0A") == "E3 0A is in use"
    assert client.result("unsubscribe", "A") == {"unsubscribed": "a"}
    assert client.others == ["DA:"]
    desk.pub(board, "a", b"1")
    assert client.heard() == []
    assert client.call("unsubscribe", "A").startswith("E3 ")
    client.result("subscribe", "b", "A")
    desk.pub(board, "b", b"1")
    assert [each["topic"] for each in updates(client.heard())] == ["b"]


def test_ids_may_be_used_again_in_the_same_read() -> None:
    """R28: D comes before the answer to the next subscription."""
    client = joined(umq_desk())
    client.result("subscribe", "a", "A")
    heard = client.say(
        'C11:["unsubscribe", "A"]', 'C12:["subscribe", "b", "A"]', "UA:", 'C13:["what"]'
    )
    assert [str(each)[:4] for each in heard] == ["R11:", "DA:", "R12:", "DA:", "E13:"]


def test_u_ends_a_topic_and_d_is_the_answer() -> None:
    """R29, R30, A18."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    client.result("subscribe", "a/**", "A")
    assert client.say("UA:") == ["DA:"]
    assert client.say("UA:", "UB:") == []
    desk.pub(board, "a/b", b"1")
    assert client.heard() == []
    assert desk.broker.clients(0, 10)[0].subscriptions == 0


def test_the_limits_of_subscriptions() -> None:
    """umq.max_subscriptions, bus.max_subscriptions: nothing of what was refused stays."""
    desk = umq_desk({"max_subscriptions": 2})
    client = joined(desk)
    client.result("subscribe", "a", "A")
    client.result("subscribe", "b", "B")
    assert client.call("subscribe", "c", "C").startswith("E8 umq.max_subscriptions")
    assert desk.discarded["umq.max_subscriptions"] == 1
    client.say("UA:")
    client.result("subscribe", "c", "C")
    few = umq_desk(bus={"max_subscriptions": 2})
    client = joined(few)
    client.result("subscribe", "a", "A")
    assert client.call("subscribe", "b/**", "B").startswith("E8 bus.max_subscriptions")
    assert few.broker.clients(0, 10)[0].subscriptions == 1
    client.result("subscribe", "c", "B")


def test_feedback_counts_a_subscriber_unless_it_is_quiet() -> None:
    """With ``**`` it never does."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    desk.sub(board, "*", feedback=True)
    desk.messages(board)
    client.result("subscribe", "a", "A", {"quiet": True})
    client.result("subscribe", "**", "B")
    assert desk.messages(board) == []
    client.result("subscribe", "a", "C")
    assert [topic for _, topic, _ in desk.messages(board)] == ["a"]


# ---- publish ----


def test_what_is_published_others_hear() -> None:
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    desk.sub(board, "home/*")
    desk.messages(board)
    assert client.result("publish", "home/lamp", "grün") == {"published": 1}
    assert client.result("publish", "/home/data/", None, attachments=[b"\0\xff"]) == {
        "published": 1
    }
    assert [(topic, body) for _, topic, body in desk.messages(board)] == [
        ("home/lamp", "grün".encode()),
        ("home/data", b"\0\xff"),
    ]
    (record, other) = desk.records
    assert {record.protocol, other.protocol} == {5}


def test_properties_and_retained_messages() -> None:
    """Properties go both ways, as text; an empty body with ``retain`` clears."""
    desk = umq_desk()
    client = joined(desk)
    client.result("publish", "a", "1", {"retain": True, "properties": {"unit": "°C"}})
    client.result("subscribe", "a", "A")
    (found,) = updates(client.others)
    assert (found["text"], found["properties"], found["retained"]) == ("1", {"unit": "°C"}, True)
    before = desk.broker.retained_count
    client.result("publish", "a", "", {"retain": True})
    assert desk.broker.retained_count == before - 1


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (["a"], 3),
        (["a", None], 3),
        (["a", 1], 3),
        (["a", "x", {"retain": 1}], 3),
        (["a", "x", {"properties": {"a": 1}}], 3),
        (["a", "x", {"properties": {"a" * 256: ""}}], 3),
        (["a", "\udc00"], 3),
        (["", "x"], 3),
        (["a/b\0", "x"], 3),
        (["a", ""], 3),
        (["a", "x" * 101], 3),
        (["$/signals/stop", "x"], 1),
        (["lightmq/kitchen/up", "x"], 1),
    ],
)
def test_what_cannot_be_published(said: list[Any], code: int) -> None:
    desk = umq_desk(bus={"max_body": 100})
    client = joined(desk)
    assert client.call("publish", *said).startswith(f"E{code} ")
    assert desk.broker.stats.publications == 0


def test_a_text_or_one_attachment() -> None:
    """R21: an attachment that its sender does not have publishes nothing."""
    client = joined(umq_desk())
    assert client.call("publish", "a", "x", attachments=[b"y"]).startswith("E3 ")
    assert client.call("publish", "a", None, attachments=[b"y", b"z"]).startswith("E3 ")
    (answer,) = client.say('A1:CZ:["publish", "a", null]', "-:upstream failed")
    assert str(answer).startswith("EZ:3 ")


def test_an_answer_waits_for_the_journal_as_any_acknowledgement() -> None:
    """It is sent because of the publisher's own read."""
    desk = umq_desk()
    client = joined(desk)
    done = desk.send(client.connection, client.bytes_of('C1:["publish","a","x"]'))
    (forward,) = done.forwards
    assert forward.senders == [client.connection]


# ---- call and ping ----


def test_a_board_is_called() -> None:
    """As by `motemq call`: a LightMQ client gets a SEND, its SENDRESP is the answer."""
    desk = umq_desk()
    client, board = joined(desk), lightmq_board(desk, "kitchen")
    assert client.say('C1:["call", "kitchen", "temperature?"]') == []
    (asked,) = board.sends()
    assert asked.data == b"temperature?"
    board.say(board.codec.sendresp(asked.id, b"21.5"))
    assert client.heard() == ['R1:{"answer":"21.5"}']
    client.say('A1:C2:["call", "kitchen", null]', b"\xff")
    (asked,) = board.sends()
    assert asked.data == b"\xff"
    board.say(board.codec.sendresp(asked.id, b"\xfe"))
    assert client.heard() == ['A1:R2:{"attachment":true}', b"\xfe"]
    assert desk.broker.clients(0, 10)[0].subscriptions == 0


def test_calls_that_come_to_nothing() -> None:
    """R19: nobody is there, it leaves, or it is silent (umq.call_timeout_s)."""
    desk = umq_desk({"call_timeout_s": 5.0, "ping_interval_s": 0.0})
    client = joined(desk)
    assert client.call("call", "kitchen", "x") == "E7 no client 'kitchen' takes calls now"
    board = lightmq_board(desk, "kitchen")
    client.say('CA:["call", "kitchen", "x"]')
    desk.close(board.connection)
    assert client.heard() == ["EA:7 'kitchen' did not answer: gone"]
    board = lightmq_board(desk, "kitchen")
    client.say('CB:["call", "kitchen", "x"]')
    desk.advance(5.1)
    assert client.heard() == ["EB:7 no answer within 5 s"]
    (asked,) = board.sends()
    board.say(board.codec.sendresp(asked.id, b"!"))
    assert client.heard() == []
    assert desk.broker.clients(0, 10)[0].subscriptions == 0
    assert client.call("call", "kitchen", "").startswith("E3 ")
    assert client.call("call", 1, "x").startswith("E3 ")


def test_who_hears_everything_hears_answers_of_calls_too() -> None:
    """The call's own subscriptions and the client's meet in one delivery."""
    desk = umq_desk()
    client, board = joined(desk), lightmq_board(desk, "kitchen")
    client.result("subscribe", "**", "A", {"retained": False})
    client.say('C1:["call", "kitchen", "x"]')
    (asked,) = board.sends()
    board.say(board.codec.sendresp(asked.id, b"!"))
    heard = client.heard()
    assert 'R1:{"answer":"!"}' in heard
    topics = [each["topic"].rsplit("/", 1)[0] for each in updates(heard)]
    assert topics == ["lightmq/kitchen/reply", "lightmq/kitchen/done"]


def test_a_board_is_pinged() -> None:
    """By its name or its connection; LightMQ answers PING."""
    desk = umq_desk()
    client, board = joined(desk), lightmq_board(desk, "kitchen")
    for whom in ("kitchen", board.connection):
        client.say(f'C1:["ping", {json.dumps(whom)}]')
        client.say(f'C2:["ping", {json.dumps(whom)}]')
        (ping,) = board.heard()
        assert isinstance(ping, Ping)
        desk.now += 0.0125
        board.say(board.codec.pong(ping.id))
        assert client.heard() == ['R1:{"ms":12.5}', 'R2:{"ms":12.5}']


def test_what_others_make_it_say_is_nobody_elses_answer() -> None:
    """So that no board waits for a slow browser that has called it, and no answer is dropped."""
    desk = umq_desk()
    client, board = joined(desk), lightmq_board(desk, "kitchen")
    client.say('C1:["ping", "kitchen"]', 'C2:["call", "kitchen", "x"]')
    ping, asked = board.heard()
    said = board.codec.pong(ping.id) + board.codec.sendresp(asked.id, b"y")
    done = desk.send(board.connection, said)
    (forward,) = [each for each in done.forwards if client.connection in each.receivers]
    assert forward.senders == [client.connection]
    assert client.heard() == ['R1:{"ms":0.0}', 'R2:{"answer":"y"}']


def test_a_client_of_umq_is_pinged() -> None:
    desk = umq_desk()
    client, other = joined(desk), joined(desk)
    other.say("S:name=desk")
    assert client.say('C1:["ping", "desk"]') == []
    other.heard()
    assert client.heard() == ['R1:{"ms":0.0}']
    # Itself, too; its pong is no sign of anything else.
    assert client.say(f'C2:["ping", {client.connection}]') == ['R2:{"ms":0.0}']


def test_pings_that_come_to_nothing() -> None:
    """Nobody is there, it cannot be asked, it leaves, it is silent."""
    desk = umq_desk({"call_timeout_s": 5.0, "ping_interval_s": 0.0})
    client, fmqp = joined(desk), desk.open()
    assert client.call("ping", "kitchen") == "E7 'kitchen' is not connected"
    assert client.call("ping", fmqp) == f"E7 connection {fmqp} cannot be asked that: it speaks FMQP"
    assert client.call("ping").startswith("E3 ")
    assert client.call("ping", True).startswith("E3 ")
    board = desk.lightmq("kitchen")
    client.say('CX:["ping", "kitchen"]')
    desk.close(board)
    assert client.heard() == ["EX:7 'kitchen' has left"]
    board = desk.lightmq("kitchen")
    client.say('CY:["ping", "kitchen"]')
    desk.advance(5.1)
    assert client.heard() == ["EY:7 no answer within 5 s"]


def test_nobody_answers_the_ping_of_another() -> None:
    """Any client of a WebSocket can send a pong that nobody has asked for."""
    desk = umq_desk()
    client, other, board = joined(desk), joined(desk), lightmq_board(desk, "kitchen")
    client.say('C1:["ping", "kitchen"]')
    (ping,) = board.heard()
    assert isinstance(ping, Ping)
    for tag in range(10):
        other.event(Pong(b"%d" % tag))
    assert client.heard() == []
    desk.now += 0.0125
    board.say(board.codec.pong(ping.id))
    assert client.heard() == ['R1:{"ms":12.5}']


def test_so_many_pings_may_be_unanswered() -> None:
    """Though who has asked waits no longer."""
    desk = umq_desk({"ping_interval_s": 0.0, "call_timeout_s": 1.0, "max_calls": 1000})
    client = joined(desk)
    lightmq_board(desk, "kitchen")
    for _ in range(3):
        client.say(*(f'C{spelled_id(number)}:["ping", "kitchen"]' for number in range(500)))
        desk.advance(1.1)
        client.heard()
    assert len(desk.broker._pings) == 1000


# ---- what is there ----


def test_clients() -> None:
    desk = umq_desk(wall_ns=lambda: _DAY_MS * 1_000_000)
    client, board = joined(desk), desk.lightmq("kitchen")
    client.result("subscribe", "home/**", "A")
    client.result("publish", "a", "x")
    client.say('CZ:["clients"]')
    traffic = {client.connection: Traffic(7, 0.25, 300, 400)}
    (question,) = _answered(desk, traffic)
    assert question == AskTraffic((client.connection, board))
    (answer,) = client.heard()
    ours, kitchen = json.loads(str(answer).partition(":")[2])["clients"]
    assert ours == {
        "id": client.connection,
        "protocol": "umq",
        "client": "",
        "principal": "anonymous",
        "address": "",
        "subscriptions": {"count": 2, "patterns": ["home", "home/**"]},
        "waiting_bytes": 7,
        "rtt_ms": 0.25,
        "since": _DAY_MS,
        "published": 1,
        "received": 300,
        "sent": 400,
    }
    assert (kitchen["client"], kitchen["protocol"]) == ("kitchen", "lightmq")
    assert (kitchen["rtt_ms"], kitchen["waiting_bytes"]) == (None, 0)


def _pages(client: UmqPeer, method: str, limit: int, **more: Any) -> list[Any]:
    """All entries, page by page."""
    found: list[Any] = []
    after: dict[str, Any] = {}
    for _ in range(50):
        client.say(f"CP:{json.dumps([method, {'limit': limit, **after, **more}])}")
        if client.desk.questions:
            _answered(client.desk, {})
            (answer,) = client.heard()
        else:
            (answer,) = client.last
        said = json.loads(str(answer).partition(":")[2])
        assert len(said[method]) <= limit
        found += said[method]
        if not said["more"]:
            assert "after" not in said
            return found
        after = {"after": said["after"]}
    raise AssertionError(found)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_long_answers_come_in_pages(limit: int) -> None:
    """umq.max_page: each entry once, in order."""
    desk = umq_desk()
    client, board = joined(desk), desk.open()
    others = [desk.open() for _ in range(5)]
    topics = sorted(f"home/{number}" for number in range(12))
    for topic in topics:
        desk.pub(board, topic, b"1", cache=True)
    for topic in ("home/live", "office"):
        desk.pub(board, topic, b"1")
    assert [each["id"] for each in _pages(client, "clients", limit)] == [
        client.connection,
        board,
        *others,
    ]
    kept = _pages(client, "retained", limit, prefix="home/")
    assert [each["topic"] for each in kept] == topics
    found = _pages(client, "topics", limit, prefix="home/")
    assert [(each["topic"], each["retained"]) for each in found] == [
        *((topic, True) for topic in topics),
        ("home/live", False),
    ]
    for wrong in (0, "1", True):
        assert client.call("retained", {"limit": wrong}).startswith("E3 ")
    assert client.call("clients", {"after": "x"}).startswith("E3 ")
    assert client.call("topics", {"prefix": "\ud800"}).startswith("E3 ")
    assert client.call("topics", {}, {}).startswith("E3 ")


def test_a_page_is_no_longer_than_it_may_be() -> None:
    """umq.max_page: whoever asks for more gets so many, and is told that there are more."""
    desk = umq_desk({"max_page": 3})
    client, board = joined(desk), desk.open()
    for number in range(5):
        desk.pub(board, f"home/{number}", b"1", cache=True)
    for page in ({}, {"limit": 500}):
        said = client.result("retained", {"prefix": "home/", **page})
        assert ([each["topic"][-1] for each in said["retained"]], said["more"]) == (
            ["0", "1", "2"],
            True,
        )
    kept = _pages(client, "retained", 500, prefix="home/")
    assert len(kept) == 5
    for call, asked in (("91", {"last": 600}), ("92", {})):
        assert client.say(f'C{call}:["history", "home/1", {json.dumps(asked)}]') == []
        _, question = desk.questions.pop()
        assert isinstance(question, AskHistory)
        assert question.last == 3
    assert client.say('C93:["history", "home/1", {"from": 1, "limit": 600}]') == []
    _, question = desk.questions.pop()
    assert isinstance(question, AskHistory)
    assert (question.last, question.limit) == (0, 3)


def test_answers_are_so_long() -> None:
    """umq.max_answer_bytes: a page ends before, and has one entry at least."""
    desk = umq_desk({"max_answer_bytes": 1024})
    client, board = joined(desk), desk.open()
    for number in range(5):
        desk.pub(board, f"a/{number}", b"x" * 400, cache=True)
    desk.pub(board, "a/9", b"\xff" * 5000, cache=True)
    said = client.result("retained", {"prefix": "a/"})
    assert [each["topic"] for each in said["retained"]] == ["a/0", "a/1"]
    assert (said["more"], said["after"]) == (True, "a/1")
    assert desk.discarded["umq.max_answer_bytes"] == 1
    said = client.result("retained", {"prefix": "a/", "after": "a/4"})
    assert (said["retained"][0]["attachment"], said["more"]) == (True, False)
    assert client.others == [b"\xff" * 5000]


def test_wills_are_seen_before_they_come_true() -> None:
    """FMQP's, and what LightMQ's presence will say."""
    desk = umq_desk()
    client, fmqp = joined(desk), desk.open()
    desk.pub(fmqp, "home/lamp", b"gone", will=True, cache=True)
    board = desk.lightmq("kitchen")
    assert client.result("wills") == {
        "wills": [
            {
                "id": fmqp,
                "client": "",
                "protocol": "fmqp",
                "topic": "home/lamp",
                "retain": True,
                "bytes": 4,
                "text": "gone",
            },
            {
                "id": board,
                "client": "kitchen",
                "protocol": "lightmq",
                "topic": "lightmq/kitchen/status",
                "retain": True,
                "bytes": 7,
                "text": "offline",
            },
        ],
        "more": False,
    }


def test_questions_to_the_edge() -> None:
    """`stats`, `journal`, `history` and `alerts` are answered by those who know."""
    desk = umq_desk()
    client = joined(desk)
    client.say('C1:["stats"]', 'C2:["journal"]', 'C3:["history", "a/*"]', 'C4:["alerts"]')
    past = [
        PastPublication(b"a/b", 5, b"x", True, {"unit": b"C", "raw": b"\xff"}),
        PastPublication(b"a/c", 6, b"\xfe"),
    ]
    history = History(past, "memory", more=True)
    asked = _answered(desk, {"publications": 3}, None, history, NoAnswer("the disk is away"))
    assert asked[:2] == [AskStatistics(), AskJournal()]
    assert asked[2] == AskHistory("a/*", 100, 0, 1 << 53, 1000)
    assert asked[3] == AskHistory("alerts/*/*", 1000, each=True)
    assert client.heard() == [
        'R1:{"stats":{"publications":3}}',
        'R2:{"journal":null}',
        'A1:R3:{"publications":[{"topic":"a/b","at":5,"text":"x","properties":{"unit":"C"}},'
        '{"topic":"a/c","at":6,"attachment":true}],"source":"memory","more":true}',
        b"\xfe",
        "E4:8 the disk is away",
    ]


@pytest.mark.parametrize(
    ("pattern", "topic", "beneath"),
    [
        *(("**", "", True), ("/a/b/**", "a/b", True), ("*/lamp/**", "*/lamp", True)),
        *(("a", "a", False), ("/a/*/", "a/*", False)),
    ],
)
def test_the_past_of_a_pattern(pattern: str, topic: str, beneath: bool) -> None:
    desk = umq_desk()
    client = joined(desk)
    assert client.say(f'C91:["history", "{pattern}"]') == []
    ((_, question),) = desk.questions
    assert question == AskHistory(topic, 100, 0, 1 << 53, 1000, beneath=beneath)
    for wrong in ("a/**/b", "", "x" * 300):
        assert client.call("history", wrong).startswith("E3 ")


def test_a_late_answer_is_none_of_a_call_that_has_its_id_now() -> None:
    """R19: the edge answers at last what has failed meanwhile."""
    desk = umq_desk({"call_timeout_s": 1.0, "ping_interval_s": 0.0})
    client = joined(desk)
    assert client.say('C1:["stats"]') == []
    ((number, _),) = desk.questions
    desk.questions.clear()
    desk.advance(1.1)
    assert client.heard() == ["E1:7 no answer within 1 s"]
    assert client.say('C1:["journal"]') == []
    desk.broker.answered(number, {"old": 1}, desk.now)
    desk.done()
    assert client.heard() == []
    _answered(desk, None)
    assert client.heard() == ['R1:{"journal":null}']


def test_an_edge_that_does_not_answer_is_waited_for_no_longer_than_a_client() -> None:
    desk = umq_desk({"call_timeout_s": 5.0, "ping_interval_s": 0.0})
    client = joined(desk)
    client.say('C1:["stats"]')
    desk.advance(5.1)
    assert client.heard() == ["E1:7 no answer within 5 s"]
    _answered(desk, {})
    assert client.heard() == []
    client.say('C2:["stats"]')
    desk.close(client.connection)
    _answered(desk, {})


@pytest.mark.parametrize(
    "options",
    [
        {"last": -1},
        {"last": 0},
        {"last": 5, "from": 1},
        {"from": 5, "to": 5},
        {"from": -1},
        {"to": 1 << 60},
        {"limit": 0},
        {"last": 1.5},
        {"what": 1},
        [],
    ],
)
def test_what_of_the_past_cannot_be_asked(options: Any) -> None:
    client = joined(umq_desk())
    assert client.call("history", "a", options).startswith("E3 ")


# ---- calls as such ----


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        ("", 3),
        ("what", 3),
        ("{}", 3),
        ("[]", 3),
        ("[1]", 3),
        ("[" * 100_000, 3),
        ("[" + "9" * 5000 + "]", 3),
        ('["what"]', 4),
        ('["__init__"]', 4),
    ],
)
def test_a_call_that_is_none_fails(payload: str, code: int) -> None:
    """R18, A13, A14."""
    (answer,) = joined(umq_desk()).say(f"C7:{payload}")
    assert str(answer).startswith(f"E7:{code} ")


def test_so_many_calls_may_be_under_way() -> None:
    """umq.max_calls, R20: and they are answered in any order."""
    desk = umq_desk({"max_calls": 2})
    client = joined(desk)
    assert client.say('C1:["stats"]', 'C2:["journal"]') == []
    (refused,) = client.say('C3:["stats"]')
    assert str(refused).startswith("E3:8 umq.max_calls")
    (one, _), (two, _) = desk.questions
    desk.broker.answered(two, None, desk.now)
    desk.broker.answered(one, {}, desk.now)
    desk.done()
    assert client.heard() == ['R2:{"journal":null}', 'R1:{"stats":{}}']


def test_an_id_in_use_ends_it() -> None:
    """A25: of a call that is not answered yet."""
    client = joined(umq_desk())
    client.say('C1:["stats"]')
    assert str(client.say('C01:["stats"]')[0]).startswith("F0:3 Protocol error")


def test_leading_zeros_make_no_other_id() -> None:
    """A3, R17."""
    assert str(joined(umq_desk()).say('C00A:["topics"]')[0]).startswith("RA:")
