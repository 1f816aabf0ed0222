"""How secrets are compared: in a time that does not tell how much of a guess is right.

A guess is never compared itself but its hash, and by ``compare_digest``. Nobody can measure that
here, so it is looked for in two ways: the verdict at each door is that of ``compare_digest``, and
no code compares in another way what is named like a secret.
"""

import ast
import asyncio
import base64
import contextlib
import hmac
import json
import re
import select
import socket
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import argon2
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from boards.bridge.token_gate import TokenGate
from host_broker.access import users
from host_broker.access.access import NOBODYS_HASH, Access, Undecided
from host_broker.access.access import Peer as EdgePeer
from host_broker.access.backoff import LoginBackoff
from host_broker.access.rules import Rules
from host_broker.access.users import Users, token_hash
from host_broker.net.access.passwords import PasswordChecks, hash_password, is_password
from host_broker.net.http.principals import HttpAccess
from host_broker.net.http.site import application
from host_broker.net.live_settings import LiveSettings
from host_broker.protocols.lightmq import admission
from host_broker.protocols.micromsg2.codec import Codec, spell_extension, spell_handshake
from host_broker.protocols.micromsg2.events import ErrorFrame, Handshake
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.settings import HttpSettings, Settings
from host_broker.stats import Stats
from tests.host_broker.desk import Desk
from tests.host_broker.lightmq_peer import Peer
from tests.host_broker.protocols.micromsg2.peer import micromsg2_desk
from tests.host_broker.protocols.umq.peer import UmqPeer, umq_desk

_ROOT = Path(__file__).parents[2]
_RIGHT, _WRONG = "kitchen-token-of-many-letters", "another-token-of-many-letters"
_ENCODED = hash_password("swordfish")


def _access() -> Access:
    kept = {"kitchen": {"token": token_hash(_RIGHT)}, "alice": {"password": _ENCODED}}
    rules = Rules.read({"roles": {"users": {"connect": ["**"]}}})
    return Access(Users.read({"users": kept}), rules, backoff=LoginBackoff(1000))


# ---- every door: whether it lets in who says a secret ----


def _lightmq(secret: str) -> bool:
    return Peer(Desk(access=_access())).connect(f"kitchen:{secret}").accepted


def _lightmq_without_users(secret: str) -> bool:
    desk = Desk(lightmq={"clients": {"kitchen": token_hash(_RIGHT)}})
    return Peer(desk).connect(f"kitchen:{secret}").accepted


def _micromsg2(identity: str, required: str, secret: str) -> bool:
    desk, codec = micromsg2_desk(access=_access()), Codec("client")
    connection = desk.open("micromsg2", peer=EdgePeer("127.0.0.1"))
    handshake = spell_handshake(Handshake(1, 0, identity, read_extensions(required.encode())))
    desk.send(connection, handshake)
    desk.send(connection, handshake + (spell_extension(1, secret.encode()) if required else b""))
    return not any(
        isinstance(event, ErrorFrame) for event in codec.receive_data(desk.got(connection))
    )


def _micromsg2_extension(secret: str) -> bool:
    return _micromsg2("kitchen", "x-motemq-login", secret)


def _micromsg2_identity(secret: str) -> bool:
    return _micromsg2(f"kitchen:{secret}", "", secret)


async def _asked(authorization: str, access: Access, token: str = "") -> int:
    routes = web.RouteTableDef()

    @routes.get("/page")
    async def page(_: web.Request) -> web.Response:
        return web.Response()

    live = LiveSettings(Settings(http=HttpSettings(token=token)))
    checks = PasswordChecks(live)
    site = application(live, [routes], set(), HttpAccess(access, checks, Stats()))
    async with TestClient(TestServer(site)) as client:
        answer = await client.get("/page", headers={"Authorization": authorization})
    checks.close()
    assert answer.status in (200, 401)
    return answer.status


def _http_bearer(secret: str) -> bool:
    return asyncio.run(_asked(f"Bearer {secret}", _access())) == 200


def _http_basic(secret: str) -> bool:
    encoded = base64.b64encode(f"kitchen:{secret}".encode()).decode()
    return asyncio.run(_asked(f"Basic {encoded}", _access())) == 200


def _http_token(secret: str) -> bool:
    return asyncio.run(_asked(f"Bearer {secret}", Access(), token_hash(_RIGHT))) == 200


def _umq(desk: Desk, hello: dict[str, str]) -> bool:
    client = UmqPeer(desk, peer=EdgePeer("127.0.0.1"))
    client.heard()
    (answer, *_) = client.say(f"H1:{json.dumps(hello)}")
    return str(answer).startswith("W1:")


