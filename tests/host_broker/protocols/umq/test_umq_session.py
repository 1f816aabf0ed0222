"""A UMQ connection on the broker's side: who it is, its silence, how it ends."""

import gc
import json
from math import inf
from types import FunctionType, ModuleType
from typing import Any
from weakref import ref

import pytest
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage

from host_broker.access.access import Peer
from host_broker.protocols.umq.session import UmqSession
from host_broker.settings import HttpSettings, Settings
from tests.host_broker.protocols.umq.peer import UmqPeer, joined, umq_desk, updates

_AWAY = Peer("192.0.2.7", loopback=False)


def _welcome(heard: list[Any]) -> Any:
    (welcome,) = heard
    assert welcome.startswith("W1:"), welcome
    return json.loads(welcome[3:])


# ---- who it is ----


def test_without_users_everybody_on_this_machine_is_let_in() -> None:
    """R8, R9, R10."""
    client = UmqPeer(umq_desk())
    assert client.heard() == [("accepted", None)]
    said = _welcome(client.say("H1:"))
    assert said["principal"] is None
    assert said["broker"].startswith("MoteMQ ")
    other = UmqPeer(umq_desk())
    other.heard()
    assert _welcome(other.say("A1:H2: {}", b"which nobody here reads"))["principal"] is None


def test_what_comes_in_one_read_with_the_request_is_not_lost() -> None:
    desk = umq_desk()
    client = UmqPeer(desk, upgrade=False)
    spelled = UmqPeer(desk)
    spelled.heard()
    data = client.request + spelled.bytes_of("H1:", 'C1:["subscribe","**","A"]', 'C2:["topics"]')
    desk.send(client.connection, data)
    heard = client.heard()
    assert heard[0] == ("accepted", None)
    assert [each[:3] for each in heard[1:]] == ["W1:", "R1:", "R2:", "TA:"]


def test_a_subprotocol_is_accepted_if_the_settings_name_it() -> None:
    """A23."""
    for wanted, offered, said in (("", "umq", None), ("umq", "x, umq", "umq"), ("umq", "x", None)):
        client = UmqPeer(
            umq_desk({"subprotocol": wanted}), [("Sec-WebSocket-Protocol", offered)], upgrade=False
        )
        desk = client.desk
        desk.send(client.connection, client.request)
        answer = desk.got(client.connection)
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert (b"Sec-WebSocket-Protocol: umq" in answer) == (said is not None)


@pytest.mark.parametrize("hello", ["nonsense", "[1]", '{"token": 1}', '{"user": []}', "[" * 5000])
def test_a_hello_that_is_no_object_is_refused(hello: str) -> None:
    """R9, R11, A19: F, and then the WebSocket is closed."""
    client = UmqPeer(umq_desk())
    client.heard()
    fatal, close = client.say(f"H1:{hello}")
    assert isinstance(fatal, str)
    assert fatal.startswith("F0:1 ")
    assert close == ("close", 1000)
    assert client.is_closed


def test_other_machines_need_a_token_where_there_are_no_users() -> None:
    desk = umq_desk()
    client = UmqPeer(desk, peer=_AWAY)
    client.heard()
    assert client.say("H1:")[0] == (
        "F0:1 without http.token, only programs on this machine may ask"
    )
    known = UmqPeer(desk, peer=Peer("192.0.2.7", loopback=False, certificate="desk"))
    known.heard()
    assert _welcome(known.say("H1:"))["principal"] == "desk"


