"""fq's pages by HTTP, on the port of fq itself."""

import contextlib
import gzip
import http.client
import json
import re
import shlex
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.access.users import User, token_hash
from host_broker.client import connect
from host_broker.net.access.access_files import write_users
from host_broker.protocols.fq.configuration import TABLES
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.fq_client import FqClient, fq_client

_PAGE = (Path(__file__).parents[3] / "docs" / "fq.md").read_text()
_NOWHERE = {"routed": 0, "dropped": 0, "no_route": 1, "no_exchange": 1}
_LISTEN = ("--listen", "fq://127.0.0.1:0", "--listen", "auto://127.0.0.1:0")


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(*_LISTEN) as process:
        yield process


def _ask(
    port: int, method: str, path: str, body: bytes | None = None, **headers: str
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def _submit(port: int, body: bytes, exchange: str, route: str, **more: str) -> dict[str, int]:
    status, said, _ = _ask(
        port, "POST", "/submit", body, X_Fq_Exchange=exchange, X_Fq_Route=route, **more
    )
    assert status == 200, said
    found: dict[str, int] = json.loads(said)
    return found


def _statistics(port: int) -> dict[str, Any]:
    status, said, headers = _ask(port, "GET", "/stats.json")
    assert (status, headers["Content-Type"], headers["Connection"]) == (200, "text/json", "close")
    found: dict[str, Any] = json.loads(said)
    return found


@pytest.mark.parametrize("listener", ["fq", "auto"])
def test_a_message_is_submitted(running: BrokerProcess, listener: str) -> None:
    """R48, R49, R51: to the same port as fq's, raw, and clients have it with its sender."""
    port = running.ports[listener]
    with fq_client(running.ports["fq"], b"q-" + listener.encode()) as client:
        client.bind(b"http", b'prefix:"a."')
        said = _submit(port, b"\0\xff raw", "http", "a.b", X_Fq_User="somebody")
        assert said == {"routed": 1, "dropped": 0, "no_route": 0, "no_exchange": 0}
        assert client.receive() == (b"http", b"a.b", b"somebody", b"\0\xff raw")
        assert _submit(port, b"", "http", "a.", X_Fq_Sender="s", X_Fq_User="u")["routed"] == 1
        assert client.receive() == (b"http", b"a.", b"s", b"")
        assert _submit(port, b"x", "http", "b") == {**_NOWHERE, "no_exchange": 0}
        assert _submit(port, b"x", "http", "a.c")["routed"] == 1
        assert client.receive() == (b"http", b"a.c", b"_web", b"x")
    assert _submit(port, b"x", "nosuch", "a") == _NOWHERE


def test_other_protocols_hear_it(running: BrokerProcess) -> None:
    """R49: exchange and route are a topic."""
    with connect(f"fmqp://127.0.0.1:{running.ports['auto']}") as listener:
        listener.subscribe("crossing/a")
        listener.sync()
        _submit(running.ports["fq"], b"on", "crossing", "a")
        message = listener.receive(20.0)
        assert message is not None
        assert (message.topic, message.payload) == ("crossing/a", b"on")


def test_fqd_s_errors(running: BrokerProcess) -> None:
    """R48: 500, in fqd's words; a body without a length, or in chunks, is no message."""
    port = running.ports["fq"]
    assert _ask(port, "POST", "/submit", b"x", X_Fq_Exchange="e")[:2] == (
        500,
        b'{ "error": "missing route" }\n',
    )
    for headers, body in (
        ("", b""),
        ("Transfer-Encoding: chunked\r\n", b"1\r\nx\r\n0\r\n\r\n"),
    ):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as peer:
            head = f"POST /submit HTTP/1.0\r\nHost: 127.0.0.1\r\n{headers}"
            peer.sendall(f"{head}X-Fq-Route: bla\r\nX-Fq-Exchange: test\r\n\r\n".encode() + body)
            said = b"".join(iter(lambda peer=peer: peer.recv(4096), b""))
        assert said.startswith(b"HTTP/1.0 500 "), said
        assert said.endswith(b'\r\n\r\n{ "error": "no message" }\n')
        assert b"Content-Type: application/json\r\n" in said


def test_byte_by_byte_and_one_after_the_other(running: BrokerProcess) -> None:
    """R48: keep-alive, PUT, Expect, and requests in any pieces."""
    with (
        fq_client(running.ports["fq"], b"pieces") as client,
        socket.create_connection(("127.0.0.1", running.ports["fq"]), timeout=20) as peer,
    ):
        client.bind(b"pieces", b"prefix:")
        head = (
            "{} /submit HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fq-Exchange: pieces\r\n"
            "X-Fq-Route: r\r\nContent-Length: 2\r\n{}\r\n"
        )
        for byte in head.format("POST", "").encode() + b"ab":
            peer.sendall(bytes([byte]))
        assert _heard(peer).endswith(b'"no_exchange":0}\n')
        peer.sendall(head.format("PUT", "Expect: 100-continue\r\n").encode())
        assert _heard(peer, b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        peer.sendall(b"cd")
        assert _heard(peer).startswith(b"HTTP/1.1 200 OK\r\n")
        assert client.payloads(2) == [b"ab", b"cd"]


def _heard(peer: socket.socket, end: bytes = b"}\n") -> bytes:
    heard = b""
    while not heard.endswith(end):
        read = peer.recv(4096)
        assert read, heard
        heard += read
    return heard


def test_statistics(running: BrokerProcess) -> None:
    """R50: exchanges, routes, queues, clients, and all together."""
    port = running.ports["fq"]
    with fq_client(port, b"stats\0mem:public,drop,backlog=7", b"someone") as client:
        route = client.bind(b"stats", b'prefix:"a" payload_contains("x")')
        whole = client.bind(b"stats", b'prefix:"nobody publishes this"')
        before = _statistics(port)["exchanges"]["_aggregate"]
        for payload in (b"xy", b"y", b"x"):
            client.publish(b"stats", b"a1", payload)
        client.publish(b"stats", b"b", b"x")
        assert client.payloads(2) == [b"xy", b"x"]
        until(lambda: _statistics(port)["exchanges"]["stats"]["messages"] == 4)
        _submit(port, b"last", "stats", "b")
        found = _statistics(port)
        exchange = found["exchanges"]["stats"]
        assert {name: exchange[name] for name in ("messages", "octets", "no_route", "routed")} == {
            "messages": 5,
            "octets": 9,
            "no_route": 3,
            "routed": 2,
        }
        assert exchange["dropped"] == 0
        assert exchange["routes"][str(whole)]["invocations"] == 0
        shown = exchange["routes"][str(route)]
        assert 0 < shown.pop("avg_ns") < 1_000_000_000
        assert shown == {
            "route_id": route,
            "prefix": "a",
            "queue": "stats",
            "permanent": False,
            "invocations": 3,
            "program": 'prefix:"a" payload_contains("x")',
        }
        together = found["exchanges"]["_aggregate"]
        assert together["messages"] - before["messages"] == 5
        assert together["no_exchange"] == before["no_exchange"]
        queue = found["queues"]["stats"]
        (shown,) = queue.pop("clients")
        assert queue == {
            "private": False,
            "type": "mem",
            "policy": "drop",
            "backlog_limit": 7,
            "backlog": 0,
            "dropped_to": 0,
            "refcnt": 1,
        }
        assert (shown["user"], shown["remote_addr"], shown["mode"]) == (
            "someone",
            "127.0.0.1",
            "client",
        )
        assert shown["remote_port"] == str(client.port)
        assert (shown["msgs_in"], shown["msgs_out"], shown["no_route"]) == ("4", "2", "2")


def test_who_says_no_host_is_no_browser(running: BrokerProcess) -> None:
    """R50: probes by HTTP/1.0 need not say whom they ask; a page in a browser always does."""
    for host, status in (
        (b"", b"200"),
        (b"Host: \r\n", b"403"),
        (b"Host: evil.example\r\n", b"403"),
    ):
        with running.raw("fq") as peer:
            peer.sendall(b"GET /stats.json HTTP/1.0\r\n" + host + b"\r\n")
            said = b"".join(iter(lambda peer=peer: peer.recv(65536), b""))
        assert said.startswith(b"HTTP/1.0 " + status), said


def test_a_negative_backlog(running: BrokerProcess) -> None:
    """R34, A24: as fqd says it; fqtool asks for -1."""
    with fq_client(running.ports["fq"], b"deep\0mem:public,backlog=-1"):
        assert _statistics(running.ports["fq"])["queues"]["deep"]["backlog_limit"] == -1


@pytest.mark.parametrize("listener", ["fq", "auto"])
def test_who_has_asked_and_says_no_more_is_answered(running: BrokerProcess, listener: str) -> None:
    """R48: as from fqd: all that was asked for as a whole; half a request is no request."""
    whole = (
        b"POST /submit HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fq-Exchange: nobody\r\nX-Fq-Route: r\r\n"
        b"Content-Length: 2\r\n\r\nab"
    )
    for said, answers in ((whole, 1), (whole * 3, 3), (whole[:-1], 0), (whole[:60], 0), (b"", 0)):
        with running.raw(listener) as peer:
            peer.sendall(said)
            peer.shutdown(socket.SHUT_WR)
            heard = b""
            with contextlib.suppress(ConnectionResetError):  # what nobody has read is gone
                heard = b"".join(iter(lambda peer=peer: peer.recv(65536), b""))
            assert heard.count(b'"no_exchange":1}') == answers, said


def test_a_body_is_what_was_sent(running: BrokerProcess) -> None:
    """R49: however its sender calls it."""
    packed = gzip.compress(b"x" * 1000)
    with fq_client(running.ports["fq"], b"packed") as client:
        client.bind(b"packed", b"prefix:")
        for body in (packed, b"not packed"):
            said = _submit(running.ports["fq"], body, "packed", "r", Content_Encoding="gzip")
            assert said["routed"] == 1
            assert client.receive()[3] == body


_LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"Host: 127.0.0.1",
                b"Content-Length: 2",
                b"Content-Length: 99999999999999999999",
                b"Content-Length: -1",
                b"Transfer-Encoding: chunked",
                b"Expect: 100-continue",
                b"Connection: close",
                b"X-Fq-Exchange: fuzz",
                b"X-Fq-Route: r",
            ]
        ),
        st.binary(max_size=30).map(lambda value: b"X-Fq-Route: " + value),
        st.binary(max_size=30),
    ),
    max_size=8,
)
_TARGETS = st.one_of(
    st.sampled_from(
        [
            b"/submit",
            b"/stats.json",
            b"/add_checkpoint?qname=%FF&cpname=%00&chkptid=0:0",
            b"/reset_to_checkpoint?qname=fuzz&cpname",
            b"/remove_checkpoint?&&=",
        ]
    ),
    st.binary(max_size=20),
)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([b"POST", b"PUT", b"GET", b"HEAD", b"POST\xff"]),
    _TARGETS,
    _LINES,
    st.binary(max_size=40),
    st.integers(1, 3),
)
def test_anything_by_http(
    running: BrokerProcess,
    method: bytes,
    target: bytes,
    lines: list[bytes],
    body: bytes,
    times: int,
) -> None:
    """R48 to R51: it ends by itself, soon, and the next one is answered."""
    said = method + b" " + target + b" HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines)
    with running.raw("fq") as peer, contextlib.suppress(ConnectionError):
        peer.sendall((said + b"\r\n" + body) * times)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(65536):
            pass  # its timeout would be an error
    assert _submit(running.ports["fq"], b"x", "nobody at all", "r") == _NOWHERE


