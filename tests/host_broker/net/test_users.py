"""Users, their rights and TLS at real sockets: one broker for most of it."""

import base64
import contextlib
import http.client
import os
import pty
import select
import signal
import stat
import subprocess
import tty
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from host_broker.access.users import User, token_hash
from host_broker.client import Client, ConnectionLost, Refused, Timeout, connect
from host_broker.net.access.access_files import write_users
from host_broker.net.access.certificates import make_authority, make_client
from host_broker.net.access.passwords import hash_password
from tests.host_broker.net.broker_process import (
    END_S,
    START_S,
    BrokerProcess,
    broker,
    motemq,
    until,
)

_TOKEN, _PASSWORD = "canary-token-0123456789", "canary-password"
_USERS = {
    "alice": User(password=hash_password(_PASSWORD)),
    "kitchen": User(token=token_hash(_TOKEN)),
    "me": User(uid=os.getuid()),
    "desk": User(certificate=True),
}
_RULES = """
[roles.users]
connect = ["**"]
subscribe = ["%c/**", "lightmq/**"]
[principals.me]
subscribe = ["**"]
publish = ["**"]
[principals.desk]
publish = ["desk/**"]
[principals.alice]
publish = ["site/**"]
deny.publish = ["site/alarm"]
journal = ["site/**", "groups"]
[principals.board]
publish = ["board/**"]
"""


@dataclass
class Guarded:
    running: BrokerProcess
    folder: Path
    authority: Path
    said: str = ""  # by the broker, on stderr

    @property
    def port(self) -> int:
        return self.running.ports["auto"]

    def hang_up(self) -> str:
        """Send SIGHUP and return the line that the broker says to it."""
        self.running.process.send_signal(signal.SIGHUP)
        stderr = self.running.process.stderr
        assert stderr is not None
        while True:
            ready, _, _ = select.select([stderr], [], [], START_S)
            assert ready, self.said
            line = stderr.readline().decode()
            self.said += line
            if "SIGHUP" in line:
                return line

    def me(self) -> Client:
        """Connect as who has all rights, by a unix socket."""
        return connect(f"fmqp+unix://{self.folder}/me.sock")

    def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        with contextlib.closing(client):
            client.request(method, path, body, headers)
            answer = client.getresponse()
            return answer.status, answer.read().decode(errors="replace")


def _write(folder: Path, users: dict[str, User] = _USERS, rules: str = _RULES) -> None:
    write_users(folder / "users.toml", users)
    (folder / "rules.toml").write_text(rules)


def _options(folder: Path) -> list[str]:
    return [
        *("--set", f"access.users={folder}/users.toml"),
        *("--set", f"access.rules={folder}/rules.toml"),
        *("--set", "access.failed_logins=3"),
    ]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    _write(folder)
    authority = folder / "ca"
    make_authority(authority, ["127.0.0.1"], 1)
    for name in ("desk", "stranger"):
        make_client(authority, name, 1)
    tls = urllib.parse.urlencode(
        {
            "cert": authority / "server.pem",
            "key": authority / "server-key.pem",
            "client_ca": authority / "ca.pem",
        }
    )
    listen = [
        "auto://127.0.0.1:0",
        "lightmq+fmqp://127.0.0.1:0",
        f"autos://127.0.0.1:0?{tls}",
        f"auto+unix://{folder}/me.sock",
        f"fmqp+unix://{folder}/board.sock?principal=board",
    ]
    options = [word for address in listen for word in ("--listen", address)]
    with broker(*options, "--data", str(folder / "data"), *_options(folder)) as running:
        found = Guarded(running, folder, authority)
        yield found
        code, stderr = running.end()
        assert code == 0
        assert "may not publish" in found.said + stderr
        for secret in (_TOKEN, _PASSWORD, "wrong-secret"):
            assert secret not in found.said + stderr