def test_the_token_of_http_lets_in() -> None:
    """As of HTTP: with it, everybody needs it; in the hello, or the request."""
    token = "sha256:" + "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # "foo"
    for headers, hello, is_right in (
        ([], "", False),
        ([], '{"token": "bar"}', False),
        ([], '{"token": "foo"}', True),
        ([("Authorization", "Bearer foo")], "", True),
        ([("Authorization", "Bearer foo")], '{"token": "bar"}', False),
        ([("Authorization", "Basic foo")], "", False),
    ):
        desk = umq_desk()
        desk.broker.settings_changed(Settings(http=HttpSettings(token=token)))
        for peer in (Peer(), _AWAY):
            client = UmqPeer(desk, headers, peer=peer)
            client.heard()
            heard = client.say(f"H1:{hello}")
            assert str(heard[0]).startswith("W1:" if is_right else "F0:1 "), (headers, hello)


def test_nothing_is_done_before_a_login_whatever_the_hello_waits_for() -> None:
    """A26: a hello whose attachments are yet to come lets nobody in."""
    desk = umq_desk()
    desk.broker.settings_changed(Settings(http=HttpSettings(token="sha256:" + "0" * 64)))
    other = UmqPeer(desk, peer=_AWAY)
    other.heard()
    fatal, close = other.say("A1:H1:", 'C1:["publish", "a", "x", {"retain": true}]')
    assert fatal == "F0:3 Protocol error: C comes before W"
    assert close == ("close", 1000)
    assert not desk.broker.is_retained(b"a")


def test_half_a_surrogate_pair_ends_nobody() -> None:
    """JSON can spell what is no text: calls fail, logins are refused."""
    client = joined(umq_desk())
    for said, answer in (
        (["unsubscribe", "\ud800"], "E3 ? is no subscription"),
        (["clients", {"after": "\ud800"}], 'E3 clients: after cannot be "?"'),
        (["call", "\ud800", "x"], "E3 call: CLIENT is no text"),
    ):
        assert client.call(*said) == answer
    for hello in ({"user": "\ud800"}, {"token": "\ud800"}, {"user": "a", "password": "\ud800"}):
        other = UmqPeer(umq_desk())
        other.heard()
        assert other.say(f"H1:{json.dumps(hello)}")[0] == (
            "F0:1 token, user and password are texts"
        )


# ---- where it is from ----


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", "http://evil.example")],
        [("Origin", "https://127.0.0.1:8765")],
        [("Origin", "http://127.0.0.1:8766")],
        [("Origin", "null")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site")],
    ],
)
def test_a_page_of_another_site_gets_no_websocket(headers: list[tuple[str, str]]) -> None:
    client = UmqPeer(umq_desk(), headers)
    refused, *body = client.heard()
    assert refused == ("refused", 403)
    assert b"another site" in b"".join(part for _, part in body)  # type: ignore[misc]
    assert client.is_closed


def test_our_own_page_gets_one() -> None:
    headers = [("Origin", "http://127.0.0.1:8765"), ("Sec-Fetch-Site", "same-origin")]
    assert UmqPeer(umq_desk(), headers).heard() == [("accepted", None)]
    encrypted = UmqPeer(
        umq_desk(),
        [("Origin", "https://broker.lan:8765")],
        peer=Peer("192.0.2.7", loopback=False, encrypted=True),
        host="broker.lan:8765",
    )
    assert encrypted.heard() == [("accepted", None)]


def test_a_name_that_was_made_to_point_here_gets_none() -> None:
    """Unless it is one of ``http.hosts``, by TLS, or at a unix socket."""
    desk = umq_desk()
    assert UmqPeer(desk, host="evil.example").heard()[0] == ("refused", 403)
    assert UmqPeer(desk, host="localhost:1").heard() == [("accepted", None)]
    assert UmqPeer(desk, host="[::1]:1").heard() == [("accepted", None)]
    for peer in (Peer("uid 0", uid=0), Peer(encrypted=True)):
        assert UmqPeer(desk, host="evil.example", peer=peer).heard() == [("accepted", None)]
    desk.broker.settings_changed(Settings(http=HttpSettings(hosts="broker.lan, desk")))
    assert UmqPeer(desk, host="desk").heard() == [("accepted", None)]


