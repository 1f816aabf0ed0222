"""Who may do what, on a whole broker: attacks that worked once, and each protocol's refusals."""

from typing import Any

import pytest

from host_broker import broker as broker_module
from host_broker.access.access import Access, Peer
from host_broker.access.backoff import LoginBackoff
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.bus.permitted import MAX_JUDGED
from host_broker.bus.publication import pack
from host_broker.protocols.fmqp.spelling import encode_subscription
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import Refusal
from host_broker.protocols.lightmq.events import Connack, SendResp
from host_broker.protocols.lightmq.paths import PATHS
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer as Board
from tests.host_broker.lightmq_peer import board

_TOKEN = "kitchen-token-of-many-letters"
_HASH = "$argon2id$v=19$m=65536,t=3,p=4$aaaa$bbbb"
_USERS: dict[str, Any] = {
    "alice": {"password": _HASH},
    "bob": {},
    "kitchen": {"token": token_hash(_TOKEN)},
    "hall": {"token": token_hash("hall-token-of-many-letters")},
}


def guarded(rules: dict[str, Any], **more: Any) -> Desk:
    """Return a broker with users and these rules."""
    access = Access(
        Users.read({"users": _USERS}), Rules.read(rules), [PATHS], backoff=LoginBackoff(2, 10.0)
    )
    return Desk(access=access, fmqp={"signals": "acl"}, **more)


def listener(name: str) -> Peer:
    return Peer("127.0.0.1", listener=name)


# ---- without users ----


@pytest.mark.parametrize("end", ["up", "up/7", "status", "reply", "reply/x", "done/x"])
@pytest.mark.parametrize("retain", [False, True])
def test_nobody_speaks_in_the_name_of_a_board(end: str, retain: bool) -> None:
    """Once an FMQP client without any login overwrote the presence of a board."""
    desk = Desk()
    watcher, attacker = desk.open(), desk.open()
    desk.sub(watcher, "lightmq/*/*")
    desk.sub(watcher, "lightmq/*/*/*")
    board(desk, "kitchen")
    assert desk.messages(watcher) == [(4, "lightmq/kitchen/status", b"online")]
    desk.journal()
    topics = [f"lightmq/kitchen/{end}", f"*/*/{end}", f"lightmq/*/{end}", f"lightmq/hall/{end}"]
    for topic in topics:
        desk.pub(attacker, topic, b"offline", cache=retain)
        desk.pub(attacker, topic, b"", cache=retain)  # which would clear
        desk.pub(attacker, topic, b"will", will=True, cache=retain)
    desk.close(attacker)
    assert desk.messages(watcher) == []
    assert desk.journal() == []
    late = desk.open()
    desk.sub(late, "lightmq/*/*")
    assert desk.messages(late) == [(4, "lightmq/kitchen/status", b"online")]
    assert desk.discarded["access.publish"] == len(topics) * (3 if retain else 2)


def test_not_even_a_board_itself_where_it_chooses_the_topics() -> None:
    desk = Desk()
    watcher = desk.open()
    desk.sub(watcher, "lightmq/*/status")
    tunnelled = board(desk, "kitchen", listener="lightmq+fmqp")
    assert desk.messages(watcher) == [(4, "lightmq/kitchen/status", b"online")]
    tunnelled.say(tunnelled.codec.send(1, pack(4, b"lightmq/kitchen/status", b"offline")))
    tunnelled.say(tunnelled.codec.send(2, pack(0, b"lightmq/kitchen/status", b"offline")))
    assert desk.messages(watcher) == []


def test_a_burst_with_a_topic_that_is_not_allowed_loses_no_more_than_that() -> None:
    """In the middle of a read of plain publications, known topics and new ones."""
    desk = Desk()
    watcher, client = desk.open(), desk.open()
    for topic in ("a", "lightmq/*/up"):
        desk.sub(watcher, topic)
    board(desk, "kitchen").say(Codec("client", "spec").send(1, b"own"))
    good, bad = pack(0, b"a", b"1"), pack(0, b"lightmq/kitchen/up", b"forged")
    for _ in range(3):
        desk.send(client, good * 5 + bad * 3 + good * 5 + bad)
    assert desk.messages(watcher) == [(0, "lightmq/kitchen/up", b"own"), *[(0, "a", b"1")] * 30]
    assert desk.discarded == {"access.publish": 12}
    assert sum(len(found) for *_, found in desk.journal()) == 31 + 1  # and the presence


