"""UMQ with users: who is let in, and what each call needs."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from host_broker.access.access import Access, Peer
from host_broker.access.principal import Principal
from host_broker.access.rules import Rules
from host_broker.access.sessions import LoginSessions
from host_broker.access.users import Users, token_hash
from host_broker.protocols.lightmq.paths import PATHS
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import board as lightmq_board
from tests.host_broker.protocols.umq.peer import UmqPeer, joined, umq_desk, updates

_TOKEN = "a-token-of-many-letters"
_HASH = "$argon2id$v=19$m=65536,t=3,p=4$aaaa$bbbb"
_USERS: dict[str, Any] = {
    "alice": {"token": token_hash(_TOKEN)},
    "bob": {"password": _HASH},
    "desk": {"certificate": True},
    "kitchen": {"token": token_hash("kitchens")},
    "root": {"token": token_hash("all")},
}
_RULES: dict[str, Any] = {
    "roles": {"users": {"connect": ["umq", "lightmq"]}},
    "principals": {
        "alice": {
            "publish": ["hall/**"],
            "subscribe": ["hall/**", "a"],
            "call": ["kitchen"],
            "deny": {"subscribe": ["hall/secret/**"]},
        },
        "root": {
            "publish": ["**"],
            "subscribe": ["**"],
            "journal": ["**"],
            "call": ["*"],
        },
    },
}
_AWAY = Peer("192.0.2.7", loopback=False)


def _rules() -> Rules:
    return Rules.read(_RULES)


def _desk(**more: Any) -> Desk:
    users = Users.read({"users": _USERS})
    return umq_desk(access=Access(users, _rules(), [PATHS]), **more)


def _alice(desk: Desk) -> UmqPeer:
    return joined(desk, json.dumps({"token": _TOKEN}), peer=_AWAY)


def _root(desk: Desk) -> UmqPeer:
    return joined(desk, json.dumps({"token": "all"}), peer=_AWAY)


def _said(hello: str, headers: Sequence[tuple[str, str]] = (), peer: Peer = _AWAY) -> str:
    """The answer to a hello."""
    client = UmqPeer(_desk(), headers, peer=peer)
    client.heard()
    return str(client.say(f"H1:{hello}")[0])


# ---- who is let in ----


@pytest.mark.parametrize(
    "hello", [f'{{"token": "{_TOKEN}"}}', f'{{"user": "alice", "token": "{_TOKEN}"}}']
)
def test_a_token_says_whose_it_is(hello: str) -> None:
    """R8, R9."""
    assert json.loads(_said(hello)[3:])["principal"] == "alice"


def test_the_request_may_say_it() -> None:
    bearer = [("Authorization", f"Bearer {_TOKEN}")]
    assert json.loads(_said("", bearer)[3:])["principal"] == "alice"
    basic = [("Authorization", "Basic " + base64.b64encode(f"alice:{_TOKEN}".encode()).decode())]
    assert json.loads(_said("", basic)[3:])["principal"] == "alice"
    # What the hello says counts.
    assert _said('{"token": "wrong"}', bearer).startswith("F0:1 ")


@pytest.mark.parametrize(
    "hello",
    [
        "",
        '{"token": "wrong"}',
        '{"token": ""}',
        '{"user": "alice", "password": "wrong"}',
        '{"user": "alice"}',
        '{"user": "nobody", "password": "x"}',
        '{"user": "alice", "token": "kitchens"}',
    ],
)
def test_who_does_not_prove_it_is_told_no_more_than_that(hello: str) -> None:
    """R9, R11, A13, A19: code 1, the WebSocket is closed, and the reason is in the log."""
    desk = _desk()
    client = UmqPeer(desk, peer=_AWAY)
    client.heard()
    heard = client.say(f"H1:{hello}", 'C1:["topics"]')
    if desk.broker.stats.discarded.get("umq") is None:
        # A name that is not there takes the work of a password.
        desk.broker.logged_in(client.connection, False, desk.now)
        desk.done()
        heard = client.heard()
    assert heard == ["F0:1 Authorization failed", ("close", 1000)]
    assert desk.discarded["access.connect"] == 1


def test_a_password_is_looked_at_elsewhere_and_what_came_meanwhile_waits() -> None:
    desk = _desk()
    client = UmqPeer(desk, peer=_AWAY)
    client.heard()
    done = desk.send(
        client.connection,
        client.bytes_of('H1:{"user": "bob", "password": "secret"}', 'C1:["publish", "x", "y"]'),
    )
    (login,) = done.logins
    assert (login.encoded, login.secret) == (_HASH, "secret")
    assert (client.connection, "login") in desk.held
    assert client.heard() == []
    desk.broker.logged_in(client.connection, True, desk.now)
    desk.done()
    welcome, refused = client.heard()
    assert json.loads(str(welcome)[3:])["principal"] == "bob"
    assert str(refused).startswith("E1:1 ")


def test_a_certificate_an_account_or_a_listener_says_it_too() -> None:
    by_listener = json.loads(_said("", peer=Peer(listener="alice"))[3:])
    assert by_listener["principal"] == "alice"
    by_certificate = json.loads(_said("", peer=Peer("192.0.2.7", False, certificate="desk"))[3:])
    assert by_certificate == {**by_listener, "principal": "desk"}
    assert _said("", peer=Peer("uid 7", uid=7)).startswith("W1:")
    # Who has proved one name is not another one without a secret.
    both = '{"user": "alice"}'
    assert _said(both, peer=Peer("192.0.2.7", False, certificate="desk")).startswith("F0:1 ")


def _by_cookie(desk: Desk, cookie: str) -> tuple[UmqPeer, str]:
    """A client whose request has this cookie, and what its hello is answered."""
    client = UmqPeer(desk, [("Cookie", cookie)] if cookie else [], peer=_AWAY)
    client.heard()
    return client, str(client.say("H1:")[0])


def _logged_in(desk: Desk, name: str = "alice") -> str:
    """Begin a session of the dashboard; returns its cookie."""
    who = Principal(name, "password")
    desk.broker.access.sessions.begin(f"{name}s", "", who, None, desk.now)
    return f"motemq_session_8765={name}s"


def test_the_cookie_of_our_pages_says_it() -> None:
    """Only for who has said nothing else."""
    desk = _desk()
    cookie = _logged_in(desk)
    client, said = _by_cookie(desk, f"x=y; {cookie}")
    assert json.loads(said[3:])["principal"] == "alice"
    assert client.result("publish", "hall/x", "1") == {"published": 1}
    for other in ("motemq_session_8765=x; y=z", ""):
        assert _by_cookie(desk, other)[1].startswith("F0:1 ")
    client = UmqPeer(desk, [("Cookie", cookie)], peer=_AWAY)
    client.heard()
    assert str(client.say('H1:{"token": "wrong"}')[0]).startswith("F0:1 ")


def test_who_logs_out_hears_no_more() -> None:
    """At once, though it says nothing itself, and is never asked whether it is there."""
    desk = umq_desk({"ping_interval_s": 0}, access=Access(Users.read({"users": _USERS}), _rules()))
    sessions = desk.broker.access.sessions
    sessions.on_end = lambda session: desk.broker.web_session_ended(session, desk.now)
    client, _ = _by_cookie(desk, _logged_in(desk))
    another, _ = _by_cookie(desk, _logged_in(desk, "root"))
    for each in (client, another):
        each.result("subscribe", "hall/x", "A")
    sessions.end("alices")
    desk.done()
    assert client.heard() == ["F0:1 the session is over", ("close", 1000)]
    assert another.result("publish", "hall/x", "1") == {"published": 1}
    assert client.heard() == []
    assert len(updates(another.others)) == 1


@pytest.mark.parametrize("limit", ["idle_s", "longest_s"])
def test_a_connection_lasts_no_longer_than_its_session(limit: str) -> None:
    """http.session_s, http.session_longest_s. That a pong comes is no use of it."""
    limits = {"idle_s": 1000.0, "longest_s": 1000.0, limit: 100.0}
    users = Users.read({"users": _USERS})
    desk = umq_desk(access=Access(users, _rules(), sessions=LoginSessions(**limits)))
    client, _ = _by_cookie(desk, _logged_in(desk))

    def wait() -> None:
        for _ in range(9):
            desk.advance(10.0)
            assert client.heard() == []  # pings are answered

    wait()
    if limit == "idle_s":
        assert client.result("publish", "hall/x", "1") == {"published": 1}
        wait()
    desk.advance(10.1)
    assert client.heard()[-2:] == ["F0:1 the session is over", ("close", 1000)]
    assert client.close_reason == "the session is over"


def test_by_tls_only_a_cookie_of_this_host_says_it() -> None:
    """Another host of the domain may have set the others: somebody would be who it has chosen."""
    desk = _desk()
    for name in ("alice", "kitchen"):
        _logged_in(desk, name)
    chosen, own = "motemq_session=kitchens", "__Host-motemq_session_8765=alices"
    for encrypted, cookies, whose in (
        (True, f"{chosen}; {own}", "alice"),
        (True, chosen, None),
        (False, chosen, "kitchen"),
    ):
        peer = Peer("192.0.2.7", loopback=False, encrypted=encrypted)
        client = UmqPeer(desk, [("Cookie", cookies)], peer=peer)
        client.heard()
        said = str(client.say("H1:")[0])
        if whose is None:
            assert said.startswith("F0:1 ")
        else:
            assert json.loads(said[3:])["principal"] == whose


def test_the_right_to_connect_is_that_of_umq() -> None:
    rules = Rules.read({"roles": {"users": {"connect": ["fmqp", "http"]}}})
    desk = umq_desk(access=Access(Users.read({"users": _USERS}), rules))
    client = UmqPeer(desk, peer=_AWAY)
    client.heard()
    assert client.say(f'H1:{{"token": "{_TOKEN}"}}')[0] == "F0:1 Authorization failed"


def test_many_wrong_tokens_have_to_wait() -> None:
    desk = _desk()
    for _ in range(50):
        client = UmqPeer(desk, peer=_AWAY)
        client.heard()
        client.say('H1:{"token": "wrong"}')
    client = UmqPeer(desk, peer=_AWAY)
    client.heard()
    assert str(client.say(f'H1:{{"token": "{_TOKEN}"}}')[0]).startswith("F0:1 ")


def test_no_secret_is_in_what_the_session_asks_for() -> None:
    desk = _desk()
    client = UmqPeer(desk, peer=_AWAY)
    client.heard()
    done = desk.send(client.connection, client.bytes_of('H1:{"user": "bob", "password": "s3cret"}'))
    assert "s3cret" not in repr(done.outputs)


# ---- what each call needs ----


@pytest.mark.parametrize(
    "said",
    [
        ["publish", "x", "1"],
        ["publish", "x", "", {"retain": True}],
        ["subscribe", "**", "A"],
        ["subscribe", "x", "A"],
        ["subscribe", "hall/secret/x", "A"],
        ["subscribe", "a/**", "A"],
        ["subscribe", "hall/**", "A"],
        ["ping", "kitchen"],
        ["history", "hall/x"],
        ["clients"],
        ["topics"],
        ["retained"],
        ["queues"],
        ["wills"],
        ["alerts"],
        ["stats"],
        ["journal"],
    ],
)
def test_what_no_rule_allows_is_refused_counted_and_logged(said: list[Any]) -> None:
    """A13: with code 1; and nothing of it stays."""
    desk = _desk()
    client = _alice(desk)
    before = desk.discarded
    answer = client.call(*said)
    assert answer.startswith("E1 "), answer
    rejected = desk.discarded - before
    assert sum(rejected.values()) == 1
    assert next(iter(rejected)).startswith("access.")
    assert desk.broker.clients(0, 10)[0].subscriptions == 0
    assert not desk.questions
    assert client.result("publish", "hall/x", "1") == {"published": 1}
    assert client.result("subscribe", "a", "A") == {"subscribed": "a"}


def test_who_may_do_all_may() -> None:
    desk = _desk()
    client = _root(desk)
    for method in ("topics", "retained", "queues", "wills"):
        assert method in client.result(method)
    assert client.say('C91:["clients"]', 'C92:["stats"]', 'C93:["journal"]') == []
    assert client.say('C94:["history", "x"]', 'C95:["alerts"]') == []
    assert len(desk.questions) == 5


def test_the_past_of_a_pattern_needs_the_right_to_all_of_it() -> None:
    rules = {**_RULES, "principals": {**_RULES["principals"]}}
    rules["principals"]["alice"] = {
        "journal": ["hall", "hall/**", "a/*"],
        "deny": {"journal": ["hall/secret/**"]},
    }
    desk = umq_desk(access=Access(Users.read({"users": _USERS}), Rules.read(rules)))
    alice = _alice(desk)
    for refused in ("**", "hall/**", "hall/secret/**", "a/**", "*/x/**", "hall/secret/x"):
        assert alice.call("history", refused).startswith("E1 "), refused
    assert not desk.questions
    assert alice.say('C91:["history", "hall/hat/**"]', 'C92:["history", "a/x"]') == []
    assert len(desk.questions) == 2


def test_a_call_needs_the_right_to_call() -> None:
    desk = _desk()
    alice, kitchen = _alice(desk), lightmq_board(desk, "kitchen:kitchens")
    assert alice.say('C1:["call", "kitchen", "x"]') == []
    (asked,) = kitchen.sends()
    kitchen.say(kitchen.codec.sendresp(asked.id, b"y"))
    assert alice.heard() == ['R1:{"answer":"y"}']
    bob_like = joined(desk, '{"token": "kitchens"}', peer=_AWAY)
    assert bob_like.call("call", "kitchen", "x").startswith("E1 ")
    assert desk.broker.clients(0, 10)[-1].subscriptions == 0
    assert kitchen.sends() == []


def test_of_topics_one_may_not_hear_nothing_is_said() -> None:
    """In topics, retained and wills; pages go on behind them."""
    rules = {**_RULES, "principals": {**_RULES["principals"]}}
    rules["principals"]["alice"] = {
        "subscribe": ["hall/**", "$/info/**"],
        "deny": {"subscribe": ["hall/secret/**"]},
    }
    desk = umq_desk(access=Access(Users.read({"users": _USERS}), Rules.read(rules)))
    root = _root(desk)
    for topic in ("attic", "hall/a", "hall/secret/b", "hall/z"):
        root.result("publish", topic, "1", {"retain": True})
    alice = _alice(desk)
    for method in ("retained", "topics"):
        found: list[str] = []
        page: dict[str, Any] = {"limit": 1}
        while True:
            said = alice.result(method, page)
            assert "attic" not in str(said)
            assert "secret" not in str(said)
            found += [each["topic"] for each in said[method]]
            if not said["more"]:
                break
            page["after"] = said["after"]
        assert [each for each in found if each[0] != "$"] == ["hall/a", "hall/z"]
    topics = [each["topic"] for each in alice.result("topics")["topics"]]
    assert [each for each in topics if each[0] != "$"] == ["hall/a", "hall/z"]
    for _ in range(101):
        place = alice.result("topics", {"limit": 1, "after": "$~"})["after"]
    assert alice.result("topics", {"limit": 1, "after": place})["topics"][0]["topic"] == "hall/a"
    assert alice.call("topics", {"after": "\0" + "1"}) == (
        "E3 this 'after' is known no more; begin at the first page"
    )


def test_rights_that_are_taken_away_end_topics() -> None:
    """R27: the client is told by D."""
    desk = _desk()
    alice, root = _alice(desk), _root(desk)
    alice.result("subscribe", "hall/x", "A")
    alice.result("subscribe", "a", "B")
    root.result("publish", "hall/x", "1")
    assert [each["text"] for each in updates(alice.heard())] == ["1"]
    rules = {**_RULES, "principals": {**_RULES["principals"], "alice": {"subscribe": ["a"]}}}
    desk.broker.access.change(Users.read({"users": _USERS}), Rules.read(rules))
    desk.broker.access_changed(desk.now)
    desk.done()
    assert alice.heard() == ["DA:"]
    root.result("publish", "hall/x", "2")
    root.result("publish", "a", "3")
    assert [each["text"] for each in updates(alice.heard(), "B")] == ["3"]
    assert alice.call("publish", "hall/x", "1").startswith("E1 ")
