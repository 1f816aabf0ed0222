"""Who a connection is, by protocol and by proof: each cell of docs/security.md's table, on one
broker. Who it is shows in what it may publish: ``who/NAME/…`` may nobody but NAME."""

import base64
import contextlib
import http.client
import os
import shutil
import socket
import ssl
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from host_broker.access.users import User, token_hash
from host_broker.client import Client, ClientError, Refused, connect
from host_broker.net.access.access_files import write_users
from host_broker.net.access.certificates import make_authority, make_client
from host_broker.net.access.passwords import hash_password
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.net.fq_client import fq_client

_TOKEN, _PASSWORD = "kitchen-token-of-many-letters", "swordfish"
_USERS = {
    "kitchen": User(token=token_hash(_TOKEN)),
    "alice": User(password=hash_password(_PASSWORD)),
    "me": User(uid=os.getuid()),
    "desk": User(certificate=True),
}
_RULES = """
[roles.everybody]
connect = ["**"]
publish = ["who/%c/**"]
[principals.anonymous]
publish = ["who/anonymous/**"]
[principals.me]
subscribe = ["**"]
"""
_WAIT_S = 20.0


def _named(protocol: str, port: int, name: str) -> str:
    """Return host and port, with a client's name."""
    if protocol == "fq":
        return f"{name}@127.0.0.1:{port}" if name else f"127.0.0.1:{port}"
    return f"127.0.0.1:{port}/{name}"


@dataclass
class Table:
    """The broker, and the one who hears what is published at ``who/…``."""

    running: BrokerProcess
    folder: Path
    watcher: Client

    def url(self, protocol: str, proof: str, name: str = "") -> str:
        """Return a client's address: of a listener, with a name, with files that prove it."""
        secrets = {"token": "kitchen", "password": "alice"}
        if proof in ("unix", "listener"):
            path = self.folder / ("me.sock" if proof == "unix" else "board.sock")
            if protocol == "lightmq+fmqp":
                path = path.with_suffix(".tunnel")
            option = "user" if protocol == "fq" else "client_id"
            return f"{protocol}+unix://{path}" + (f"?{option}={name}" if name else "")
        tunnel = protocol == "lightmq+fmqp"
        if proof == "certificate":
            port = self.running.ports["lightmq+fmqps" if tunnel else "autos"]
            ca = self.folder / "ca"
            files = {"ca": "ca.pem", "cert": "desk.pem", "key": "desk-key.pem"}
            query = urllib.parse.urlencode({key: ca / file for key, file in files.items()})
            return f"{protocol}s://{_named(protocol, port, name)}?{query}"
        port = self.running.ports["lightmq+fmqp" if tunnel else "auto"]
        query = f"?token_file={self.folder / secrets[proof]}" if proof in secrets else ""
        return f"{protocol}://{_named(protocol, port, name)}{query}"

    def hears(self, topic: str) -> bool:
        """Whether the next message is of this topic."""
        message = self.watcher.receive(_WAIT_S)
        return message is not None and message.topic == topic


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    folder = tmp_path_factory.mktemp("principals")
    write_users(folder / "users.toml", _USERS)
    (folder / "rules.toml").write_text(_RULES)
    (folder / "kitchen").write_text(_TOKEN)
    (folder / "alice").write_text(_PASSWORD)
    make_authority(folder / "ca", ["127.0.0.1"], 1)
    make_client(folder / "ca", "desk", 1)
    files = {"cert": "server.pem", "key": "server-key.pem", "client_ca": "ca.pem"}
    tls = urllib.parse.urlencode({key: folder / "ca" / file for key, file in files.items()})
    listen = [
        *("auto://127.0.0.1:0", "lightmq+fmqp://127.0.0.1:0"),
        *(f"autos://127.0.0.1:0?{tls}", f"lightmq+fmqps://127.0.0.1:0?{tls}"),
        *(f"auto+unix://{folder}/me.sock", f"lightmq+fmqp+unix://{folder}/me.tunnel"),
        f"auto+unix://{folder}/board.sock?principal=board",
        f"lightmq+fmqp+unix://{folder}/board.tunnel?principal=board",
    ]
    access = (f"access.users={folder}/users.toml", f"access.rules={folder}/rules.toml")
    options = [word for address in listen for word in ("--listen", address)]
    options += [word for each in access for word in ("--set", each)]
    with (
        broker(*options) as running,
        connect(f"fmqp+unix://{folder}/me.sock") as watcher,
    ):
        watcher.subscribe("who/*/*", confirm=True)
        watcher.subscribe("lightmq/*/up", confirm=True)
        yield Table(running, folder, watcher)


