"""fq's logins are those of the broker's users, and both connections are one principal."""

from typing import Any

from host_broker.access.access import Access
from host_broker.access.access import Peer as From
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.protocols.fq.codec import (
    PERMANENT,
    REFUSED,
    spell_bind,
    spell_greeting,
    spell_login,
)
from host_broker.protocols.fq.events import BindAnswer, CommandGreeting, LoginAccepted
from tests.host_broker.desk import Desk, Done
from tests.host_broker.protocols.fq.peer import Peer, fq_desk

_SECRET = b"a-token-of-many-letters"
_CAROLS = b"another-of-many-letters"
_HASH = "$argon2id$v=19$m=65536,t=3,p=4$aaaa$bbbb"
_USERS: dict[str, Any] = {
    "alice": {"token": token_hash(_SECRET.decode())},
    "bob": {"password": _HASH},
    "carol": {"token": token_hash(_CAROLS.decode())},
}
_RULES: dict[str, Any] = {
    "roles": {"users": {"connect": ["fq"]}},
    "principals": {
        "alice": {"publish": ["hall/**"], "subscribe": ["hall/**", "fq/mine"]},
        "bob": {"subscribe": ["**"]},
    },
}


def _desk() -> Desk:
    return fq_desk(access=Access(Users.read({"users": _USERS}), Rules.read(_RULES)))


def _says(desk: Desk, queue: bytes, *bindings: bytes) -> tuple[bytes, Done]:
    """What alice is told who says a login and permanent bindings in one read, and what is done."""
    command = desk.open("fq", peer=From("127.0.0.1"))
    login = spell_greeting(CommandGreeting()) + spell_login(b"alice", queue, _SECRET)
    done = desk.send(
        command, login + b"".join(spell_bind(PERMANENT, each, b"prefix:") for each in bindings)
    )
    return desk.got(command), done


def test_without_users_nobody_looks_at_the_password() -> None:
    """A1: the name is the sender all the same (R23)."""
    desk = fq_desk()
    publisher, consumer = Peer(desk, b"p", b"alice", b"wrong"), Peer(desk, b"c", b"", b"")
    consumer.bind(b"ex", b"prefix:")
    publisher.publish(b"ex", b"r", b"1")
    assert [each.sender for each in consumer.heard()] == [b"alice"]


def test_a_wrong_secret_is_refused() -> None:
    """R8: who is not a user, too, and who says nothing."""
    desk = _desk()
    for user in (b"alice", b""):
        assert Peer(desk, b"", user, b"wrong").error == b"access denied"


def test_a_password_is_looked_at_elsewhere_and_what_came_meanwhile_waits() -> None:
    """R12: in order, whatever came in the same read."""
    desk = _desk()
    command = desk.open("fq", peer=From("127.0.0.1"))
    done = desk.send(
        command,
        spell_greeting(CommandGreeting())
        + spell_login(b"bob", b"q\0mem", b"password")
        + spell_bind(0, b"ex", b"prefix:"),
    )
    (login,) = done.logins
    assert (login.encoded, login.secret) == (_HASH, "password")
    assert desk.got(command) == b""
    desk.broker.logged_in(command, True, desk.now)
    desk.done()
    said = desk.got(command)
    assert said[:2] == b"\xaa\x00"
    assert said[-8:-4] == b"\xbe\xa7\xb1\x71"
    assert not desk.closes


def test_both_connections_have_the_same_rights() -> None:
    """The data connection says no name, and acts as the client whose key it has."""
    desk = _desk()
    alice = Peer(desk, b"mine", b"alice", _SECRET)
    assert type(alice.answers[0]) is LoginAccepted
    assert alice.bind(b"hall", b"prefix:") != REFUSED
    assert alice.bind(b"attic", b"prefix:") == REFUSED
    assert alice.bind(b"hal", b"prefix:") == REFUSED
    alice.publish(b"hall", b"temp", b"20")
    alice.publish(b"attic", b"temp", b"no")
    assert alice.payloads() == [b"20"]
    assert desk.discarded["access.publish"] == 1
    assert not alice.data_is_closed


def test_the_right_to_a_queue() -> None:
    """A queue without a name is the client's own, and needs none."""
    desk = _desk()
    assert Peer(desk, b"others", b"alice", _SECRET).error == b"access denied"
    own = Peer(desk, b"", b"alice", _SECRET)
    assert own.bind(b"hall", b"prefix:") != REFUSED
    own.publish(b"hall", b"temp", b"20")
    assert own.payloads() == [b"20"]
    desk.broker.access_changed(desk.now)
    desk.done()
    own.publish(b"hall", b"temp", b"21")
    assert own.payloads() == [b"21"]
    assert desk.failures == []


def test_a_queue_that_is_there_needs_the_right_too() -> None:
    """Who may not use it does not keep others from it, bind it, or make it transient."""
    desk = _desk()
    bob = desk.open("fq", peer=From("127.0.0.1"))
    desk.send(
        bob,
        spell_greeting(CommandGreeting())
        + spell_login(b"bob", b"bobs\0mem:public,permanent", b"x"),
    )
    desk.broker.logged_in(bob, True, desk.now)
    desk.done()
    assert desk.got(bob).startswith(b"\xaa\x00")
    said, done = _says(desk, b"bobs\0mem:public,transient", b"hall")
    assert said == b"\xee\xee\x00\x0daccess denied"
    assert not done.changes
    assert list(desk.broker.queues) == [b"fq/bobs"]