def test_lightmq_clients_log_in(guarded: Guarded, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{_TOKEN}\n")
    url = f"lightmq://127.0.0.1:{guarded.port}/kitchen"
    with guarded.me() as watcher:
        watcher.subscribe("lightmq/kitchen/*", confirm=True)
        with connect(f"{url}?token_file={secret}") as kitchen:
            kitchen.publish("up", b"hot")
            kitchen.sync()
        got = [watcher.receive(20.0) for _ in range(3)]
    assert [(each.topic, each.payload) for each in got if each is not None] == [
        ("lightmq/kitchen/status", b"online"),
        ("lightmq/kitchen/up", b"hot"),
        ("lightmq/kitchen/status", b"offline"),
    ]
    with pytest.raises(Refused):
        connect(url)


@pytest.mark.parametrize("variable", ["MOTEMQ_SECRET", "MOTEMQ_SECRET_FILE"])
def test_a_secret_of_the_environment(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{_PASSWORD}\n")
    monkeypatch.setenv(variable, _PASSWORD if variable == "MOTEMQ_SECRET" else str(secret))
    tunnelled = guarded.running.ports["lightmq+fmqp"]
    with connect(f"lightmq+fmqp://127.0.0.1:{tunnelled}/alice") as alice, guarded.me() as me:
        me.subscribe("site/*", confirm=True)
        alice.publish("site/lamp", b"on")
        alice.publish("site/alarm", b"off")
        alice.publish("site/lamp", b"off")
        alice.sync()
        got = [me.receive(20.0) for _ in range(2)]
        assert [each.payload for each in got if each is not None] == [b"on", b"off"]


def test_a_wrong_secret_has_to_wait(guarded: Guarded, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("wrong-secret-of-many-letters")
    for _ in range(3):
        with pytest.raises(Refused):
            connect(f"lightmq://127.0.0.1:{guarded.port}/nobody?token_file={secret}")
    basic = base64.b64encode(b"nobody:wrong-secret").decode()
    status, text = guarded.ask("GET", "/stats", Authorization=f"Basic {basic}")
    assert status == 429
    assert "wait after failed logins" in text


def test_http_asks_who_it_is(guarded: Guarded) -> None:
    assert guarded.ask("GET", "/stats")[0] == 401
    bearer = {"Authorization": f"Bearer {_TOKEN}"}
    basic = {"Authorization": "Basic " + base64.b64encode(f"alice:{_PASSWORD}".encode()).decode()}
    assert guarded.ask("GET", "/stats", Authorization="Bearer wrong-secret")[0] == 401
    assert guarded.ask("GET", "/stats", Authorization="Basic ???")[0] == 401
    assert guarded.ask("GET", "/stats", Authorization="Digest x")[0] == 401
    status, text = guarded.ask("GET", "/stats", **bearer)
    assert status == 403
    assert "'kitchen' may not subscribe '$/info/stats'" in text
    with guarded.me() as me:
        me.subscribe("site/*", confirm=True)
        assert guarded.ask("POST", "/publish/site/lamp", b"on", **basic)[0] == 200
        status, text = guarded.ask("POST", "/publish/site/alarm", b"off", **basic)
        assert status == 403
        assert '[principals.alice] deny.publish = \\"site/alarm\\"' in text
        assert guarded.ask("POST", "/publish/site/lamp", b"off", **bearer)[0] == 403
        packets = b"\0\x09\0\0\0\x01site/lamp2" + b"\0\x0a\0\0\0\x01site/alarm2"
        both = {**basic, "Content-Type": "application/x-fmqp"}
        assert guarded.ask("POST", "/publish", packets, **both)[0] == 403
        assert guarded.ask("POST", "/publish", packets[:16], **both)[0] == 200
        got = [me.receive(20.0) for _ in range(2)]
        assert [each.payload for each in got if each is not None] == [b"on", b"2"]
    assert guarded.ask("GET", "/journal", **basic)[0] == 200
    assert guarded.ask("GET", "/journal", **bearer)[0] == 403
    assert guarded.ask("GET", "/journal/0?from=0", **basic)[0] == 403
    assert guarded.ask("GET", "/journal/0?from=0&topics=site/lamp", **basic)[0] in (200, 204)
    assert guarded.ask("PUT", "/journal/groups/x", b"{}", **basic)[0] == 403
    assert guarded.ask("DELETE", "/journal/groups/x", **basic)[0] == 403


def test_what_is_refused_is_logged_with_who_and_which_line(guarded: Guarded) -> None:
    """Once for each of them and action, and at most a line a second of each action: so each is
    tried until it has its line, which may be of an earlier test here."""
    secret = guarded.folder / "alice"
    secret.write_text(_PASSWORD)
    tunnel = f"lightmq+fmqp://127.0.0.1:{guarded.running.ports['lightmq+fmqp']}/alice"

    def publish(url: str) -> None:
        with connect(url) as client:
            client.publish("site/alarm", b"off")
            client.sync()

    def request() -> None:
        guarded.ask("POST", "/publish/site/x", b"off", Authorization=f"Bearer {_TOKEN}")

    def no_secret() -> None:
        with pytest.raises(Refused):
            connect(f"micromsg2://127.0.0.1:{guarded.port}/kitchen")

    for act, words in [
        (
            lambda: publish(f"fmqp+unix://{guarded.folder}/board.sock"),
            "may not publish 'site/alarm': no rule lets 'board' publish there",
        ),
        (
            lambda: publish(f"{tunnel}?token_file={secret}"),
            "'alice' at 127.0.0.1 may not publish 'site/alarm': [principals.alice] deny.publish",
        ),
        (request, "'kitchen' at 127.0.0.1 may not publish 'site/"),
        (no_secret, "'anonymous' at 127.0.0.1 may not connect by "),
    ]:

        def told(act: Callable[[], None] = act, words: str = words) -> bool:
            act()
            guarded.hang_up()
            return words in guarded.said

        until(told)


def test_by_fmqp_a_publisher_is_not_told_that_it_may_not(guarded: Guarded) -> None:
    """It has no word for that: a program sees what came of it only by listening."""
    url = f"fmqp+unix://{guarded.folder}/board.sock"
    with guarded.me() as me:
        me.subscribe("site/*", "board/*", confirm=True)
        for topic in ("site/lamp", "board/lamp"):
            argv = motemq("pub", url, topic, "on")
            done = subprocess.run(argv, capture_output=True, text=True, timeout=END_S)
            assert (done.returncode, done.stderr) == (0, "")
        message = me.receive(20.0)
        assert message is not None
        assert message.topic == "board/lamp"


def test_a_certificate_says_who_it_is(guarded: Guarded) -> None:
    port, ca = guarded.running.ports["autos"], guarded.authority
    tls = f"ca={ca}/ca.pem&cert={ca}/%s.pem&key={ca}/%s-key.pem"
    with guarded.me() as me:
        me.subscribe("desk/*", confirm=True)
        with connect(f"fmqps://127.0.0.1:{port}?{tls % ('desk', 'desk')}") as desk:
            desk.publish("site/lamp", b"forged")
            desk.publish("desk/lamp", b"on")
            desk.sync()
        message = me.receive(20.0)
        assert message is not None
        assert (message.topic, message.payload) == ("desk/lamp", b"on")
    # A certificate of our CA whose name is no user's: nobody we know.
    with (
        pytest.raises(ConnectionLost),
        connect(f"fmqps://127.0.0.1:{port}?{tls % ('stranger', 'stranger')}") as stranger,
    ):
        stranger.sync()
    with connect(f"lightmqs://127.0.0.1:{port}/desk?{tls % ('desk', 'desk')}") as desk:
        desk.sync()
    with pytest.raises(Refused):
        connect(f"lightmqs://127.0.0.1:{port}/kitchen?{tls % ('desk', 'desk')}")


def test_a_board_behind_a_bridge_is_itself(guarded: Guarded) -> None:
    """Not the bridge, whose account of the system may do everything here."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    to = f"fmqp+unix://{guarded.folder}/board.sock"
    argv = [*motemq("bridge", "--serial", os.ttyname(slave)), "--to", to]
    bridge = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert bridge.stdout is not None
    try:
        assert b"bridging" in bridge.stdout.readline()
        with guarded.me() as me:
            me.subscribe("board/*", confirm=True)
            me.subscribe("site/*", confirm=True)
            forged = b"\0\x09\0\0\0\x01site/lampx"
            terminate = b"\0\x13\0\0\0\x01$/signals/terminatex"
            assert len(terminate) == 26
            os.write(master, forged + terminate + b"\0\x09\0\0\0\x01board/lamx")
            message = me.receive(30.0)
        assert message is not None
        assert message.topic == "board/lam"
        assert guarded.running.process.poll() is None
    finally:
        bridge.terminate()
        bridge.communicate(timeout=END_S)
        os.close(master)
        os.close(slave)


def test_users_and_rules_are_loaded_again(guarded: Guarded, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(_TOKEN)
    url = f"lightmq+fmqp://127.0.0.1:{guarded.running.ports['lightmq+fmqp']}/kitchen"
    try:
        with guarded.me() as me, connect(f"{url}?token_file={secret}") as kitchen:
            me.subscribe("new/*", confirm=True)

            def say() -> list[bytes]:
                """What comes of publishing; by me, who is always heard, last."""
                kitchen.publish("new/lamp", b"by kitchen")
                kitchen.publish("kitchen/x", b"")
                kitchen.sync()
                me.publish("new/lamp", b"by me")
                got = []
                while not got or got[-1] != b"by me":
                    message = me.receive(20.0)
                    assert message is not None
                    got.append(message.payload)
                return got

            assert say() == [b"by me"]
            more = _RULES + '[principals.kitchen]\npublish = ["new/*"]\n'
            _write(guarded.folder, rules=more)
            assert "users and rules are loaded again" in guarded.hang_up()
            assert say() == [b"by kitchen", b"by me"]
            # What cannot be read changes nothing.
            (guarded.folder / "rules.toml").write_text("[roles.x]\nshout = []\n")
            assert "[roles.x]: 'shout' is no action" in guarded.hang_up()
            assert say() == [b"by kitchen", b"by me"]
            users = {name: user for name, user in _USERS.items() if name != "kitchen"}
            _write(guarded.folder, users)
            guarded.hang_up()
            with pytest.raises(Timeout):  # it is not even told that the broker is there
                kitchen.sync(1.0)
            with pytest.raises(Refused):
                connect(f"{url}?token_file={secret}")
            _write(guarded.folder, rules=more)
            guarded.hang_up()
            kitchen.publish("new/lamp", b"by the same connection")
            message = me.receive(20.0)
            assert message is not None
            assert message.payload == b"by the same connection"
    finally:
        _write(guarded.folder)
        guarded.hang_up()


# ---- brokers that do not start ----


def _fails(*arguments: str) -> tuple[int, str]:
    result = subprocess.run(
        motemq("broker", "--ephemeral", *arguments), capture_output=True, text=True, timeout=END_S
    )
    return result.returncode, result.stderr


def test_other_machines_need_tls_and_authentication(tmp_path: Path) -> None:
    make_authority(tmp_path / "ca", ["127.0.0.1"], 1)
    cert = f"cert={tmp_path}/ca/server.pem&key={tmp_path}/ca/server-key.pem"
    _write(tmp_path)
    for address, words in [
        ("auto://0.0.0.0:0", "without encryption and authentication"),
        (f"auto://0.0.0.0:0?{cert}", "without encryption and authentication"),
        (f"autos://0.0.0.0:0?{cert}", "without authentication"),
    ]:
        code, stderr = _fails("--listen", address)
        assert code == 1
        assert words in stderr
        assert "--insecure-bind" in stderr
    code, stderr = _fails("--listen", "auto://0.0.0.0:0", *_options(tmp_path))
    assert (code, "without encryption and authentication" in stderr) == (1, True)
    # What a listener says of everybody proves nothing.
    code, stderr = _fails(
        "--listen", f"fmqps://0.0.0.0:0?{cert}&principal=kitchen", *_options(tmp_path)
    )
    assert (code, "principal=NAME is nobody's proof" in stderr) == (1, True)
    # Neither does a name alone, which one client of this list has.
    clients = tmp_path / "clients.toml"
    clients.write_text(f'[lightmq.clients]\nhall = "{token_hash("x")}"\nkitchen = ""\n')
    listed = ("--config", str(clients))
    code, stderr = _fails("--listen", f"lightmqs://0.0.0.0:0?{cert}", *listed)
    assert (code, "without authentication" in stderr) == (1, True)
    proved = tmp_path / "proved.toml"
    proved.write_text(f'[lightmq.clients]\nhall = "{token_hash("x")}"\n')
    for address, options in [
        (f"autos://0.0.0.0:0?{cert}&client_ca={tmp_path}/ca/ca.pem", []),
        (f"autos://0.0.0.0:0?{cert}", _options(tmp_path)),
        (f"lightmqs://0.0.0.0:0?{cert}", ["--config", str(proved)]),
    ]:
        with broker("--listen", address, *options) as running:
            assert running.end() == (0, "")
    two = ("--listen", "auto://0.0.0.0:0", "--listen", f"autos://0.0.0.0:0?{cert}")
    with broker(*two, "--insecure-bind") as running:
        code, stderr = running.end()
    assert code == 0
    assert stderr.count("\n") == 1
    assert stderr.startswith("broker: --insecure-bind: auto 0.0.0.0:")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", f"http.token={token_hash('x')}"], "motemq users add NAME --token-file FILE"),
        (["--config", "clients.toml"], "lightmq.clients and access.users exclude each other"),
    ],
)
def test_old_settings_beside_users_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _write(tmp_path)
    Path("clients.toml").write_text('[lightmq.clients]\nkitchen = ""\n')
    code, stderr = _fails(*_options(tmp_path), *options)
    assert code == 1
    assert words in stderr
    assert stderr.count("\n") == 1


def test_files_that_others_can_read_or_write_are_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    users, rules = tmp_path / "users.toml", tmp_path / "rules.toml"
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    users.chmod(0o640)
    code, stderr = _fails(*_options(tmp_path))
    assert (code, f"chmod 600 {users}" in stderr) == (1, True)
    users.chmod(0o600)
    rules.chmod(0o666)
    code, stderr = _fails(*_options(tmp_path))
    assert (code, f"chmod o-w {rules}" in stderr) == (1, True)
    rules.write_text("[roles.x]\npublish = ['a**']\n")
    rules.chmod(0o600)
    code, stderr = _fails(*_options(tmp_path))
    assert code == 1
    assert f"{rules}: [roles.x] publish: in 'a**' '**' must be the whole last level" in stderr
    code, stderr = _fails("--set", f"access.rules={rules}")
    assert (code, "access.rules needs access.users" in stderr) == (1, True)


def test_certificates(tmp_path: Path) -> None:
    """By the command; nothing that is there is replaced, and keys are their owner's."""
    folder = tmp_path / "ca"

    def certs(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = motemq("certs", *arguments)
        return subprocess.run(argv, capture_output=True, text=True, timeout=END_S)

    made = certs("init", str(folder), "--host", "broker.lan", "--host", "10.0.0.1")
    assert made.returncode == 0, made.stderr
    assert certs("init", str(folder)).returncode == 1
    added = certs("add", str(folder), "kitchen")
    assert added.returncode == 0, added.stderr
    again = certs("add", str(folder), "kitchen")
    assert (again.returncode, "is there already" in again.stderr) == (1, True)
    for name in ("../x", "a>b"):
        assert certs("add", str(folder), name).returncode == 2
    files = [Path(line) for line in (made.stdout + added.stdout).splitlines()]
    assert sorted(files) == sorted(folder.iterdir())
    for file in files:
        private = "-key" in file.name
        assert stat.S_IMODE(file.stat().st_mode) == (0o600 if private else 0o644)
    nowhere = certs("add", str(tmp_path / "nowhere"), "x")
    assert nowhere.returncode == 1
    assert "'motemq certs init' makes a CA" in nowhere.stderr