@pytest.mark.parametrize("kind", ["stop", "terminate"])
@pytest.mark.parametrize("will", [False, True])
def test_no_stranger_on_the_machine_ends_the_broker(kind: str, will: bool) -> None:
    """Once ``nobody`` ended the broker of root so, by any connection."""
    desk = Desk(fmqp={"signals": "acl"})
    for peer in (None, Peer("uid 65534", uid=65534), Peer("127.0.0.1")):
        client = desk.open(peer=peer)
        assert desk.pub(client, f"$/signals/{kind}", b"x", will=will).signal == ""
        assert desk.close(client).signal == ""
    assert desk.discarded == {"access.signal": 3}


def test_26_bytes_of_a_board_behind_the_bridge_end_nothing() -> None:
    """The bridge connects from this machine, and the board says what it likes."""
    desk = Desk(fmqp={"signals": "acl"})
    packet = pack(0, b"$/signals/terminate", b"x")
    assert len(packet) == 26
    bridged = desk.open(peer=Peer("127.0.0.1"))
    assert desk.send(bridged, packet).signal == ""
    tunnelled = board(desk, "kitchen", listener="lightmq+fmqp")
    assert desk.send(tunnelled.connection, tunnelled.codec.send(1, packet)).signal == ""


def test_who_ended_the_broker_is_known() -> None:
    desk = Desk(fmqp={"signals": "on"})
    client = desk.open(peer=Peer("10.1.2.3", loopback=False))
    done = desk.pub(client, "$/signals/terminate", b"")
    assert (done.signal, done.signalled_by) == ("terminate", "'anonymous' at 10.1.2.3")


# ---- with users ----


def test_everything_is_denied_by_default() -> None:
    desk = guarded({})
    connection = desk.open(peer=listener("alice"))
    assert [close.connection for close in desk.closes] == [connection]
    assert "'alice' at 127.0.0.1 may not connect by FMQP" in desk.closes[0].reason
    assert Board(desk).connect(f"kitchen:{_TOKEN}") == Connack(4, accepted=False)
    assert desk.discarded == {"access.connect": 2}


def test_fmqp_is_refused_without_a_word() -> None:
    """It has no error packet: what is refused is counted, and the connection goes on."""
    desk = guarded(
        {
            "roles": {"everybody": {"connect": ["fmqp"], "subscribe": ["a/**"]}},
            "principals": {"alice": {"publish": ["a/*"]}, "bob": {"publish": ["b"]}},
        }
    )
    alice, bob = (desk.open(peer=listener(name)) for name in ("alice", "bob"))
    desk.sub(alice, "a/x")
    desk.sub(alice, "*")  # not all that it means
    desk.sub(alice, "b")
    for _ in range(2):  # what is decided once, is remembered
        desk.pub(bob, "a/x", b"forged")
        desk.pub(bob, "b", b"own")
        desk.pub(alice, "a/x", b"good")
        desk.pub(alice, "b", b"forged")
    desk.pub(alice, "a/x", b"kept", cache=True)
    desk.pub(bob, "a/x", b"", cache=True)
    desk.sub(bob, "a/x")
    assert desk.messages(alice) == [(0, "a/x", b"good"), (0, "a/x", b"good"), (4, "a/x", b"kept")]
    assert desk.messages(bob) == [(4, "a/x", b"kept")]
    assert desk.discarded == {"access.subscribe": 2, "access.publish": 5}
    assert desk.closes == []


@pytest.mark.parametrize("will", [False, True])
def test_who_may_end_the_broker(will: bool) -> None:
    """Each signal by a rule of its own; a topic with wildcards is none."""
    rules = {
        "roles": {"everybody": {"connect": ["fmqp"], "publish": ["**"]}},
        "principals": {
            "alice": {"signal": ["$/signals/stop"]},
            "bob": {"signal": ["$/signals/*"], "deny": {"signal": ["$/signals/stop"]}},
        },
    }
    for name, kind in [("alice", "stop"), ("bob", "terminate"), ("hall", ""), ("anonymous", "")]:
        for tried in ("stop", "terminate", "*"):
            desk = guarded(rules)
            client = desk.open(peer=listener(name) if name != "anonymous" else None)
            done = desk.pub(client, f"$/signals/{tried}", b"x", will=will)
            if will:
                done = desk.close(client)
            assert done.signal == (tried if tried == kind else ""), (name, tried)


