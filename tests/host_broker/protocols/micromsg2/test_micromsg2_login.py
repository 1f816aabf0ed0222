"""Who a MicroMsg2 client is: its identity, a secret by an extension, the edge."""

from typing import Any

import pytest

from host_broker.access.access import Access
from host_broker.access.access import Peer as EdgePeer
from host_broker.access.backoff import LoginBackoff
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.protocols.micromsg2.codec import Codec, spell_extension, spell_handshake
from host_broker.protocols.micromsg2.events import ErrorFrame, Handshake
from host_broker.protocols.micromsg2.grammar import read_extensions
from tests.host_broker.desk import Desk
from tests.host_broker.protocols.micromsg2 import peer
from tests.host_broker.protocols.micromsg2.peer import micromsg2_desk, payloads

_TOKEN = "kitchen-token-of-many-letters"
_HASH = "$argon2id$v=19$m=65536,t=3,p=4$aaaa$bbbb"
_REFUSED = ErrorFrame("this client may not connect with this name")


def _desk(**rules: Any) -> Desk:
    everybody = {"roles": {"everybody": {"connect": ["micromsg2"], "subscribe": ["a"]}}}
    kitchen = {"principals": {"kitchen": {"publish": ["**"]}, "ann": {"publish": ["**"]}}}
    users = Users.read(
        {"users": {"kitchen": {"token": token_hash(_TOKEN)}, "ann": {"password": _HASH}}}
    )
    access = Access(users, Rules.read(rules or everybody | kitchen), backoff=LoginBackoff(2, 10.0))
    return micromsg2_desk(access=access)


class _Arriving:
    """A client up to its last word of the handshake."""

    def __init__(
        self, desk: Desk, identity: str, required: str = "", edge: EdgePeer | None = None
    ) -> None:
        self.desk = desk
        self.codec = Codec("client")
        self.connection = desk.open("micromsg2", peer=edge or EdgePeer("127.0.0.1"))
        extensions = read_extensions(required.encode())
        self.handshake = spell_handshake(Handshake(1, 0, identity, extensions))
        (answer,) = self.say(self.handshake)
        assert isinstance(answer, Handshake)

    def say(self, data: bytes) -> list[Any]:
        self.desk.send(self.connection, data)
        return list(self.codec.receive_data(self.desk.got(self.connection)))

    @property
    def why(self) -> str:
        return "".join(c.reason for c in self.desk.closes if c.connection == self.connection)


def test_a_secret_by_the_extension() -> None:
    """R23: it is the first extension frame, and what comes behind it in one read waits for it."""
    desk = _desk()
    reader = peer.Peer(desk, identity="reader")
    assert reader.subscribe("topic/a") == []
    kitchen = _Arriving(desk, "kitchen", "x-motemq-login;batch-ack")
    send = bytes.fromhex("000001") + b"\x07topic/a" + bytes.fromhex("000001") + b"1"
    secret = spell_extension(1, _TOKEN.encode())
    (ack,) = kitchen.say(kitchen.handshake + secret + send)
    assert (ack.index, ack.payload) == (2, b"\0\1")
    assert payloads(reader.heard()) == [b"1"]
    assert [client for _, _, client, _ in desk.journal()] == ["kitchen"]


def test_an_identity_with_a_secret() -> None:
    """For programs that know no more than the document: ``NAME:SECRET``, as in LightMQ."""
    desk = _desk()
    kitchen = _Arriving(desk, f"kitchen:{_TOKEN}")
    assert kitchen.say(kitchen.handshake) == []
    kitchen.say(bytes.fromhex("000001") + b"\x07topic/a" + bytes.fromhex("000001") + b"1")
    assert [client for _, _, client, _ in desk.journal()] == ["kitchen"]


@pytest.mark.parametrize(
    ("identity", "required", "secret"),
    [
        ("kitchen", "x-motemq-login", b"another-token-of-many-letters"),
        ("nobody", "x-motemq-login", _TOKEN.encode()),
        ("kitchen:wrong", "", None),
        ("kitchen", "", None),  # a user's name, and no secret
        ("ann", "", None),
    ],
)
def test_who_is_refused_is_told_an_error(
    identity: str, required: str, secret: bytes | None
) -> None:
    """R5: ERROR, and the end; it is not said whether there is such a user."""
    desk = _desk()
    client = _Arriving(desk, identity, required)
    events = client.say(client.handshake)
    if secret is not None:
        assert events == []
        events = client.say(spell_extension(1, secret))
        if not events:  # the edge hashes it
            desk.broker.logged_in(client.connection, False, desk.now)
            desk.done()
            events = client.codec.receive_data(desk.got(client.connection))
    elif not events:
        desk.broker.logged_in(client.connection, False, desk.now)
        desk.done()
        events = client.codec.receive_data(desk.got(client.connection))
    assert events == [_REFUSED]
    assert client.why.startswith("access.connect: ")
    assert "another-token" not in client.why
    assert desk.discarded["access.connect"] == 1


