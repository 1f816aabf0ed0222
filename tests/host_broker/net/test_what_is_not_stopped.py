"""What docs/security.md says is not stopped: each of these attacks works, as it says there.

One that is stopped one day is to leave that page, and this file.
"""

import base64
import contextlib
import http.client
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_broker.access.users import User, token_hash
from host_broker.client import Client, connect
from host_broker.net.access.access_files import write_users
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.net.certificates import Authority

_TOKEN = "canary-token-of-a-kitchen-board"
_WAIT_S = 20.0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    """A broker without users, and its data."""
    data = tmp_path_factory.mktemp("kept") / "data"
    with broker("--listen", "auto://127.0.0.1:0", "--data", str(data)) as running:
        yield running, data


def _at(running: BrokerProcess, name: str = "", protocol: str = "fmqp") -> Client:
    return connect(f"{protocol}://127.0.0.1:{running.ports['auto']}/{name}", timeout_s=_WAIT_S)


def _next(client: Client) -> tuple[str, bytes]:
    message = client.receive(_WAIT_S)
    assert message is not None
    return message.topic, message.payload


def _page(running: BrokerProcess, path: str) -> bytes:
    client = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=_WAIT_S)
    with contextlib.closing(client):
        client.request("GET", path)
        answer = client.getresponse()
        assert answer.status == 200
        return answer.read()


# ---- without users ----


def test_a_stranger_hears_all_and_speaks_anywhere_but_for_others(
    kept: tuple[BrokerProcess, Path],
) -> None:
    running, _ = kept
    with _at(running) as stranger, _at(running, "hall", "lightmq") as board:
        stranger.subscribe("lightmq/hall/*", "site/*", confirm=True)
        board.publish("up", b"private")
        heard = [_next(stranger) for _ in range(2)]
        assert heard == [("lightmq/hall/status", b"online"), ("lightmq/hall/up", b"private")]
        stranger.publish("lightmq/hall/down", b"open the door")
        command = board.receive(_WAIT_S)
        assert command is not None
        assert command.payload == b"open the door"
        assert _next(stranger) == ("lightmq/hall/down", b"open the door")
        stranger.publish("site/alarm", b"off", retain=True)
        assert _next(stranger) == ("site/alarm", b"off")
    with _at(running) as later:
        later.subscribe("site/alarm")
        assert _next(later) == ("site/alarm", b"off")
        later.publish("site/alarm", b"", retain=True)  # and anybody may clear it
    pages = (f"/journal/{partition}?from=0&topics=lightmq/hall/up" for partition in (0, 1))
    assert any(b"private" in _page(running, page) for page in pages)


def test_any_client_id_is_believed(kept: tuple[BrokerProcess, Path]) -> None:
    running, _ = kept
    with _at(running) as watcher:
        watcher.subscribe("lightmq/kitchen/up", confirm=True)
        with _at(running, "kitchen", "lightmq") as impostor:
            impostor.publish("up", b"forged")
            assert _next(watcher) == ("lightmq/kitchen/up", b"forged")


def test_a_secret_that_nobody_asked_for_is_a_name_that_all_see(
    kept: tuple[BrokerProcess, Path], tmp_path: Path
) -> None:
    running, _ = kept
    (tmp_path / "token").write_text(_TOKEN)
    with _at(running) as watcher:
        watcher.subscribe("lightmq/*/status", confirm=True)
        url = f"lightmq://127.0.0.1:{running.ports['auto']}/attic?token_file={tmp_path}/token"
        with connect(url):
            heard = _next(watcher)
            while "attic" not in heard[0]:  # who was there before
                heard = _next(watcher)
            assert heard == (f"lightmq/attic:{_TOKEN}/status", b"online")


def test_who_may_subscribe_learns_who_is_connected(kept: tuple[BrokerProcess, Path]) -> None:
    running, _ = kept
    with _at(running) as watcher:
        watcher.subscribe("lightmq/*/status", "$/info/clients", confirm=True)
        counts = []
        with _at(running, "cellar", "lightmq"):
            seen = {}
            while "lightmq/cellar/status" not in seen or len(counts) < 2:
                topic, payload = _next(watcher)
                seen[topic] = payload
                if topic == "$/info/clients":
                    counts.append(int.from_bytes(payload, "big"))
    assert counts[-1] == counts[0] + 1
    assert seen["lightmq/cellar/status"] == b"online"


def test_a_backup_is_for_whoever_may_read_the_journal(
    kept: tuple[BrokerProcess, Path],
) -> None:
    """All that is in it can be read otherwise, too; with users it needs ``admin``."""
    running, _ = kept
    with _at(running) as client:
        client.publish("site/lamp", b"in the backup", retain=True)
        client.sync()
    assert b"in the backup" in _page(running, "/backup")


# ---- on the broker's machine ----