@pytest.mark.parametrize("denied", [False, True])
def test_a_client_hears_its_own_path_unless_a_rule_denies_it(denied: bool) -> None:
    deny = {"deny": {"subscribe": ["lightmq/kitchen/down"]}} if denied else {}
    desk = guarded(
        {
            "roles": {"users": {"connect": ["**"], **deny}},
            "principals": {"alice": {"publish": ["lightmq/*/down"]}},
        }
    )
    kitchen, hall = (
        board(desk, f"kitchen:{_TOKEN}"),
        board(desk, "hall:hall-token-of-many-letters"),
    )
    alice = desk.open(peer=listener("alice"))
    for name in ("kitchen", "hall"):
        desk.pub(alice, f"lightmq/{name}/down", name.encode())
    assert [each.data for each in hall.sends()] == [b"hall"]
    assert [each.data for each in kitchen.sends()] == ([] if denied else [b"kitchen"])


def test_a_will_is_governed_when_it_comes_true() -> None:
    desk = guarded(
        {
            "roles": {"everybody": {"connect": ["fmqp"], "subscribe": ["**"]}},
            "principals": {"alice": {"publish": ["a"]}},
        }
    )
    watcher, client = desk.open(peer=listener("bob")), desk.open(peer=listener("alice"))
    for topic in ("a", "b"):
        desk.sub(watcher, topic)
        desk.pub(client, topic, b"bye", will=True)
    desk.close(client)
    assert desk.messages(watcher) == [(8, "a", b"bye")]


def test_statistics_are_told_to_those_only_who_may_subscribe() -> None:
    desk = guarded(
        {
            "roles": {"everybody": {"connect": ["fmqp"]}},
            "principals": {"alice": {"subscribe": ["$/info/**"]}},
        }
    )
    alice, bob = (desk.open(peer=listener(name)) for name in ("alice", "bob"))
    for connection in (alice, bob):
        desk.sub(connection, "$/info/messages/second")
    desk.advance(2.5)
    assert len(desk.messages(alice)) == 2
    assert desk.messages(bob) == []


def test_a_lightmq_client_is_its_user() -> None:
    """CONNECT has a ClientID and no more: NAME:SECRET. What is wrong is CONNACK 4."""
    desk = guarded(
        {
            "roles": {
                "users": {"connect": ["lightmq", "lightmq+fmqp"]},
                "watchers": {"connect": ["fmqp"], "subscribe": ["**"]},
            },
            "principals": {"bob": {"roles": ["watchers"]}},
        }
    )
    watcher = desk.open(peer=listener("bob"))
    desk.sub(watcher, "lightmq/*/*")
    unauthorized = Connack(Refusal.UNAUTHORIZED.value, accepted=False)
    for claim in ("kitchen", "kitchen:wrong", "stranger", f"hall:{_TOKEN}"):
        refused = Board(desk)
        assert refused.connect(claim) == unauthorized, claim
        assert _TOKEN not in refused.why_closed
    kitchen = Board(desk)
    # What comes behind the CONNECT waits until that is answered.
    frames = kitchen.codec.connect(f"kitchen:{_TOKEN}") + kitchen.codec.send(1, b"hot")
    assert kitchen.say(frames) == [Connack(0, accepted=True), SendResp(1, b"")]
    assert desk.messages(watcher) == [
        (4, "lightmq/kitchen/status", b"online"),
        (0, "lightmq/kitchen/up", b"hot"),
    ]
    many = b"".join(kitchen.codec.send(number, b"x") for number in range(20))
    assert len(kitchen.say(many)) == 20
    assert len(desk.messages(watcher)) == 20
    assert {record[2] for record in desk.journal()} == {"", "kitchen"}


def test_a_lightmq_client_that_may_not_is_closed() -> None:
    """LightMQ has no error packet, and a SENDRESP would say that the bus has it."""
    desk = guarded(
        {"roles": {"users": {"connect": ["lightmq"], "deny": {"publish": ["lightmq/kitchen/up"]}}}}
    )
    kitchen = board(desk, f"kitchen:{_TOKEN}")
    assert kitchen.say(kitchen.codec.send(1, b"hot")) == []
    assert kitchen.why_closed == "it may not publish 'lightmq/kitchen/up'"
    assert desk.discarded == {"access.publish": 1}