def _umq_token(secret: str) -> bool:
    return _umq(umq_desk(access=_access()), {"token": secret})


def _umq_password(secret: str) -> bool:
    return _umq(umq_desk(access=_access()), {"user": "kitchen", "password": secret})


def _umq_http_token(secret: str) -> bool:
    desk = umq_desk()
    desk.broker.settings_changed(Settings(http=HttpSettings(token=token_hash(_RIGHT))))
    return _umq(desk, {"token": secret})


def _exposed_port(secret: str) -> bool:
    gate = TokenGate(_RIGHT.encode(), lambda _: None)
    caller, held = socket.socketpair()
    held.setblocking(False)
    with caller, held:
        gate.add(held, "a caller", 0.0)
        caller.sendall(secret.encode() + b"\n")
        assert select.select([held], [], [], 10)[0]
        return bool(gate.hear({held.fileno(): select.POLLIN}, 0.0))


_DOORS: tuple[Callable[[str], bool], ...] = (
    _lightmq,
    _lightmq_without_users,
    _micromsg2_extension,
    _micromsg2_identity,
    _http_bearer,
    _http_basic,
    _http_token,
    _umq_token,
    _umq_password,
    _umq_http_token,
    _exposed_port,
)


_BY_TOKEN = (_http_bearer, _umq_token)


class _Comparisons:
    """What ``compare_digest`` was asked; ``verdict``: what it says, None = the truth."""

    def __init__(self) -> None:
        self.asked: list[set[bytes]] = []
        self.verdict: bool | None = None

    def compare(self, one: Any, other: Any) -> bool:
        self.asked.append({_raw(one), _raw(other)})
        return _compare(one, other) if self.verdict is None else self.verdict


_compare = hmac.compare_digest


def _raw(digest: str | bytes) -> bytes:
    """A hash as bytes, however it is kept."""
    if isinstance(digest, bytes):
        return digest
    with contextlib.suppress(ValueError):
        return bytes.fromhex(digest.removeprefix("sha256:"))
    return digest.encode()


@pytest.fixture
def comparisons(monkeypatch: pytest.MonkeyPatch) -> _Comparisons:
    found = _Comparisons()
    monkeypatch.setattr(hmac, "compare_digest", found.compare)
    for module in (users, admission):  # they have it by its own name
        monkeypatch.setattr(module, "compare_digest", found.compare)
    return found


@pytest.mark.parametrize("door", _DOORS)
def test_a_secret_is_right_if_its_digest_is(
    door: Callable[[str], bool], comparisons: _Comparisons
) -> None:
    """With ``==`` in its place a door would let in whom ``compare_digest`` denies."""
    plain = door is _exposed_port  # which keeps its token itself, for one run
    assert door(_RIGHT)
    assert not door(_WRONG)
    guess = _WRONG.encode() if plain else sha256(_WRONG.encode()).digest()
    kept = _RIGHT.encode() if plain else sha256(_RIGHT.encode()).digest()
    assert any(guess in asked for asked in comparisons.asked)
    assert {kept} in comparisons.asked
    comparisons.verdict = False
    assert not door(_RIGHT)


@pytest.mark.parametrize("door", [door for door in _DOORS if door not in _BY_TOKEN])
def test_a_wrong_secret_is_refused_by_nothing_else(
    door: Callable[[str], bool], comparisons: _Comparisons
) -> None:
    """Nothing looks at it before. (A bearer's user is searched for by the hash of the token.)"""
    comparisons.verdict = True
    assert door(_WRONG)


@pytest.mark.parametrize("name", ["kitchen", "nobody", "alice"])
def test_a_name_that_is_nobodys_is_compared_too(name: str, comparisons: _Comparisons) -> None:
    access = _access()
    access.log_in(name, _WRONG, "10.0.0.1", 0.0)
    assert len(comparisons.asked) == 1
    access.log_in_by_token(_WRONG, "10.0.0.1", 0.0)
    assert len(comparisons.asked) == 2


# ---- passwords ----


def test_a_wrong_password_and_an_unknown_name_take_the_same_work() -> None:
    """argon2 compares in constant time by itself; what it costs is in the hash."""
    hashed: list[str] = []

    def verify(encoded: str, password: str) -> bool:
        hashed.append(encoded)
        return is_password(encoded, password)

    async def main() -> None:
        access, checks = _access(), PasswordChecks(LiveSettings(Settings()), verify)
        for name, secret in (("alice", "swordfisH"), ("nobody", "swordfisH")):
            asked = access.log_in(name, secret, "10.0.0.1", 0.0)
            assert isinstance(asked, Undecided)
            assert await checks.check(asked.encoded, asked.secret) is False
        checks.close()

    asyncio.run(main())
    assert hashed == [_ENCODED, NOBODYS_HASH]
    one, other = map(argon2.extract_parameters, hashed)
    assert one == other


