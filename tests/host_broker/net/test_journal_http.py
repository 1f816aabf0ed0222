"""The journal by HTTP, as any program sees it, at a broker that runs."""

import hashlib
import http.client
import json
import ssl
import threading
import time
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host_broker.client import connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.journal_decoder import read_blocks

_AUTO = ("--listen", "auto://127.0.0.1:0", "--set", "journal.partitions=1")
_ONE_BY_ONE = ("--set", "journal.flush_s=0.001")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker("--data", str(tmp_path / "data"), *_AUTO, *_ONE_BY_ONE) as process:
        yield process


def _ask(
    port: int, method: str, path: str, body: str = "", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


def _json(port: int, path: str) -> Any:
    status, _, body = _ask(port, "GET", path)
    assert status == 200, body
    return json.loads(body)


def _publish(port: int, bodies: list[bytes]) -> None:
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for body in bodies:
            client.publish("t/a", body)
            client.sync()


def _messages(headers: dict[str, str], body: bytes) -> list[tuple[int, str, bytes]]:
    messages = read_blocks(body)
    assert messages[0].seq == int(headers["Journal-First"])
    assert messages[-1].seq + 1 == int(headers["Journal-Next"])
    return [(each.seq, each.topic, each.body) for each in messages]


def _all(port: int, sequence: int = 0, options: str = "") -> list[tuple[int, str, bytes]]:
    found: list[tuple[int, str, bytes]] = []
    while True:
        status, headers, body = _ask(port, "GET", f"/journal/0?from={sequence}{options}")
        if status == 204:
            return found
        assert status == 200, body
        found += [each for each in _messages(headers, body) if each[0] >= sequence]
        sequence = int(headers["Journal-Next"])


def _until_kept(port: int, messages: int) -> None:
    deadline = time.monotonic() + 60
    while (_json(port, "/journal")["partitions"] or [{"next": 0}])[0]["next"] < messages:
        assert time.monotonic() < deadline


def test_every_message_by_its_number(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    overview = _json(port, "/journal")
    assert uuid.UUID(overview.pop("id"))
    assert overview == {"partitions": [], "groups": {}}
    _publish(port, [b"%d" % number for number in range(20)])
    _until_kept(port, 40)  # with the echoes of sync
    found = _all(port)
    assert [number for number, _, _ in found] == list(range(len(found)))
    assert [body for _, topic, body in found if topic == "t/a"] == [
        b"%d" % number for number in range(20)
    ]
    assert _all(port, 7) == found[7:]
    assert _all(port, 0, "&max_bytes=1") == found


def test_waiting_for_the_next_message(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    _publish(port, [b"1"])
    _until_kept(port, 2)
    following = _json(port, "/journal")["partitions"][0]["next"]
    assert _ask(port, "GET", f"/journal/0?from={following}&wait_ms=50")[0] == 204
    answers: list[tuple[int, dict[str, str], bytes]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(
            _ask(port, "GET", f"/journal/0?from={following}&wait_ms=15000")
        )
    )
    waiting.start()
    began = time.monotonic()
    _publish(port, [b"2"])
    waiting.join(20)
    assert time.monotonic() - began < 10
    ((status, headers, body),) = answers
    assert status == 200
    assert _messages(headers, body)[0][0] == following


def test_a_position_that_is_none_is_refused_at_once(running: BrokerProcess) -> None:
    """It would be waited for for ever: by a reader of another journal, or of a restored one."""
    port = running.ports["auto"]

    def refused(number: int) -> int:
        status, _, body = _ask(port, "GET", f"/journal/0?from={number}&wait_ms=30000")
        assert status == 416, body
        said = json.loads(body)
        assert f"no message {number}: the next will be {said['next']}" in said["error"]
        assert isinstance(said["next"], int)
        return said["next"]

    assert refused(1) == 0  # before the first message
    assert _ask(port, "GET", "/journal/0?from=0")[0] == 204
    _publish(port, [b"1"])
    _until_kept(port, 2)
    following = _json(port, "/journal")["partitions"][0]["next"]
    assert refused(following + 1) == refused(9_000_000_000_000_000_000) == following
    assert _ask(port, "GET", f"/journal/0?from={following}")[0] == 204
    assert _ask(port, "GET", f"/journal/0?from={following + 1}&topics=t/*")[0] == 416


def test_waiting_is_over_at_once(tmp_path: Path) -> None:
    """When the journal has the message: nothing looks for it every so often."""
    settings = ("--set", "journal.flush_s=0.001")
    with broker("--data", str(tmp_path / "data"), *_AUTO, *settings) as running:
        port = running.ports["auto"]
        reader = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        following = 0
        waits = []
        client = connect(f"fmqp://127.0.0.1:{port}")
        with client:
            for _ in range(30):
                reader.request("GET", f"/journal/0?from={following}&wait_ms=15000")
                began, waited_s = time.monotonic(), running.waited_s()
                client.publish("t/a", b"1")
                answer = reader.getresponse()
                _messages(dict(answer.headers), answer.read())
                took_s = time.monotonic() - began
                waits.append(took_s - (running.waited_s() - waited_s))
                following = int(answer.headers["Journal-Next"])
        reader.close()
        assert sorted(waits)[10] < 0.015
        assert running.end() == (0, "")


def test_only_some_topics(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for number in range(60):
            client.publish(f"home/{number % 3}/lamp", b"%d" % number)
            if number % 7 == 0:
                client.sync()  # several blocks
        client.sync()
    _until_kept(port, 70)
    every = _all(port)

    def those(topics: tuple[str, ...], options: str = "") -> list[tuple[int, str, bytes]]:
        found: list[tuple[int, str, bytes]] = []
        sequence = 0
        query = "".join(f"&topics={urllib.parse.quote(topic)}" for topic in topics)
        while True:
            path = f"/journal/0?from={sequence}{query}{options}"
            status, headers, body = _ask(port, "GET", path)
            if status == 204:
                return found
            assert status == 200, body
            assert int(headers["Journal-First"]) <= sequence
            assert int(headers["Journal-Next"]) > sequence
            found += [
                (each.seq, each.topic, each.body)
                for each in read_blocks(body)
                if each.seq >= sequence
            ]
            sequence = int(headers["Journal-Next"])

    lamps = [each for each in every if each[1] == "home/1/lamp"]
    assert len(lamps) == 20
    assert those(("home/1/lamp",)) == lamps
    assert those(("home/1/lamp",), "&max_bytes=1") == lamps
    assert those(("home/1/lamp", "home/*/lamp")) == [each for each in every if "lamp" in each[1]]
    assert those(("motemq/echo/*",)) == [each for each in every if "lamp" not in each[1]]
    assert those(("nothing/*",)) == []
    status, headers, _ = _ask(port, "GET", "/journal/0?from=0&topics=nothing&wait_ms=50")
    assert (status, int(headers["Journal-Next"])) == (204, len(every))
    status, headers, _ = _ask(port, "GET", "/journal/0?from=0&to=30&topics=nothing&wait_ms=9000")
    assert (status, int(headers["Journal-Next"]) >= 30) == (200, True)


def test_waiting_for_a_topic(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    answers: list[tuple[int, dict[str, str], bytes]] = []
    waiting = threading.Thread(
        target=lambda: answers.append(
            _ask(port, "GET", "/journal/0?from=0&topics=home/lamp&wait_ms=20000")
        )
    )
    waiting.start()
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        for _ in range(5):
            client.publish("elsewhere", b"1")
            client.sync()
        assert waiting.is_alive()
        client.publish("home/lamp", b"on")
        client.sync()
        waiting.join(20)
    ((status, _, body),) = answers
    assert status == 200
    (found,) = read_blocks(body)
    assert (found.topic, found.body) == ("home/lamp", b"on")
    assert found.seq >= 5


def test_up_to_a_message(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    # In two blocks at least, however late the journal's thread is.
    for half in (range(10), range(10, 20)):
        _publish(port, [b"%d" % number for number in half])
        _until_kept(port, 2 * half.stop)
    status, headers, body = _ask(port, "GET", "/journal/0?from=3&to=9")
    assert status == 200
    assert 9 <= int(headers["Journal-Next"]) <= 20
    assert [each.seq for each in read_blocks(body) if 3 <= each.seq < 9] == list(range(3, 9))


def test_another_journal_is_refused(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    _publish(port, [b"1"])
    _until_kept(port, 2)
    ours, other = _json(port, "/journal")["id"], str(uuid.uuid4())
    status, headers, _ = _ask(port, "GET", f"/journal/0?from=0&id={ours}")
    assert (status, headers["Journal-Id"]) == (200, ours)
    positions = json.dumps({"positions": {"0": 1}})
    assert _ask(port, "PUT", f"/journal/groups/g?id={ours}", positions)[0] == 204
    for method, path in (("GET", "/journal/0?from=0&id="), ("PUT", "/journal/groups/g?id=")):
        status, _, body = _ask(port, method, path + other, positions)
        assert (status, ours in json.loads(body)["error"]) == (409, True)


def test_slow_readers_keep_nobody_waiting_and_little_in_memory(tmp_path: Path) -> None:
    """What they have not taken yet is in the kernel, and a chunk of each."""
    with broker("--data", str(tmp_path / "data"), *_AUTO) as running:
        port = running.ports["auto"]
        client = connect(f"fmqp://127.0.0.1:{port}")
        with client:
            for _ in range(80):
                client.publish("t/a", bytes(100_000))
            client.sync()
            _until_kept(port, 81)
            before = running.rss_bytes()
            slow = []
            for _ in range(40):
                sock = running.raw("auto")
                sock.sendall(b"GET /journal/0?from=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert sock.recv(15) == b"HTTP/1.1 200 OK"
                slow.append(sock)
            began = time.monotonic()
            for number in range(81, 101):
                client.publish("t/a", bytes(100_000))
                _until_kept(port, number)
            assert time.monotonic() - began < 10
            assert running.rss_bytes() - before < 40 * 1024 * 1024
        for sock in slow:
            sock.close()
        assert running.end() == (0, "")


def test_by_time(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    before_ns = time.time_ns()
    _publish(port, [b"1"])
    _until_kept(port, 2)
    after_ns = time.time_ns()
    following = _json(port, "/journal")["partitions"][0]["next"]
    assert _json(port, f"/journal?at_ns={before_ns}")["partitions"][0]["at"] == 0
    assert _json(port, f"/journal?at_ns={after_ns}")["partitions"][0]["at"] == following


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/journal/0", 400, "'from' must be a whole number"),
        ("/journal/0?from=-1", 400, "'from'"),
        ("/journal/0?from=1&max_bytes=many", 400, "'max_bytes'"),
        ("/journal/0?from=" + "9" * 40, 400, "'from'"),
        ("/journal/0?from=5&to=5", 400, "'to' must be above 'from'"),
        ("/journal/0?from=5&topics=", 400, "'topics' is a pattern"),
        ("/journal/0?from=5" + "&topics=a" * 101, 400, "at most 100 times"),
        ("/journal/7?from=0", 404, "no partition 7"),
        ("/journal/" + "9" * 5000 + "?from=0", 404, "Not Found"),
        ("/journal?at_ns=x", 400, "'at_ns'"),
        ("/nothing", 404, "Not Found"),
    ],
)
def test_mistakes_are_told(running: BrokerProcess, path: str, status: int, words: str) -> None:
    port = running.ports["auto"]
    _publish(port, [b"1"])
    _until_kept(port, 2)
    answered, _, body = _ask(port, "GET", path)
    assert (answered, words in json.loads(body)["error"]) == (status, True), body


def test_a_group_may_begin_with_what_is_only_staged(tmp_path: Path) -> None:
    """What was acknowledged is there for whoever puts a position, too, not only for readers."""
    options = ("--data", str(tmp_path / "data"), *_AUTO, "--set", "journal.flush_s=60")
    with broker(*options) as running:
        port = running.ports["auto"]
        assert _ask(port, "POST", "/publish/a/b", "21.5")[0] == 200
        assert _ask(port, "PUT", "/journal/groups/g", '{"positions": {"0": 1}}')[0] == 204
        assert _json(port, "/journal")["groups"]["g"]["positions"] == {"0": 1}


def test_groups_are_kept_across_a_restart_and_trim_what_all_have_read(tmp_path: Path) -> None:
    settings = ("--set", "journal.trim_read=true", "--set", "journal.segment_bytes=1000")
    options = ("--data", str(tmp_path / "data"), *_AUTO, *_ONE_BY_ONE, *settings)
    with broker(*options) as running:
        port = running.ports["auto"]
        with connect(f"fmqp://127.0.0.1:{port}") as client:
            for number in range(40):
                client.publish("t/a", bytes(100))
                client.sync()
                _until_kept(port, 2 * number + 2)  # or a slow thread puts all in one segment
        following = _json(port, "/journal")["partitions"][0]["next"]
        for name, position in (("tables", following), ("alerts", 30)):
            said = json.dumps({"positions": {"0": position}})
            assert _ask(port, "PUT", f"/journal/groups/{name}", said)[0] == 204
        assert running.end() == (0, "")
    with broker(*options) as running:
        port = running.ports["auto"]
        # The journal's thread deletes, when it begins.
        until(lambda: _json(port, "/journal")["partitions"][0]["first"] > 0)
        overview = _json(port, "/journal")
        assert overview["groups"]["alerts"]["positions"] == {"0": 30}
        first = overview["partitions"][0]["first"]
        assert 0 < first <= 30
        status, _, body = _ask(port, "GET", "/journal/0?from=0")
        assert (status, json.loads(body)["first"]) == (410, first)
        assert [number for number, _, _ in _all(port, first)] == list(range(first, following))
        assert _ask(port, "DELETE", "/journal/groups/alerts")[0] == 204
        assert _ask(port, "DELETE", "/journal/groups/alerts")[0] == 404
        assert running.end() == (0, "")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/journal/groups/g", "no json", 400),
        ("/journal/groups/g", "[" * 100_000, 400),
        ("/journal/groups/g", '{"positions": {"0": "many"}}', 400),
        ("/journal/groups/g", '{"positions": {"0": true}}', 400),
        ("/journal/groups/g", '{"positions": {"9": 1}}', 404),
        ("/journal/groups/a%2Fb", '{"positions": {"0": 1}}', 400),
        ("/journal/groups/g", " " * 9_000_000, 413),
    ],
)
def test_what_is_no_group_is_refused(
    running: BrokerProcess, path: str, body: str, status: int
) -> None:
    port = running.ports["auto"]
    _publish(port, [b"1"])
    _until_kept(port, 2)
    assert _ask(port, "PUT", path, body)[0] == status
    assert _json(port, "/journal")["groups"] == {}


def test_a_page_that_calls_itself_something_else_is_not_let_in(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    assert _ask(port, "GET", "/journal", Host="evil.example:8765")[0] == 403
    assert _ask(port, "POST", "/publish/a", "x", Origin="http://evil.example")[0] == 403
    assert _ask(port, "GET", "/journal", Host="localhost")[0] == 200
    assert _ask(port, "GET", "/journal", Host="[::1]:8765")[0] == 200


def test_with_a_token_nobody_is_let_in_without_it(tmp_path: Path) -> None:
    digest = "sha256:" + hashlib.sha256(b"open sesame").hexdigest()
    listen = ("--listen", "http://127.0.0.1:0")
    token = ("--set", f"http.token={digest}")
    with broker("--data", str(tmp_path / "data"), *listen, *token) as running:
        port = running.ports["http"]
        assert _ask(port, "GET", "/journal")[0] == 401
        assert _ask(port, "GET", "/journal", Authorization="Bearer open sesam")[0] == 401
        assert _ask(port, "GET", "/journal", Authorization=f"Bearer {digest}")[0] == 401
        assert _ask(port, "GET", "/journal", Authorization="Bearer open sesame")[0] == 200
        assert running.end() == (0, "")


def test_a_token_itself_is_no_setting(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="sha256"):
        BrokerProcess("--ephemeral", "--set", "http.token=secret")


def test_by_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("broker")
    query = urllib.parse.urlencode({"cert": certificate, "key": key})
    listen = ("--listen", f"https://127.0.0.1:0?{query}")
    with broker("--data", str(tmp_path / "data"), *listen) as running:
        context = ssl.create_default_context(cafile=str(authority.file))
        connection = http.client.HTTPSConnection(
            "127.0.0.1", running.ports["https"], timeout=10, context=context
        )
        connection.request("GET", "/journal")
        assert connection.getresponse().status == 200
        connection.close()
        assert running.end() == (0, "")


def test_a_broker_stops_while_somebody_waits(running: BrokerProcess) -> None:
    port = running.ports["auto"]
    _publish(port, [b"1"])
    _until_kept(port, 2)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    following = _json(port, "/journal")["partitions"][0]["next"]
    connection.request("GET", f"/journal/0?from={following}&wait_ms=30000")
    began = time.monotonic()
    code, _ = running.end()
    assert code == 0
    assert time.monotonic() - began < 10
    connection.close()
