"""Users, rules, and who is who: the pure side."""

import pytest

from host_broker.access.access import Accepted, Access, Peer, Refused, Undecided
from host_broker.access.backoff import LoginBackoff
from host_broker.access.principal import ANONYMOUS, Principal
from host_broker.access.rights import ECHO
from host_broker.access.rules import Rules, RulesError
from host_broker.access.users import Users, UsersError, token_hash
from host_broker.client_session import ECHO_TOPICS

_HASH = "$argon2id$v=19$m=65536,t=3,p=4$aaaa$bbbb"
_USERS = {
    "users": {
        "alice": {"password": _HASH},
        "kitchen": {"token": token_hash("a long random token")},
        "root": {"uid": 0},
        "bridge": {"certificate": True},
    }
}
_RULES = {
    "roles": {
        "everybody": {"connect": ["fmqp"]},
        "users": {"publish": ["%c/**"], "connect": ["lightmq"]},
        "operators": {
            "subscribe": ["**"],
            "publish": ["site/**"],
            "deny": {"publish": ["site/alarm/**"]},
        },
    },
    "principals": {
        "alice": {"roles": ["operators"], "signal": ["$/signals/stop"]},
        "anonymous": {"subscribe": ["public"]},
    },
}


def _access() -> Access:
    return Access(Users.read(_USERS), Rules.read(_RULES), backoff=LoginBackoff(failures=2))


def _user(name: str) -> Principal:
    return Principal(name, "token")


def test_the_echo_is_where_clients_have_it() -> None:
    assert ECHO_TOPICS.encode() == ECHO


@pytest.mark.parametrize(
    ("who", "action", "path", "allowed", "rule"),
    [
        ("alice", "publish", "site/lamp", True, '[roles.operators] publish = "site/**"'),
        ("alice", "publish", "site", True, '[roles.operators] publish = "site/**"'),
        (
            "alice",
            "publish",
            "site/alarm/1",
            False,
            '[roles.operators] deny.publish = "site/alarm/**"',
        ),
        ("alice", "publish", "site/*/1", False, '[roles.operators] deny.publish = "site/alarm/**"'),
        ("alice", "publish", "site/*", False, '[roles.operators] deny.publish = "site/alarm/**"'),
        ("alice", "publish", "*/lamp", False, "None"),
        ("alice", "publish", "alice/x", True, '[roles.users] publish = "%c/**"'),
        ("alice", "publish", "kitchen/x", False, "None"),
        ("alice", "subscribe", "*/*", True, '[roles.operators] subscribe = "**"'),
        ("alice", "subscribe", "**", True, '[roles.operators] subscribe = "**"'),
        ("alice", "signal", "$/signals/stop", True, '[principals.alice] signal = "$/signals/stop"'),
        ("alice", "signal", "$/signals/terminate", False, "None"),
        ("kitchen", "publish", "kitchen/x", True, '[roles.users] publish = "%c/**"'),
        ("kitchen", "publish", "site/lamp", False, "None"),
        ("kitchen", "subscribe", "motemq/echo/0123", True, "None"),
        ("kitchen", "subscribe", "motemq/echo/*", False, "None"),
        ("anonymous", "subscribe", "public", True, '[principals.anonymous] subscribe = "public"'),
        ("anonymous", "publish", "anonymous/x", False, "None"),
        ("anonymous", "connect", "lightmq", False, "None"),
    ],
)
def test_rules_decide(who: str, action: str, path: str, allowed: bool, rule: str) -> None:
    principal = ANONYMOUS if who == "anonymous" else _user(who)
    decision = _access().allows(principal, action, path)  # type: ignore[arg-type]
    assert (bool(decision), str(decision.rule)) == (allowed, rule)
    assert decision.reason


def test_the_rules_of_several_roles_are_searched_at_once_as_long_as_memory_allows() -> None:
    """Each of 30 principals has its own pair of roles out of 61, of 200 patterns each."""
    areas = {f"area{n}": {"publish": [f"a{n}/{i}/**" for i in range(200)]} for n in range(61)}
    people = {f"p{n}": {"roles": [f"area{2 * n}", f"area{2 * n + 1}"]} for n in range(30)}
    rules = Rules.read({"roles": areas, "principals": people})
    assert rules.count == 61 * 200
    users = Users.read({"users": {name: {} for name in people}})
    access = Access(users, rules)
    for number in range(30):
        principal = _user(f"p{number}")
        for area in (2 * number, 2 * number + 1):
            decision = access.allows(principal, "publish", f"a{area}/199/x")
            assert str(decision.rule) == f'[roles.area{area}] publish = "a{area}/199/**"'
        assert not access.allows(principal, "publish", f"a{(2 * number + 2) % 60}/199/x")
    parts = [len(list(rules.of(f"p{number}", known=True))) for number in range(30)]
    assert parts == [2] * 25 + [3] * 5  # its own, and one or two of its roles


def test_who_only_says_so_is_nobody() -> None:
    """A ClientID without a secret gives no rights of the user of that name."""
    claimed = Principal("anonymous", "claimed", client="alice")
    access = _access()
    assert not access.allows(claimed, "publish", "site/lamp")
    assert not access.allows(claimed, "publish", "alice/x")