@pytest.mark.parametrize(
    ("protocol", "proof", "says", "is_"),
    [
        ("fmqp", "certificate", "", "desk"),
        ("fmqp", "unix", "", "me"),
        ("fmqp", "listener", "", "board"),
        ("fmqp", "", "", "anonymous"),
        ("lightmq+fmqp", "token", "kitchen", "kitchen"),
        ("lightmq+fmqp", "password", "alice", "alice"),
        ("lightmq+fmqp", "certificate", "desk", "desk"),
        ("lightmq+fmqp", "unix", "me", "me"),
        ("lightmq+fmqp", "listener", "board", "board"),
        ("lightmq+fmqp", "", "guest", "guest, anonymous"),
        ("micromsg2", "token", "kitchen", "kitchen"),
        ("micromsg2", "password", "alice", "alice"),
        ("micromsg2", "certificate", "desk", "desk"),
        ("micromsg2", "certificate", "", "desk"),
        ("micromsg2", "unix", "me", "me"),
        ("micromsg2", "unix", "", "me"),
        ("micromsg2", "listener", "", "board"),
        ("micromsg2", "", "guest", "guest, anonymous"),
        ("micromsg2", "", "", "anonymous"),
        ("fq", "token", "kitchen", "kitchen"),
        ("fq", "password", "alice", "alice"),
        ("fq", "certificate", "desk", "desk"),
        ("fq", "certificate", "", "desk"),
        ("fq", "unix", "me", "me"),
        ("fq", "unix", "", "me"),
        ("fq", "listener", "board", "board"),
        ("fq", "listener", "", "board"),
    ],
)
def test_who_a_client_is(table: Table, protocol: str, proof: str, says: str, is_: str) -> None:
    with connect(table.url(protocol, proof, says), timeout_s=_WAIT_S) as client:
        for name in is_.split(", "):
            topic = f"who/{name}/{protocol}"
            client.publish(f"topic/{topic}" if protocol == "micromsg2" else topic, b"here")
            assert table.hears(topic)


@pytest.mark.parametrize(
    ("proof", "says"),
    [
        *(("token", "kitchen"), ("password", "alice"), ("certificate", "desk"), ("unix", "me")),
        *(("listener", "board"), ("", "guest")),
    ],
)
def test_who_a_lightmq_client_is(table: Table, proof: str, says: str) -> None:
    """It speaks under its own name only."""
    with connect(table.url("lightmq", proof, says), timeout_s=_WAIT_S) as client:
        client.publish("up", b"here")
        assert table.hears(f"lightmq/{says}/up")


@pytest.mark.parametrize(
    ("protocol", "proof", "says"),
    [
        ("lightmq", "", "kitchen"),  # a user's name, and no secret
        ("lightmq", "password", "kitchen"),  # somebody else's
        ("lightmq", "certificate", "alice"),
        ("lightmq", "unix", "alice"),
        ("lightmq", "listener", "alice"),
        ("micromsg2", "", "kitchen"),
        ("micromsg2", "password", "kitchen"),
        ("micromsg2", "certificate", "alice"),
        ("micromsg2", "unix", "alice"),
        ("micromsg2", "listener", "alice"),
        ("fq", "", "kitchen"),
        ("fq", "", "guest"),  # nobody's name, which fq has no other word for than a user
        ("fq", "password", "kitchen"),
        ("fq", "certificate", "alice"),
        ("fq", "unix", "alice"),
        ("fq", "listener", "alice"),
    ],
)
def test_who_is_somebody_else_is_refused(
    table: Table, protocol: str, proof: str, says: str
) -> None:
    with pytest.raises(Refused):
        connect(table.url(protocol, proof, says), timeout_s=_WAIT_S)


def test_who_says_nothing_by_fq_and_proves_nothing_is_anonymous(table: Table) -> None:
    with fq_client(table.running.ports["auto"], b"", b"") as client:
        client.publish(b"who", b"anonymous/fq", b"here")
        assert table.hears("who/anonymous/fq")


def test_the_sender_of_fq_is_who_has_proved_it(table: Table) -> None:
    """R23: also where the login said no user."""
    url = table.url("fq", "unix")
    with connect(f"{url}?path=desk/mem:private", timeout_s=_WAIT_S) as client:
        client.subscribe("who/*", confirm=True)
        client.publish("who/me/sender", b"here")
        message = client.receive(_WAIT_S)
        assert message is not None
        assert message.properties["fq.sender"] == "me"
    assert table.hears("who/me/sender")


class _UnixHttp(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_WAIT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_WAIT_S)
        self.sock.connect(str(self._path))