@pytest.mark.parametrize("may", [True, False])
def test_calls_are_governed(may: bool) -> None:
    """By FMQP and by LightMQ: a call is a question under one path, whoever asks."""
    rules: dict[str, Any] = {
        "roles": {"everybody": {"connect": ["**"]}},
        "principals": {"alice": {}, "hall": {}},
    }
    if may:
        rules["principals"] = {"alice": {"call": ["kitchen"]}, "hall": {"call": ["kitchen"]}}
    desk = guarded(rules)
    kitchen = board(desk, f"kitchen:{_TOKEN}")
    alice = desk.open(peer=listener("alice"))
    for end in ("reply", "done"):
        desk.sub(alice, f"lightmq/kitchen/{end}/1")
        desk.sub(alice, f"lightmq/kitchen/{end}/*")  # never others' answers
    desk.pub(alice, "lightmq/kitchen/request/1", b"ask")
    desk.pub(alice, "lightmq/hall/request/1", b"ask")
    desk.pub(alice, "lightmq/*/request/1", b"ask")
    caller = board(desk, "hall:hall-token-of-many-letters>kitchen")
    caller.say(caller.codec.send(7, b"call"))
    asked = kitchen.sends()
    assert [each.data for each in asked] == ([b"ask", b"call"] if may else [])
    for each in asked:
        kitchen.say(kitchen.codec.sendresp(each.id, b"answer"))
    answers = [
        (0, "lightmq/kitchen/reply/1", b"answer"),
        (0, "lightmq/kitchen/done/1", b"answered"),
    ]
    assert desk.messages(alice) == (answers if may else [])
    assert caller.heard() == ([SendResp(7, b"answer")] if may else [])
    assert caller.closed != may


def test_a_password_is_looked_at_elsewhere() -> None:
    """Its connection is not read meanwhile, and others are served."""
    desk = guarded({"roles": {"users": {"connect": ["lightmq"]}}})
    alice = Board(desk)
    done = desk.send(alice.connection, alice.codec.connect("alice:swordfish"))
    (login,) = done.logins
    assert (login.connection, login.encoded, login.secret) == (alice.connection, _HASH, "swordfish")
    assert "swordfish" not in repr(login)
    assert (alice.connection, "login") in desk.held
    assert alice.say(alice.codec.ping(5)) == []
    other = board(desk, f"kitchen:{_TOKEN}")
    assert other.say(other.codec.send(1, b"x")) == [SendResp(1, b"")]
    desk.done(desk.broker.logged_in(alice.connection, True, desk.now))
    heard = alice.heard()
    assert heard[0] == Connack(0, accepted=True)
    assert len(heard) == 2  # the PONG
    assert (alice.connection, "login") not in desk.held


@pytest.mark.parametrize("right", [False, None])
def test_a_wrong_password_is_refused(right: bool | None) -> None:
    desk = guarded({"roles": {"users": {"connect": ["lightmq"]}}})
    alice = Board(desk)
    desk.send(alice.connection, alice.codec.connect("alice:swordfish"))
    desk.done(desk.broker.logged_in(alice.connection, right, desk.now))
    assert alice.heard() == [Connack(4, accepted=False)]
    assert "swordfish" not in alice.why_closed


def test_a_client_that_leaves_before_its_password_was_looked_at() -> None:
    desk = guarded({"roles": {"users": {"connect": ["lightmq"]}}})
    alice = Board(desk)
    desk.send(alice.connection, alice.codec.connect("alice:swordfish"))
    desk.close(alice.connection)
    desk.done(desk.broker.logged_in(alice.connection, True, desk.now))
    assert alice.heard() == []


def test_failed_logins_have_to_wait_in_simulated_time() -> None:
    desk = guarded({"roles": {"users": {"connect": ["lightmq"]}}})
    for _ in range(2):
        assert not Board(desk).connect("kitchen:wrong").accepted
    assert not Board(desk).connect(f"kitchen:{_TOKEN}").accepted
    assert Board(desk).connect("hall:hall-token-of-many-letters").accepted
    desk.advance(1.0)
    assert Board(desk).connect(f"kitchen:{_TOKEN}").accepted


def test_many_subscriptions_are_judged_anew_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_module, "_JUDGED_AT_ONCE", 20)
    all_of_it = {"connect": ["**"], "subscribe": ["a/*", "b"], "publish": ["**"]}
    desk = guarded({"roles": {"everybody": all_of_it}})
    publisher, *clients = [desk.open() for _ in range(31)]
    for client in clients:
        desk.sub(client, "a/1")
        desk.sub(client, "b")

    def heard(topic: str) -> int:
        desk.pub(publisher, topic, b"x")
        return sum(bool(desk.messages(client)) for client in clients if client not in desk.left)

    assert heard("a/1") == heard("b") == 30
    access = desk.broker.access

    def allow(*paths: str) -> None:
        rules = {"roles": {"everybody": {**all_of_it, "subscribe": list(paths)}}}
        access.change(access.users, Rules.read(rules))
        desk.broker.access_changed(desk.now)
        desk.done()

    allow("b")
    assert 20 < heard("a/1") < 30
    late = desk.open()
    desk.sub(late, "a/1")  # is judged by the rules of now
    desk.send(clients[-1], encode_subscription("a/1", unsubscribe=True))
    desk.close(clients.pop())
    before = heard("a/1")
    desk.broker.tick(desk.now)
    desk.done()
    assert 0 < heard("a/1") < before
    allow("a/*")  # from the first one on, again
    desk.advance(1)
    assert desk.broker.next_deadline() is None
    assert heard("b") == 0
    assert heard("a/1") > 0
    allow()
    desk.advance(1)
    assert heard("a/1") == 0
    assert desk.messages(late) == []