def test_other_pages_and_methods(running: BrokerProcess) -> None:
    """R50: nothing else is here, and the broker's own pages are."""
    port = running.ports["fq"]
    assert _ask(port, "GET", "/nosuch")[0] == 404
    assert _ask(port, "GET", "/submit")[0] == 405
    assert _ask(port, "GET", "/healthz")[0] == 200
    assert _ask(port, "GET", "/stats.json", Origin="http://example.com")[0] == 403


def test_what_is_neither_fq_nor_http_is_closed(running: BrokerProcess) -> None:
    """R3: an unknown magic closes, also where HTTP is spoken."""
    for first in (b"\x10\x0e\x00\x04MQTT", b"GETX", b"\xcc\x50\x00\x00"):
        with socket.create_connection(("127.0.0.1", running.ports["fq"]), timeout=20) as peer:
            peer.sendall(first)
            assert peer.recv(100) == b""


def test_a_full_queue_of_block_lets_the_answer_wait(running: BrokerProcess) -> None:
    """R33: only of those who publish to it; others are answered."""
    port = running.ports["fq"]
    with FqClient(port, b"blocks\0mem:private,block,backlog=1", data=False) as client:
        client.bind(b"blocks", b"prefix:")
        with socket.create_connection(("127.0.0.1", port), timeout=20) as waiting:
            waiting.sendall(
                b"POST /submit HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Fq-Exchange: blocks\r\n"
                b"X-Fq-Route: r\r\nContent-Length: 1\r\n\r\n1"
            )
            assert _submit(port, b"x", "nosuch", "r") == _NOWHERE
            waiting.setblocking(False)
            with pytest.raises(BlockingIOError):
                waiting.recv(1)
            waiting.settimeout(20)
            client.open_data()
            assert client.payloads(1) == [b"1"]
            assert _heard(waiting).startswith(b"HTTP/1.1 200 OK\r\n")