def test_of_a_queue_that_is_refused_nothing_stays() -> None:
    """Whatever else was said in the same read: no queue of the bus, no rows of the tables."""
    desk = _desk()
    said, done = _says(desk, b"others\0mem:permanent", b"hall")
    assert said == b"\xee\xee\x00\x0daccess denied"
    assert not done.changes
    assert not desk.broker.queues
    assert type(Peer(desk, b"mine", b"alice", _SECRET).answers[0]) is LoginAccepted


def test_a_binding_that_is_refused_is_refused_twice() -> None:
    """It would be made by the tables at the next start, whoever has said it."""
    desk = _desk()
    said, done = _says(desk, b"mine\0mem:permanent", b"attic", b"attic", b"hall", b"hall")
    refused = b"\xb1\x71\xff\xff\xff\xff"
    answers = said[said.index(b"\xbe\xa7\xb1\x71") + 2 :]
    assert answers[:12] == refused + refused
    assert answers[12:18] == answers[18:24] != refused
    kept = [statement.values for _, statement in done.changes if "binding" in statement.text]
    assert [values[0] for values in kept] == [b"hall"]
    assert (
        len(desk.broker._bus.subscriptions_of(desk.broker._bus.queue_subscriber(b"fq/mine"))) == 2
    )


def _reload(desk: Desk, **principals: Any) -> Done:
    """Have other rights, as after a reload."""
    rules = {**_RULES, "principals": {**_RULES["principals"], **principals}}
    access = desk.broker.access
    access.change(Users.read({"users": _USERS}), Rules.read(rules))
    desk.broker.access_changed(desk.now)
    return desk.done()


def test_bindings_end_with_the_right_to_them() -> None:
    """With their rows; others stay, and what was waiting is still the queue's."""
    desk = _desk()
    alice = Peer(desk, b"mine\0mem:permanent", b"alice", _SECRET)
    gone, stays = alice.bind(b"hall", b"prefix:", PERMANENT), alice.bind(b"hall", b"exact:a")
    assert REFUSED not in (gone, stays)
    done = _reload(desk, alice={"publish": ["hall/**"], "subscribe": ["hall/a", "fq/mine"]})
    (forgotten,) = (statement for _, statement in done.changes)
    assert forgotten.text.startswith("DELETE FROM binding")
    assert forgotten.values[-1] == b"prefix:"
    alice.publish(b"hall", b"b", b"no")
    alice.publish(b"hall", b"a", b"yes")
    assert alice.payloads() == [b"yes"]
    assert alice.unbind(gone, b"hall") == REFUSED
    assert alice.bind(b"hall", b"prefix:") == REFUSED
    assert desk.discarded["access.subscribe"] >= 1


def test_a_binding_stays_as_long_as_one_may_have_it_who_wanted_it() -> None:
    """Whoever else has bound the queue so, and whoever is still connected."""
    both = {"publish": ["hall/**"], "subscribe": ["hall/**", "fq/shared"]}
    less = {"publish": ["hall/**"], "subscribe": ["fq/shared"]}
    desk = _desk()
    _reload(desk, alice=both, carol=both)
    alice, carol = (
        Peer(desk, b"shared\0mem:public", name, secret)
        for name, secret in ((b"alice", _SECRET), (b"carol", _CAROLS))
    )
    route = alice.bind(b"hall", b"prefix:")
    assert carol.bind(b"hall", b"prefix:") == route
    _reload(desk, alice=less, carol=both)
    alice.publish(b"hall", b"r", b"1", b"2")
    assert alice.payloads() + carol.payloads() == [b"1", b"2"]
    carol.close()
    _reload(desk, alice=less, carol=less)
    alice.publish(b"hall", b"r", b"3")
    assert alice.payloads() == []
    assert alice.status()["no_route"] == 1


def test_who_may_not_have_a_binding_does_not_make_it_permanent() -> None:
    """The binding is known, as another client of the queue has it."""
    desk = _desk()
    less = {"subscribe": ["fq/mine"]}
    carol = {"subscribe": ["hall/**", "fq/mine"]}
    _reload(desk, alice=less, carol=carol)
    first = Peer(desk, b"mine\0mem:public,permanent", b"carol", _CAROLS)
    route = first.bind(b"hall", b"prefix:")
    other = Peer(desk, b"mine\0mem:public", b"alice", _SECRET)
    done = desk.send(other.command, spell_bind(PERMANENT, b"hall", b"prefix:"))
    assert not done.changes
    assert other.told() == [BindAnswer(REFUSED)]
    first.desk.send(other.command, spell_bind(0, b"hall", b"prefix:"))
    assert first.bind(b"hall", b"prefix:", 0) == route
    done = desk.send(first.command, spell_bind(PERMANENT, b"hall", b"prefix:"))
    assert len(done.changes) == 1


def test_who_may_not_use_its_queue_any_more_is_disconnected() -> None:
    """Or it would keep a private queue from others, and wait for ever."""
    desk = _desk()
    alice = Peer(desk, b"mine", b"alice", _SECRET)
    _reload(desk, alice={"subscribe": ["hall/**"]})
    assert alice.data_is_closed
    desk.close(alice.data)
    assert alice.is_closed