# ---- what is written ----

_SECRET = re.compile(r"secret|token|passw|digest|hmac|credential", re.IGNORECASE)
_LOOKS = ("startswith", "endswith", "find", "index", "count", "__eq__", "fullmatch", "match")


def _names(node: ast.AST) -> Iterator[str]:
    """The names in an expression that say what its value is, not those of what it is made of."""
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Call):
        yield from _names(node.func)
        if isinstance(node.func, ast.Attribute):
            yield from _names(node.func.value)
    elif isinstance(node, ast.Subscript):
        yield from _names(node.value)
    elif isinstance(node, ast.BoolOp | ast.BinOp | ast.Tuple | ast.List | ast.Set):
        for each in ast.iter_child_nodes(node):
            yield from _names(each)


def _is_constant(node: ast.AST) -> bool:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return all(_is_constant(each) for each in node.elts)
    return isinstance(node, ast.Constant)


def suspicious(source: str) -> list[str]:
    """Comparisons of what is named like a secret with what is not a constant."""
    found = []
    for node in ast.walk(ast.parse(source)):
        compared: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            if not all(
                isinstance(one, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for one in node.ops
            ):
                continue
            compared = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr not in _LOOKS or not node.args:
                continue
            compared = [node.func.value, *node.args]
        if not compared or any(_is_constant(each) for each in compared):
            continue
        if any(_SECRET.search(name) for each in compared for name in _names(each)):
            found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize(
    "source",
    [
        "token == self._token",
        "if sha256(given).hexdigest() != kept: pass",
        "hashed in self.digests",
        "kept.secret.startswith(given)",
        "given.startswith(password)",
        "user.token == token_hash(given)",
        "x = a == self._secret or b",
    ],
)
def test_a_comparison_of_secrets_is_found(source: str) -> None:
    assert suspicious(source)


@pytest.mark.parametrize("source", ["token == ''", "token is None", "x == y", "'a' in secret"])
def test_no_other_comparison_is(source: str) -> None:
    assert not suspicious(source)


# What is compared by its value, and why it may be.
_REASONS = {
    "digests of files, which are no secrets": {
        ("boards/virtual/esp32/image.py", "digest != flash.read(position, len(digest))"),
        ("boards/session/installation.py", "found.get(path) != digest"),
        (
            "boards/session/own_files.py",
            "words != [hashlib.sha256(content).hexdigest()]",
        ),
        ("boards/flash/image_identity.py", "digest != sha256.lower()"),
        (
            "host_broker/cli/restore.py",
            "(size, digest.hexdigest()) != (expected.size, expected.sha256)",
        ),
    },
    "names of files": {
        ("boards/session/own_files.py", "name == _PASSWORD"),
        ("boards/session/own_files.py", "name != _PASSWORD"),
    },
    "the form of what a user has written into a file or typed": {
        ("host_broker/access/users.py", "password.startswith(_ARGON2)"),
        ("host_broker/access/users.py", "_TOKEN.fullmatch(token)"),
        ("host_broker/protocols/lightmq/settings.py", "_TOKEN.fullmatch(token)"),
        ("host_broker/cli/secret.py", "mark in secret"),
    },
    "a hash with a key that only this process has": {
        ("host_broker/net/access/passwords.py", "digest in self._verified"),
        (
            "host_broker/net/access/passwords.py",
            "self._digest(encoded, password) in self._verified",
        ),
    },
    "a secret that is searched for by its digest": {
        ("host_broker/access/sessions.py", "self.find(token, now)"),
    },
    "the digest of http.token before it was changed, and after it": {
        ("host_broker/net/service.py", "each.proof == http.token"),
    },
    "a user's hash before a password was looked at, and after it": {
        ("host_broker/access/access.py", "self.users.password_of(name) == undecided.encoded"),
    },
}


def test_nothing_compares_a_secret_by_its_value() -> None:
    found = {
        (str(path.relative_to(_ROOT)), comparison)
        for package in ("boards", "client_upy", "firmware", "host_broker", "motemq", "pipeline")
        for path in (_ROOT / package).rglob("*.py")
        for comparison in suspicious(path.read_text())
    }
    assert found == {comparison for each in _REASONS.values() for comparison in each}