def test_too_much_is_refused(running: BrokerProcess) -> None:
    """A7: a payload above fq.max_payload."""
    status, said, _ = _ask(
        running.ports["fq"],
        "POST",
        "/submit",
        b"x" * (1024 * 1024 + 1),
        X_Fq_Exchange="e",
        X_Fq_Route="r",
    )
    assert (status, said) == (413, b'{ "error": "message too long" }\n')


def test_users(tmp_path: Path) -> None:
    """R23, R51: with users, who submits is who has logged in, and may do what its rules allow."""
    token = "board-token-of-many-letters"
    write_users(tmp_path / "users.toml", {"board": User(token=token_hash(token))})
    (tmp_path / "acl.toml").write_text(
        '[principals.board]\nconnect = ["http"]\npublish = ["mine/**"]\n'
    )
    files = [f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/acl.toml"]
    settings = [part for each in files for part in ("--set", each)]
    with broker("--listen", "fq://127.0.0.1:0", *settings) as running:
        port = running.ports["fq"]
        head = {"X_Fq_Exchange": "mine", "X_Fq_Route": "r", "X_Fq_User": "root"}
        assert _ask(port, "POST", "/submit", b"x", **head)[0] == 401
        head["Authorization"] = f"Bearer {token}"
        assert json.loads(_ask(port, "POST", "/submit", b"x", **head)[1]) == _NOWHERE
        head["X_Fq_Exchange"] = "theirs"
        status, said, _ = _ask(port, "POST", "/submit", b"x", **head)
        assert status == 403
        assert "may not publish" in json.loads(said)["error"]
        assert _ask(port, "GET", "/stats.json", **head)[0] == 403


def test_who_may_not_use_a_queue_learns_nothing_of_it(tmp_path: Path) -> None:
    """Checkpoints of queues that are there and of others are refused alike, and counted."""
    token = "board-token-of-many-letters"
    write_users(tmp_path / "users.toml", {"board": User(token=token_hash(token))})
    (tmp_path / "acl.toml").write_text(
        '[principals.board]\nconnect = ["http", "fq"]\nsubscribe = ["fq/mine", "fq/gone"]\n'
    )
    files = [f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/acl.toml"]
    settings = [part for each in files for part in ("--set", each)]
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    with sqlite3.connect(data / "fq.sqlite") as tables:
        tables.executescript("".join(f"{each};" for each in TABLES.schema))
        tables.executemany(
            "INSERT INTO queue VALUES (?, ?, '')", [("mine", "mem"), ("theirs", "disk")]
        )
    tables.close()
    with broker("--data", str(data), "--listen", "fq://127.0.0.1:0", *settings) as running:
        port, head = running.ports["fq"], {"Authorization": f"Bearer {token}"}

        def said(do: str, queue: str) -> tuple[int, bytes]:
            return _ask(
                port, "POST", f"/{do}_checkpoint?qname={queue}&cpname=c&chkptid=0:0", b"", **head
            )[:2]

        until(lambda: b"memory queues" in said("add", "mine")[1])  # the rows are read
        assert b"Cannot find registered queue 'gone'" in said("reset_to", "gone")[1]
        for do in ("add", "remove", "reset_to"):
            for queue in ("theirs", "nosuch"):
                denied = b'{ "error": "you may not subscribe fq/%s" }\n' % queue.encode()
                assert said(do, queue) == (403, denied)
        _, log = running.end()
    assert "'board' at 127.0.0.1 may not subscribe 'fq/theirs'" in log


def test_the_page(running: BrokerProcess) -> None:
    """R51: the request of docs/fq.md."""
    section = _PAGE.partition("## By HTTP")[2].partition("\n## ")[0]
    (line,) = re.findall(r"^curl (.*/submit)$", section, re.MULTILINE)
    words = shlex.split(line)
    headers = dict(words[index + 1].split(": ") for index, word in enumerate(words) if word == "-H")
    body = words[words.index("--data-binary") + 1].encode()
    assert words[-1] == "http://127.0.0.1:8765/submit"
    with fq_client(running.ports["fq"], b"page") as client:
        client.bind(b"home", b"exact:home.lamp")
        named = {name.replace("-", "_"): value for name, value in headers.items()}
        _, said, _ = _ask(running.ports["auto"], "POST", "/submit", body, **named)
        assert f"`{said.decode().strip()}`" in section
        assert client.receive()[3] == b"on"