def test_the_brokers_own_account_reads_its_files_and_its_memory(
    kept: tuple[BrokerProcess, Path],
) -> None:
    """So does root. Nothing that is kept is encrypted."""
    running, data = kept
    canary = b"canary-body-%d" % os.getpid()
    with _at(running) as client:
        client.publish("site/secret", canary, retain=True)
        client.sync()
        _page(running, "/journal")  # what waits is written then
        files = [path for path in data.rglob("*") if path.is_file()]
        assert any(canary in path.read_bytes() for path in files)
        assert _is_in_memory(running.process.pid, canary)


def _is_in_memory(pid: int, what: bytes) -> bool:
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            span, access = line.split()[:2]
            if "w" not in access:
                continue
            start, end = (int(each, 16) for each in span.split("-"))
            memory.seek(start)
            with contextlib.suppress(OSError):
                if what in memory.read(end - start):
                    return True
    return False


# ---- on the way ----


class _Listener:
    """Who is on the way between a client and a broker, and notes what passes."""

    def __init__(self, port: int) -> None:
        self.heard = bytearray()
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with self._server, contextlib.suppress(OSError):
            caller, _ = self._server.accept()
            broker = socket.create_connection(("127.0.0.1", self._port))
            back = threading.Thread(target=self._pass, args=(broker, caller), daemon=True)
            back.start()
            self._pass(caller, broker)
            back.join()
            caller.close()
            broker.close()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self.heard += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)


def _by_client(scheme: str) -> Callable[[int, Path], None]:
    def login(port: int, folder: Path) -> None:
        name = "kitchen" if scheme.startswith(("lightmq", "micromsg2")) else ""
        ca = "&ca=" + str(folder / "ours.pem") if scheme.endswith("s") else ""
        url = f"{scheme}://127.0.0.1:{port}/{name}?token_file={folder}/token{ca}"
        with connect(url, timeout_s=_WAIT_S) as client:
            client.sync(_WAIT_S)

    return login


def _by_request(authorization: str, secure: bool = False) -> Callable[[int, Path], None]:
    def login(port: int, folder: Path) -> None:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=_WAIT_S)
        if secure:
            context = ssl.create_default_context(cafile=str(folder / "ours.pem"))
            client = http.client.HTTPSConnection(
                "127.0.0.1", port, timeout=_WAIT_S, context=context
            )
        with contextlib.closing(client):
            client.request("GET", "/healthz", headers={"Authorization": authorization})
            assert client.getresponse().status == 200

    return login


_BEARER = f"Bearer {_TOKEN}"
_BASIC = "Basic " + base64.b64encode(f"kitchen:{_TOKEN}".encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, Path]]:
    """A broker with a user, with TLS and without."""
    folder = tmp_path_factory.mktemp("guarded")
    write_users(folder / "users.toml", {"kitchen": User(token=token_hash(_TOKEN))})
    (folder / "rules.toml").write_text(
        '[roles.users]\nconnect = ["**"]\npublish = ["**"]\nsubscribe = ["**"]\n'
    )
    (folder / "token").write_text(_TOKEN)
    cert, key = Authority(folder, "ours").issue("broker")
    access = (f"access.users={folder}/users.toml", f"access.rules={folder}/rules.toml")
    options = [word for each in access for word in ("--set", each)]
    listen = ["--listen", "auto://127.0.0.1:0", "--listen", "lightmq+fmqp://127.0.0.1:0"]
    files = f"cert={cert}&key={key}"
    listen += ["--listen", f"autos://127.0.0.1:0?{files}"]
    with broker(*listen, *options) as running:
        yield running, folder


@pytest.mark.parametrize(
    ("at", "login", "said"),
    [
        ("auto", _by_client("lightmq"), _TOKEN),
        ("lightmq+fmqp", _by_client("lightmq+fmqp"), _TOKEN),
        ("auto", _by_client("micromsg2"), _TOKEN),
        ("auto", _by_request(_BEARER), _TOKEN),
        ("auto", _by_request(_BASIC), _BASIC),
    ],
    ids=["lightmq", "lightmq+fmqp", "micromsg2", "bearer", "basic"],
)
def test_without_tls_who_is_on_the_way_has_the_secret(
    guarded: tuple[BrokerProcess, Path], at: str, login: Callable[[int, Path], None], said: str
) -> None:
    running, folder = guarded
    listener = _Listener(running.ports[at])
    login(listener.port, folder)
    assert said.encode() in listener.heard


@pytest.mark.parametrize(
    "login",
    [
        *(_by_client("lightmqs"), _by_client("micromsg2s")),
        *(_by_request(_BEARER, secure=True), _by_request(_BASIC, secure=True)),
    ],
    ids=["lightmq", "micromsg2", "bearer", "basic"],
)
def test_by_tls_it_has_not(
    guarded: tuple[BrokerProcess, Path], login: Callable[[int, Path], None]
) -> None:
    running, folder = guarded
    listener = _Listener(running.ports["autos"])
    login(listener.port, folder)
    assert len(listener.heard) > 500
    for secret in (_TOKEN, _BASIC, "kitchen"):
        assert secret.encode() not in listener.heard