@pytest.mark.parametrize(
    ("proof", "is_"),
    [
        *(("bearer", "kitchen"), ("basic", "alice"), ("basic-token", "kitchen")),
        *(("certificate", "desk"), ("unix", "me"), ("", "anonymous")),
    ],
)
def test_who_a_request_is_of(table: Table, proof: str, is_: str) -> None:
    basics = {"basic": f"alice:{_PASSWORD}", "basic-token": f"kitchen:{_TOKEN}"}
    headers = {}
    if proof == "bearer":
        headers = {"Authorization": f"Bearer {_TOKEN}"}
    elif proof in basics:
        encoded = base64.b64encode(basics[proof].encode()).decode()
        headers = {"Authorization": f"Basic {encoded}"}
    client: http.client.HTTPConnection
    if proof == "unix":
        client = _UnixHttp(table.folder / "me.sock")
    elif proof == "certificate":
        ca = table.folder / "ca"
        context = ssl.create_default_context(cafile=str(ca / "ca.pem"))
        context.load_cert_chain(ca / "desk.pem", ca / "desk-key.pem")
        port = table.running.ports["autos"]
        client = http.client.HTTPSConnection("127.0.0.1", port, timeout=_WAIT_S, context=context)
    else:
        client = http.client.HTTPConnection(
            "127.0.0.1", table.running.ports["auto"], timeout=_WAIT_S
        )
    with contextlib.closing(client):
        for name, status in ((is_, 200), ("nobody", 403)):
            client.request("POST", f"/publish/who/{name}/http", b"here", headers)
            answer = client.getresponse()
            assert (answer.status, b"nobody" in answer.read()) == (status, status == 403)
    assert table.hears(f"who/{is_}/http")


@pytest.mark.parametrize(
    "authorization",
    [
        *(b"Bearer \xff\xfe", b"Bearer", b"Bearer " + b"x" * 4000, b"Basic \xff", b"Basic"),
        b"Basic " + base64.b64encode(b"\xff\xfe:x"),
        b"Basic " + base64.b64encode(b"kitchen"),
        b"Basic " + base64.b64encode(b"nobody:\0"),
        *(b"Negotiate x", b"\xff"),
    ],
)
def test_what_is_no_proof_is_refused(table: Table, authorization: bytes) -> None:
    """Whatever it is: no mistake of the broker's, which a 500 would say."""
    with table.running.raw("auto") as client:
        head = b"POST /publish/who/anonymous/http HTTP/1.1\r\nHost: localhost\r\n"
        client.sendall(head + b"Authorization: %s\r\nContent-Length: 1\r\n\r\nx" % authorization)
        assert client.recv(12) == b"HTTP/1.1 401"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")  # that is the point
@pytest.mark.parametrize(
    ("version", "comes_in"), [(ssl.TLSVersion.TLSv1_1, False), (ssl.TLSVersion.TLSv1_2, True)]
)
def test_nobody_comes_with_an_older_tls(
    table: Table, version: ssl.TLSVersion, comes_in: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(table.folder / "ca" / "ca.pem")
    context.load_cert_chain(table.folder / "ca" / "desk.pem", table.folder / "ca" / "desk-key.pem")
    context.set_ciphers("ALL:@SECLEVEL=0")  # or the client itself would not
    context.minimum_version = context.maximum_version = version
    with table.running.raw("autos") as raw:
        if comes_in:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
                assert secure.version() == "TLSv1.2"
        else:
            with pytest.raises(ssl.SSLError):
                context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_who_has_the_key_of_the_ca_is_anybody(table: Table, tmp_path: Path) -> None:
    """No revocation and no second proof stop a certificate that the stolen key has signed."""
    stolen = tmp_path / "ca"
    stolen.mkdir()
    for file in ("ca.pem", "ca-key.pem"):
        shutil.copy(table.folder / "ca" / file, stolen)
    make_client(stolen, "desk", 1)
    files = {"ca": "ca.pem", "cert": "desk.pem", "key": "desk-key.pem"}
    query = urllib.parse.urlencode({key: stolen / file for key, file in files.items()})
    with connect(f"fmqps://127.0.0.1:{table.running.ports['autos']}?{query}") as thief:
        thief.publish("who/desk/thief", b"forged")
        assert table.hears("who/desk/thief")


def test_which_names_are_users_shows_where_everybody_may_connect(table: Table) -> None:
    """A name that is nobody's is let in without a secret, a user's is not."""
    with connect(table.url("lightmq", "", "nobody-yet"), timeout_s=_WAIT_S):
        pass
    with pytest.raises(ClientError):
        connect(table.url("lightmq", "", "kitchen"), timeout_s=_WAIT_S)