def test_there_is_one_path() -> None:
    desk = umq_desk()
    assert UmqPeer(desk, target="/umq?x=1").heard() == [("accepted", None)]
    assert UmqPeer(desk, target="/umq/x").heard()[0] == ("refused", 404)
    assert UmqPeer(desk, target="/").heard()[0] == ("refused", 404)


def test_what_is_no_websocket_is_told_so() -> None:
    desk = umq_desk()
    connection = desk.open("umq")
    desk.send(connection, b"GET /umq HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    answer = desk.got(connection)
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"Upgrade: websocket\r\n" in answer
    assert connection in [close.connection for close in desk.closes]


# ---- how it ends ----


@pytest.mark.parametrize(
    ("message", "code"),
    [("", 3), ("C1", 3), ("Caz:x", 3), ("A1:E5:x", 3), ("H1:", 3), ("W1:", 3), ("S:key", 3)],
)
def test_who_breaks_the_protocol_is_told_so_and_closed(message: str, code: int) -> None:
    """R11, A19, A22, A24: what came before it in the same read is done."""
    client = joined(umq_desk())
    answer, fatal, close = client.say('C1:["topics"]', message, 'C2:["topics"]')
    assert str(answer).startswith("R1:")
    assert str(fatal).startswith(f"F0:{code} Protocol error: ")
    assert close == ("close", 1000)
    assert client.is_closed
    assert client.desk.broker.stats.closed["umq"]


def test_fatal_of_the_client_ends_it_without_an_answer() -> None:
    """R11, R13."""
    client = joined(umq_desk())
    assert client.say("F0:7 I have enough") == [("close", 1000)]
    assert "I have enough" in client.close_reason
    early = UmqPeer(umq_desk())
    early.heard()
    assert early.say("F0:7 never mind") == [("close", 1000)]


def test_who_closes_the_websocket_is_answered() -> None:
    client = joined(umq_desk())
    client.event(CloseConnection(1001, "going away"))
    assert client.heard() == [("close", 1001)]
    assert client.is_closed


def test_what_is_said_before_a_close_is_answered_before_it() -> None:
    """Though all of it comes in one read; and so it is with a hello."""
    client = joined(umq_desk())
    data = client.bytes_of('C1:["publish", "a", "b"]')
    client.desk.send(client.connection, data + client._socket.send(CloseConnection(1000)))
    assert client.heard() == ['R1:{"published":1}', ("close", 1000)]
    early = UmqPeer(umq_desk())
    early.heard()
    data = early.bytes_of("H1:", "F0:1 never mind")
    early.desk.send(early.connection, data)
    welcome, close = early.heard()
    assert str(welcome).startswith("W1:")
    assert close == ("close", 1000)


def test_a_message_that_is_too_long_ends_it() -> None:
    """umq.max_text, umq.max_attachment: F says which, and the WebSocket is closed with 1009."""
    desk = umq_desk({"max_text": 1024, "max_attachment": 10})
    client = joined(desk)
    fatal, close = client.say(f"C1:{'x' * 1024}")
    assert fatal == "F0:1 umq.max_text: a message is longer than 1024 bytes"
    assert close == ("close", 1009)
    other = joined(desk)
    assert other.say(bytes(11))[0] == "F0:1 umq.max_attachment: a message is longer than 10 bytes"
    assert desk.broker.stats.closed["umq"] == {"umq.max_text": 1, "umq.max_attachment": 1}


def test_so_many_attachments_may_be_awaited() -> None:
    """umq.max_attachments."""
    client = joined(umq_desk({"max_attachments": 3}))
    assert client.say("A3:C1:x") == []
    assert str(client.say("A1:C2:x")[0]).startswith("F0:1 umq.max_attachments")


def test_who_says_no_hello_is_ended() -> None:
    """umq.handshake_timeout_s: before and after the request."""
    desk = umq_desk({"handshake_timeout_s": 5.0})
    silent, half = UmqPeer(desk, upgrade=False), UmqPeer(desk)
    half.heard()
    desk.advance(4.9)
    assert not desk.closes
    desk.advance(0.2)
    assert "umq.handshake_timeout_s" in silent.close_reason
    assert "umq.handshake_timeout_s" in half.close_reason
    joined(desk)
    desk.advance(6.0)
    assert len(desk.closes) == 2


def test_a_silent_client_is_pinged_and_then_ended() -> None:
    """umq.ping_interval_s, umq.ping_timeout_s."""
    desk = umq_desk({"ping_interval_s": 20.0, "ping_timeout_s": 5.0})
    client = joined(desk)
    client.pongs = False
    desk.advance(20.1)
    assert client.heard() == [("ping", b"")]
    desk.advance(4.0)
    assert not client.is_closed
    client.say('C1:["topics"]')  # a sign of life as good as a pong
    desk.advance(19.0)
    assert not client.is_closed
    desk.advance(6.1)
    assert "umq.ping_timeout_s" in client.close_reason


def test_who_answers_pings_stays() -> None:
    desk = umq_desk({"ping_interval_s": 1.0, "ping_timeout_s": 1.0})
    client = joined(desk)
    for _ in range(20):
        desk.advance(0.5)
        client.heard()
    assert not client.is_closed
    silent = joined(umq_desk({"ping_interval_s": 0.0}))
    silent.desk.advance(10_000.0)
    assert silent.heard() == []


def test_pings_of_the_client_are_answered_and_too_many_cost_time() -> None:
    client = joined(umq_desk())
    client.event(Ping(b"x"))
    assert client.heard() == [("pong", b"x")]
    many = b"".join(client._socket.send(Ping(b"")) for _ in range(200))
    client.desk.send(client.connection, many)
    assert len(client.heard()) == 200
    assert client.desk.discarded["umq.ping"] == 200


def test_a_stopping_broker_refuses_who_comes() -> None:
    desk = umq_desk()
    desk.broker.stopping()
    client = UmqPeer(desk)
    assert client.heard()[0] == ("refused", 503)


def test_at_a_stop_wills_are_still_told() -> None:
    """What waits is sent at once: nothing will drain any more."""
    desk = umq_desk()
    client = joined(desk)
    client.result("subscribe", "**", "A", {"every_ms": 10_000})
    board = desk.open()
    desk.pub(board, "home/lamp", b"off", will=True)
    desk.broker.stop(desk.now)
    desk.done()
    found = updates(client.heard())
    assert ("home/lamp", "off") in [(each["topic"], each.get("text")) for each in found]


def test_at_a_stop_all_that_waits_is_told() -> None:
    """In order, however much that is, and wills behind it."""
    desk = umq_desk()
    client = joined(desk)
    client.result("subscribe", "home/*", "A")
    client.result("subscribe", "home/*", "B", {"every_ms": 10_000})
    board = desk.open()
    desk.slow.add(client.connection)
    for number in range(40):
        desk.pub(board, f"home/{number}", b"x" * 5000)
    desk.pub(board, "home/lamp", b"off", will=True)
    desk.broker.stop(desk.now)
    desk.done()
    heard = client.heard()
    for topic in "AB":
        found = [each["topic"] for each in updates(heard, topic)]
        assert found == [*(f"home/{number}" for number in range(40)), "home/lamp"]


def test_who_has_gone_is_told_nothing() -> None:
    """What waits is not even spelled."""
    desk = umq_desk()
    client = joined(desk)
    client.result("subscribe", "home/*", "A")
    board = desk.open()
    desk.slow.add(client.connection)
    for number in range(40):
        desk.pub(board, f"home/{number}", b"x" * 5000)
    session = desk.broker._clients[client.connection].session
    desk.broker.closed(client.connection, desk.now)
    assert client.connection not in {
        receiver for each in desk.broker.take().forwards for receiver in each.receivers
    }
    assert isinstance(session, UmqSession)
    assert session.peer.is_closed and not session.updates.due(inf)
    assert desk.broker.held_bytes == 0


def test_the_head_of_the_request_is_not_kept() -> None:
    """It may have 16 KiB, and secrets: only who it is, is remembered."""
    desk = umq_desk()
    client = joined(desk, headers=[("Cookie", "a-cookie-of-this-test"), ("X-Long", "y" * 8000)])
    seen: set[int] = set()
    left: list[Any] = [desk.broker._clients[client.connection].session]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, type | ModuleType | FunctionType):
            continue
        seen.add(id(each))
        if isinstance(each, str | bytes | bytearray):
            text = each if isinstance(each, str) else bytes(each).decode("latin-1")
            assert "a-cookie-of-this-test" not in text and "y" * 8000 not in text
        left += gc.get_referents(each)
    assert len(seen) > 100


