"""Publishing by HTTP at a broker that runs, and heard by FMQP."""

import http.client
import json
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

_AUTO = ("--listen", "auto://127.0.0.1:0")
_PACKETS = {"Content-Type": "application/x-fmqp"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker("--data", str(tmp_path / "data"), *_AUTO) as process:
        yield process


def _post(
    running: BrokerProcess, path: str, body: bytes, **headers: str
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def _packet(topic: bytes, body: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BBI", flags, len(topic), len(body)) + topic + body


def _listener(running: BrokerProcess, *topics: str) -> Client:
    client = connect(f"fmqp://127.0.0.1:{running.ports['auto']}")
    for topic in topics:
        client.subscribe(topic)
    client.sync()
    return client


def _heard(client: Client, count: int) -> list[tuple[str, bytes]]:
    found = []
    while len(found) < count:
        message = client.receive(20.0)
        assert message is not None
        found.append((message.topic, message.payload))
    client.sync()
    assert client.receive(0.0) is None
    return found


def test_one_message(running: BrokerProcess) -> None:
    with _listener(running, "home/*") as listener:
        assert _post(running, "/publish/home/lamp", b"on") == (
            200,
            {"published": 1, "discarded": 0},
        )
        assert _heard(listener, 1) == [("home/lamp", b"on")]


def test_a_topic_is_what_its_escapes_say(running: BrokerProcess) -> None:
    with _listener(running, "*/*", "*") as listener:
        for escaped in ("%C3%B6/b", "%C3%B6%2Fc", "100%25?retain=false"):
            assert _post(running, f"/publish/{escaped}", b"x")[1]["published"] == 1
        assert _post(running, "/publish/%FF", b"x") == (200, {"published": 0, "discarded": 1})
        assert [topic for topic, _ in _heard(listener, 3)] == ["ö/b", "ö/c", "100%"]


def test_a_retained_message_is_there_for_later_and_after_a_restart(tmp_path: Path) -> None:
    options = ("--data", str(tmp_path / "data"), *_AUTO)
    with broker(*options) as running:
        assert _post(running, "/publish/home/lamp?retain=true", b"on")[0] == 200
        with _listener(running, "home/lamp") as listener:
            assert _heard(listener, 1) == [("home/lamp", b"on")]
        assert running.end() == (0, "")
    with broker(*options) as running, _listener(running, "home/lamp") as listener:
        assert _heard(listener, 1) == [("home/lamp", b"on")]


def test_to_clear_what_is_retained_is_neither_published_nor_discarded(
    running: BrokerProcess,
) -> None:
    assert _post(running, "/publish/home/old?retain=true", b"on")[0] == 200
    clear = _packet(b"home/old", b"", 0x04)
    assert _post(running, "/publish", clear + _packet(b"home/old", b""), **_PACKETS) == (
        200,
        {"published": 0, "discarded": 1},
    )
    assert _post(running, "/publish/home/old?retain=true", b"") == (
        200,
        {"published": 0, "discarded": 0},
    )
    with _listener(running, "home/old") as listener:
        assert _heard(listener, 0) == []


def test_many_messages_in_order_and_what_is_discarded_is_counted(running: BrokerProcess) -> None:
    packets = [_packet(b"t/a", b"%d" % number + bytes(1000)) for number in range(3000)]
    with _listener(running, "t/a") as listener:
        body = b"".join(packets) + _packet(b"//", b"no topic") + _packet(b"t/a", b"last")
        assert _post(running, "/publish", body, **_PACKETS) == (
            200,
            {"published": 3001, "discarded": 1},
        )
        heard = _heard(listener, 3001)
    assert [int(body[:-1000]) for _, body in heard[:-1]] == list(range(3000))
    assert heard[-1] == ("t/a", b"last")


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/publish", b"x", {}, 415),
        ("/publish", b"\0\3\0\0\0\5a/b", _PACKETS, 400),
        ("/publish", _packet(b"a", b"", 0x80), _PACKETS, 400),
        ("/publish", _packet(b"a", b"1"), {**_PACKETS, "Publisher": "me"}, 400),
        ("/publish", b"", {**_PACKETS, "Publisher": "m e", "Publisher-Number": "1.0"}, 400),
        ("/publish/a", b"x", {"Publisher": "me", "Publisher-Number": "1"}, 400),
        ("/publish/" + "a" * 256, b"x", {}, 400),
        ("/publish/a", bytes(8 * 1024 * 1024 + 1), {}, 413),
        ("/wanted", b"[]", {}, 400),
        ("/wanted", b'{"topics": [1]}', {}, 400),
        ("/wanted", b'{"topics": "home"}', {}, 400),
        ("/wanted", b'{"topics": ["\\ud800"]}', {}, 400),  # no UTF-8 can say that
        ("/wanted", b"[" * 100_000, {}, 400),
        ("/wanted", b"{}", {"Content-Type": "text/plain; charset=nothing"}, 400),
        ("/publish/a?retain=1", b"x", {}, 400),
        ("/publish/a?retain", b"x", {}, 400),
        ("/publish/a?retain=false&retain=true", b"x", {}, 400),
        ("/publish/a?qos=1", b"x", {}, 400),
    ],
)
def test_mistakes_publish_nothing(
    running: BrokerProcess, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    with _listener(running, "*") as listener:
        answered, said = _post(running, path, body, **headers)
        assert answered == status
        assert said["error"]
        assert _heard(listener, 0) == []


@pytest.mark.parametrize(
    "request_line",
    [
        "POST /publish",
        "POST /publish/home/lamp",
        "POST /wanted",
        "POST /submit",
        "POST /dashboard/session",
        "PUT /journal/groups/spark",
    ],
)
def test_who_hangs_up_amid_a_body_is_no_failure_of_the_broker(
    tmp_path: Path, request_line: str
) -> None:
    head = (
        f"{request_line} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-fmqp\r\n"
        "X-Fq-Exchange: home\r\nX-Fq-Route: lamp\r\nContent-Length: 9\r\n"
        "Expect: 100-continue\r\n\r\n"
    )
    with broker("--data", str(tmp_path / "data"), *_AUTO) as running:
        with socket.create_connection(("127.0.0.1", running.ports["auto"]), timeout=20) as client:
            client.sendall(head.encode())
            # From then on the page waits for the body.
            assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
            client.sendall(b"half")
        until(lambda: _connections(running) == 1)
        assert running.end() == (0, "")


def _connections(running: BrokerProcess) -> float:
    """Return how many there are, with the one that asks."""
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return float(next(each for each in lines if each.startswith("motemq_connections ")).split()[1])


def test_a_stranger_cannot_stop_the_broker(running: BrokerProcess) -> None:
    assert _post(running, "/publish/$/signals/stop", b"x")[1]["published"] == 0
    assert _post(running, "/publish/home/lamp", b"on")[0] == 200


@pytest.mark.parametrize("path", ["/publish", "/publish/t/a"])
def test_what_is_repeated_is_published_once_also_after_a_kill(tmp_path: Path, path: str) -> None:
    options = ("--data", str(tmp_path / "data"), *_AUTO)

    def publish(running: BrokerProcess, number: str, body: bytes) -> dict[str, Any]:
        headers = {**_PACKETS, "Publisher": "query-1", "Publisher-Number": number}
        said_body = _packet(b"t/a", body) if path == "/publish" else body
        status, said = _post(running, path, said_body, **headers)
        assert status == 200
        return said

    known = {"published": 0, "known": True}
    with broker(*options) as running:
        with _listener(running, "t/a") as listener:
            for number in ("0.0", "0.1", "1.0"):
                assert publish(running, number, number.encode())["published"] == 1
                assert publish(running, number, number.encode()) == known
            assert publish(running, "0.1", b"late") == known
            assert [body for _, body in _heard(listener, 3)] == [b"0.0", b"0.1", b"1.0"]
        running.end(signal.SIGKILL)
    with broker(*options) as running, _listener(running, "t/a") as listener:
        assert publish(running, "1.0", b"1.0") == known
        assert publish(running, "10.0", b"10.0")["published"] == 1
        assert [body for _, body in _heard(listener, 1)] == [b"10.0"]


def test_what_is_remembered_is_on_file(tmp_path: Path) -> None:
    """A kill right after the answer, long before the journal would be written by itself."""
    options = (*_AUTO, "--set", "journal.flush_s=60")
    once = {**_PACKETS, "Publisher": "spark", "Publisher-Number": "1.0"}
    with broker("--data", str(tmp_path), *options) as process:
        body = _packet(b"home/lamp", b"on, and remembered")
        assert _post(process, "/publish", body, **once)[1]["published"] == 1
        process.end(signal.SIGKILL)
    files = sorted((tmp_path / "journal").rglob("*.mjl"))
    assert sum(file.read_bytes().count(b"on, and remembered") for file in files) == 1
    with broker("--data", str(tmp_path), *_AUTO) as process:
        assert _post(process, "/publish", body, **once)[1] == {"published": 0, "known": True}


def test_whether_anybody_is_subscribed(running: BrokerProcess) -> None:
    question = json.dumps({"topics": ["home/lamp", "home/door", "lab/x/y", "$"]}).encode()
    assert _post(running, "/wanted", question) == (200, {"wanted": [False] * 4})
    with _listener(running, "home/*", "lab/x/y"):
        assert _post(running, "/wanted", question)[1] == {"wanted": [True, True, True, False]}
    with connect(f"lightmq://127.0.0.1:{running.ports['auto']}/kitchen"):
        down = json.dumps({"topics": ["lightmq/kitchen/down", "lightmq/hall/down"]}).encode()
        assert _post(running, "/wanted", down)[1] == {"wanted": [True, False]}