def test_without_users_the_brokers_own_account_administrates() -> None:
    access = Access(own_uid=998)
    for peer, may in [
        (Peer(uid=998), True),
        (Peer(uid=0), False),
        (Peer(), False),
        (Peer("127.0.0.1", certificate="uid:998"), True),  # our CA has signed that
        (Peer("10.0.0.1", loopback=False), False),
    ]:
        principal = access.identify(peer)
        assert bool(access.allows(principal, "admin", "backup")) == may, peer
        assert not access.allows(principal, "signal", "$/signals/stop")


def test_a_user_who_was_removed_may_nothing() -> None:
    access = _access()
    assert access.allows(_user("alice"), "publish", "site/lamp")
    access.change(Users.read({"users": {}}), Rules.read(_RULES))
    decision = access.allows(_user("alice"), "publish", "site/lamp")
    assert not decision
    assert "is no more" in decision.reason


@pytest.mark.parametrize(
    ("peer", "name", "kind"),
    [
        (Peer(), "anonymous", "anonymous"),
        (Peer(certificate="bridge", uid=0, listener="x"), "bridge", "certificate"),
        (Peer(certificate="alice"), "anonymous", "anonymous"),  # she has none
        (Peer(certificate="stranger", listener="boards"), "boards", "listener"),
        (Peer(uid=0), "root", "unix"),
        (Peer(uid=7), "uid:7", "unix"),
        (Peer(uid=0, listener="kitchen"), "kitchen", "listener"),
    ],
)
def test_who_a_connection_is(peer: Peer, name: str, kind: str) -> None:
    principal = _access().identify(peer)
    assert (principal.name, principal.kind) == (name, kind)


def test_logins() -> None:
    access = _access()
    verdict = access.log_in("kitchen", "a long random token", "10.0.0.1", 0.0)
    assert verdict == Accepted(Principal("kitchen", "token"))
    assert access.log_in_by_token("a long random token", "10.0.0.1", 0.0) == verdict
    asked = access.log_in("alice", "secret", "10.0.0.1", 0.0)
    assert isinstance(asked, Undecided)
    assert "secret" not in repr(asked)
    assert access.settle(asked, True, "10.0.0.1", 0.0) == Accepted(Principal("alice", "password"))
    # Nobody learns from the time it takes whether there is such a user.
    assert isinstance(access.log_in("nobody", "secret", "10.0.0.1", 0.0), Undecided)


def test_a_name_whose_user_has_only_a_token_is_answered_at_once() -> None:
    """docs/security.md says so. A thousand boards with an old token must not have the broker hash
    a thousand times; that somebody has a token is no secret."""
    verdict = _access().log_in("kitchen", "a wrong long token", "10.0.0.1", 0.0)
    assert isinstance(verdict, Refused)


def test_a_password_that_was_changed_while_it_was_looked_at_is_wrong() -> None:
    access = _access()
    asked = access.log_in("alice", "old", "10.0.0.1", 0.0)
    assert isinstance(asked, Undecided)
    access.change(Users.read({"users": {"alice": {"password": _HASH + "x"}}}), None)
    assert isinstance(access.settle(asked, True, "10.0.0.1", 0.0), Refused)


def test_nobody_is_let_in_by_a_hash_that_nobody_has() -> None:
    access = _access()
    asked = access.log_in("nobody", "secret", "10.0.0.1", 0.0)
    assert isinstance(asked, Undecided)
    assert isinstance(access.settle(asked, True, "10.0.0.1", 0.0), Refused)


def test_failed_logins_have_to_wait() -> None:
    access = _access()
    for _ in range(2):
        assert isinstance(access.log_in("kitchen", "wrong", "10.0.0.1", 0.0), Refused)
    right = access.log_in("kitchen", "a long random token", "10.0.0.1", 0.5)
    assert isinstance(right, Refused)
    assert right.wait_s == 0.5
    assert "wrong" not in right.reason
    assert isinstance(access.log_in("kitchen", "a long random token", "10.0.0.1", 1.0), Accepted)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"roles": {"x": {"shout": ["a"]}}}, "'shout' is no action"),
        ({"roles": {"x": {"publish": "a"}}}, "must be a list of texts"),
        ({"roles": {"x": {"publish": ["a*"]}}}, "'*' must be a whole level"),
        ({"groups": {}}, "unknown table [groups]"),
        ({"principals": {"x": {"roles": ["gods"]}}}, "has the role 'gods', which is nowhere"),
        ({"roles": {"x": {"roles": ["y"]}}}, "'roles' is no action"),
        ({"roles": 5}, "[roles] must be a table"),
    ],
)
def test_what_is_no_acl(document: dict[str, object], words: str) -> None:
    with pytest.raises(RulesError) as raised:
        Rules.read(document)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"x": {"password": "swordfish"}}, "password is no argon2id hash"),
        ({"x": {"token": "swordfish"}}, "token must be sha256:"),
        ({"x": {"uid": -1}}, "uid must be a whole number"),
        ({"x": {"pin": 1}}, "unknown key 'pin'"),
        ({"anonymous": {}}, "a name has no"),
        ({"a>b": {}}, "a name has no"),
        ({"a": {"uid": 1}, "b": {"uid": 1}}, "have one uid"),
    ],
)
def test_what_is_no_list_of_users(entry: dict[str, object], words: str) -> None:
    with pytest.raises(UsersError) as raised:
        Users.read({"users": entry})
    assert words in str(raised.value)
    assert "swordfish" not in str(raised.value)  # it may be a secret, put there by mistake