def test_a_session_that_has_ended_is_freed_at_once() -> None:
    """The collector of garbage need not stop for it: nothing of ours is a circle."""
    gc.collect()
    gc.disable()
    try:
        desk = umq_desk()
        client = joined(desk)
        client.result("subscribe", "a/**", "A", {"every_ms": 1000})
        client.result("publish", "a/b", "x", {"retain": True})
        client.say('C91:["stats"]', 'C92:["call", "nobody", "x"]', "S:name=x")
        desk.broker.answered(desk.questions.pop()[0], {}, desk.now)
        sessions = [each for each in gc.get_objects() if type(each) is UmqSession]
        (alive,) = [ref(each) for each in sessions]
        del sessions
        desk.close(client.connection)
        assert alive() is None
    finally:
        gc.enable()


# ---- what is said in pieces ----


def test_texts_and_binaries_may_come_in_fragments() -> None:
    """A23, R4."""
    client = joined(umq_desk())
    data = b"".join(
        client._socket.send(event)
        for event in (
            TextMessage("A1:C1:[", message_finished=False),
            Ping(b"in between"),
            TextMessage('"publish", "a", null]', message_finished=True),
            BytesMessage(b"1", message_finished=False),
            BytesMessage(b"2", message_finished=True),
        )
    )
    for at in range(len(data)):
        client.desk.send(client.connection, data[at : at + 1])
    assert client.heard() == [("pong", b"in between"), 'R1:{"published":1}']