def test_a_password_is_hashed_elsewhere() -> None:
    """What the client says meanwhile waits."""
    desk = _desk()
    ann = _Arriving(desk, "ann", "x-motemq-login;ack")
    send = bytes.fromhex("000001") + b"\x07topic/a" + bytes.fromhex("000001") + b"1"
    assert ann.say(ann.handshake + spell_extension(1, b"secret") + send) == []
    assert desk.journal() == []
    assert (ann.connection, "login") in desk.held
    desk.broker.logged_in(ann.connection, True, desk.now)
    desk.done()
    (ack,) = ann.codec.receive_data(desk.got(ann.connection))
    assert ack.payload == b"\0\1"
    assert [client for _, _, client, _ in desk.journal()] == ["ann"]


def test_a_login_that_takes_too_long() -> None:
    """R5: the handshake's time is for all of it."""
    desk = _desk()
    ann = _Arriving(desk, "ann", "x-motemq-login")
    ann.say(ann.handshake)
    desk.advance(10.0)
    assert ann.why.startswith("micromsg2.handshake_timeout_s")
    late = _Arriving(desk, "ann", "x-motemq-login")
    late.say(late.handshake + spell_extension(1, b"secret"))
    desk.advance(10.0)
    assert late.why.startswith("micromsg2.handshake_timeout_s")
    desk.broker.logged_in(late.connection, True, desk.now)


@pytest.mark.parametrize(
    "frame",
    [
        spell_extension(2, _TOKEN.encode()),  # of another extension
        spell_extension(1, b""),
        spell_extension(1, b"\xff"),
        spell_extension(1, b"a:b"),
        b"\x01\x01x",  # a command
        bytes.fromhex("0000010171000001") + b"1",  # a message
    ],
)
def test_nothing_comes_before_the_secret(frame: bytes) -> None:
    desk = _desk()
    kitchen = _Arriving(desk, "kitchen", "x-motemq-login;json")
    (error,) = kitchen.say(kitchen.handshake + frame)
    assert isinstance(error, ErrorFrame)
    assert desk.journal() == []


def test_a_secret_needs_a_name() -> None:
    """R11: which is the identity."""
    desk = _desk()
    client = _Arriving(desk, "", "x-motemq-login")
    (error,) = client.say(client.handshake)
    assert "needs an identity" in error.reason


def test_who_the_edge_knows() -> None:
    """R8, R11: by its certificate, account or listener: with that name, or without an identity."""
    desk = _desk()
    edge = EdgePeer("127.0.0.1", listener="kitchen")
    send = bytes.fromhex("000001") + b"\x07topic/a" + bytes.fromhex("000001") + b"1"
    for identity in ("kitchen", ""):
        client = _Arriving(desk, identity, edge=edge)
        assert client.say(client.handshake + send) == []
        assert [client for _, _, client, _ in desk.journal()] == ["kitchen"]
    other = _Arriving(desk, "other", edge=edge)
    assert other.say(other.handshake) == [_REFUSED]
    unknown = _Arriving(desk, "")
    assert unknown.say(unknown.handshake) == []


def test_who_may_not_connect() -> None:
    """R6: the connection ends with an ERROR before anything is done."""
    desk = _desk(roles={"everybody": {"connect": ["fmqp"]}})
    client = _Arriving(desk, "anybody")
    assert client.say(client.handshake) == [_REFUSED]
    assert "may not connect by MicroMsg2" in client.why


def test_without_users_an_identity_is_what_it_says() -> None:
    """R11: opaque, and in the journal as it is; a secret is taken, and nobody asks for it."""
    desk = micromsg2_desk()
    send = bytes.fromhex("000001") + b"\x07topic/a" + bytes.fromhex("000001") + b"1"
    for identity in ("urn:board:7", "kitchen", ""):
        client = _Arriving(desk, identity)
        assert client.say(client.handshake + send) == []
        assert [client for _, _, client, _ in desk.journal()] == [identity]
    client = _Arriving(desk, "kitchen", "x-motemq-login")
    assert client.say(client.handshake + spell_extension(1, b"secret") + send) == []
    assert [client for _, _, client, _ in desk.journal()] == ["kitchen"]