def test_other_rules_count_from_now_on_and_nobody_is_dropped() -> None:
    everybody = {"connect": ["**"], "subscribe": ["a", "b"]}
    desk = guarded({"roles": {"everybody": {**everybody, "publish": ["a"]}}})
    watcher, client = desk.open(peer=listener("alice")), desk.open(peer=listener("bob"))
    for topic in ("a", "b"):
        desk.sub(watcher, topic)

    def say() -> list[Any]:
        desk.pub(client, "a", b"1")
        desk.pub(client, "b", b"2")
        return desk.messages(watcher)

    assert say() == [(0, "a", b"1")]
    access = desk.broker.access
    access.change(
        access.users, Rules.read({"roles": {"everybody": {**everybody, "publish": ["b"]}}})
    )
    desk.done(desk.broker.access_changed(desk.now))
    assert say() == [(0, "b", b"2")]
    less = {"connect": ["**"], "subscribe": ["a"], "publish": ["a", "b"]}
    access.change(access.users, Rules.read({"roles": {"everybody": less}}))
    desk.done(desk.broker.access_changed(desk.now))
    assert say() == [(0, "a", b"1")]
    assert desk.closes == []


class _Counting(Access):
    """Counts what it is asked about publishing."""

    asked = 0

    def allows(self, principal: Any, action: Any, path: Any, *, prefix: bool = False) -> Any:
        self.asked += action == "publish"
        return super().allows(principal, action, path, prefix=prefix)


def test_who_comes_back_need_not_have_its_topics_judged_anew() -> None:
    """A board that sleeps between its readings; rules or users that change make them judged."""
    rules = {"roles": {"everybody": {"connect": ["**"], "subscribe": ["**"], "publish": ["a/**"]}}}
    access = _Counting(Users.read({"users": _USERS}), Rules.read(rules), [PATHS])
    desk = Desk(access=access)
    watcher = desk.open(peer=listener("alice"))
    desk.sub(watcher, "*/*")
    topics = [f"a/{number}" for number in range(9)]

    def visit() -> None:
        client = desk.open(peer=listener("bob"))
        desk.send(client, b"".join(pack(0, topic.encode(), b"1") for topic in topics))
        desk.pub(client, "b/0", b"refused")
        desk.close(client)

    visit()
    assert access.asked >= len(topics) + 1
    asked = access.asked
    heard = [(0, topic, b"1") for topic in topics]
    assert desk.messages(watcher) == heard
    why = 1  # is asked for the log, each time somebody is refused
    for _ in range(3):
        visit()
        asked += why
        assert access.asked == asked
        assert desk.messages(watcher) == heard
    other = desk.open(peer=listener("alice"))
    desk.sub(other, "a/3")  # who gets it has changed, not who may say it
    visit()
    assert access.asked == asked + why
    assert desk.messages(other) == [(0, "a/3", b"1")]
    assert desk.messages(watcher) == heard
    desk.done(desk.broker.access_changed(desk.now))
    asked = access.asked
    visit()
    assert access.asked >= asked + len(topics) + 1
    less = {key: value for key, value in _USERS.items() if key != "bob"}
    access.change(Users.read({"users": less}), Rules.read({}))
    desk.messages(watcher)
    desk.done(desk.broker.access_changed(desk.now))
    visit()
    assert desk.messages(watcher) == []


def test_who_comes_with_many_names_makes_the_broker_remember_no_more_topics() -> None:
    """Each ClientID is somebody, whose topics are marked in a table of its own."""
    desk = guarded({"roles": {"everybody": {"connect": ["**"], "publish": ["t/**"]}}})
    boards = [board(desk, f"b{number}", listener="lightmq+fmqp") for number in range(40)]
    for visitor in boards:
        for first in range(0, 2000, 200):
            topics = [b"t/%d" % number for number in range(first, first + 200)]
            visitor.say(visitor.codec.send(1, b"".join(pack(0, topic, b"x") for topic in topics)))
    tables = [desk.broker._topics_of_connection(each.connection) for each in boards]
    marked = [table.marked for table in tables]
    assert marked[-1] > 0
    assert sum(marked) <= MAX_JUDGED
    assert desk.broker.stats.publications >= 40 * 2000