def test_dialects_may_be_allowed() -> None:
    """A2, A4, A9, A11, A15: each by its setting."""
    assert str(joined(umq_desk({"lenient_case": True})).say("Cz:[]")[0]).startswith("EZ:3 ")
    assert str(joined(umq_desk({"max_id_digits": 20})).say(f"C{'Z' * 14}:[]")[0])[0] == "E"
    assert str(joined(umq_desk({"strict_attachments": True})).say(b"x")[0]).startswith("F0:3 ")
    assert joined(umq_desk()).say(b"x", "-:x") == []
    lenient = joined(umq_desk({"lenient_attachments": True}))
    assert lenient.say("A1:X:key", b"x") == []
    callback = joined(umq_desk({"unknown_callback_fatal": True}))
    assert str(callback.say("B1:2:x")[0]).startswith("F0:2 ")
    assert joined(umq_desk()).say("B1:2:x") == ["E1:2 Callback not found"]
    early = joined(umq_desk({"rpc_error": "!"}))
    assert str(early.say('C1:["what"]')[0]).startswith("!1:4 ")


def test_the_label_of_a_client_is_its_attribute() -> None:
    """R32, R34: for people who look; the journal has it not."""
    client = joined(umq_desk())
    client.say("S:name=dashboard", "S:colour=red")
    (facts,) = client.desk.broker.clients(0, 10)
    assert facts.client == "dashboard"
    client.result("publish", "a", "b")
    assert [record.client for record in client.desk.records] == [""]
    client.say("X:name")
    assert client.desk.broker.clients(0, 10)[0].client == ""
