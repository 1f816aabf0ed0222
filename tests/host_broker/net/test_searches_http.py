"""HTTP requests that make the broker search for long: they are served, and so are others."""

import http.client
import json
import select
import socket
import struct
from pathlib import Path

from host_broker.client import Client, connect
from tests.host_broker.desk import Desk
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.net.journal_decoder import read_journal

_AUTO = ("--listen", "auto://127.0.0.1:0")
_FEW_STEPS = ("--set", "bus.max_steps_per_s=20000")
_TOPICS = 300
_PUBLICATIONS = 200  # each of which looks at all of the topics
_PACKETS = {"Content-Type": "application/x-fmqp"}
_PINGS = 30


def _packet(topic: bytes, body: bytes) -> bytes:
    return struct.pack(">BBI", 0, len(topic), len(body)) + topic + body


def _post(
    running: BrokerProcess, path: str, body: bytes, port: str = "auto", **headers: str
) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports[port], timeout=60)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        assert answer.status == 200
        answered = json.loads(answer.read())
        assert isinstance(answered, dict)
        return answered
    finally:
        connection.close()


def _client(running: BrokerProcess) -> Client:
    client = connect(f"fmqp://127.0.0.1:{running.ports['auto']}", timeout_s=30.0)
    return client


def _wildcards(first: int) -> list[bytes]:
    return [b"*/w%d" % number for number in range(first, first + _PUBLICATIONS)]


def test_publishing_goes_on_after_more_steps_than_a_client_may_make(tmp_path: Path) -> None:
    """It is no connection that could be disconnected: it rests, and nothing is lost."""
    with broker("--data", str(tmp_path), *_AUTO, *_FEW_STEPS) as running, _client(running) as here:
        for number in range(_TOPICS):
            here.subscribe(f"room{number}/w7", uncounted=True)
        here.sync()
        body = b"".join(_packet(topic, b"first") for topic in _wildcards(0))
        expected = {"published": _PUBLICATIONS, "discarded": 0}
        assert _post(running, "/publish", body, **_PACKETS) == expected
        assert _post(running, "/publish/room7/w7", b"again") == {"published": 1, "discarded": 0}
        for number in range(2):
            batch = b"".join(
                _packet(topic, b"batch %d" % number) for topic in _wildcards(1000 * number)
            )
            numbered = {**_PACKETS, "Publisher": "spark", "Publisher-Number": f"{number}.0"}
            assert _post(running, "/publish", batch, **numbered) == expected
            known = {"published": 0, "known": True}
            assert _post(running, "/publish", batch, **numbered) == known
        heard = []
        while len(heard) < 3:
            message = here.receive(20.0)
            assert message is not None
            heard.append((message.topic, message.payload))
        assert heard == [("*/w7", b"first"), ("room7/w7", b"again"), ("*/w7", b"batch 0")]
        assert running.end() == (0, "")
    stored = [each for found in read_journal(tmp_path / "journal").values() for each in found]
    for batch in (b"batch 0", b"batch 1"):
        assert [each.body for each in stored].count(batch) == _PUBLICATIONS


def test_what_is_published_in_steps_is_heard_by_all() -> None:
    """Also a publication that is searched for when the steps are nearly used up."""
    http_site = ("--listen", "http://127.0.0.1:0")
    with (
        broker("--ephemeral", *_AUTO, *http_site, *_FEW_STEPS) as running,
        _client(running) as here,
    ):
        for number in range(_TOPICS):
            here.subscribe(f"room{number}/w{number}", uncounted=True)
        here.sync()
        topics = [f"*/w{number}" for number in range(80)]
        body = b"".join(_packet(topic.encode(), b"x") for topic in topics)
        expected = {"published": len(topics), "discarded": 0}
        assert _post(running, "/publish", body, port="http", **_PACKETS) == expected
        alone = topics[:20]
        for topic in alone:
            answer = _post(running, f"/publish/{topic}?retain=true", b"one", port="http")
            assert answer == {"published": 1, "discarded": 0}
        here.sync(30.0)
        heard = [(message.topic, message.payload) for message in here.messages(0.0)]
    assert heard == [*((topic, b"x") for topic in topics), *((topic, b"one") for topic in alone)]


def _ping_s(running: BrokerProcess, client: Client) -> float:
    """Return how long a ping takes, without what we and the broker waited for a processor."""
    waited_s = running.waited_s()
    took_s = client.ping(20.0)
    return took_s - (running.waited_s() - waited_s)


def test_others_are_served_while_a_long_question_is_answered(tmp_path: Path) -> None:
    """10,000 wildcard topics, each of which looks at 9,000 subscriptions: a minute of searching."""
    question = json.dumps({"topics": [f"*/w{number}" for number in range(10_000)]}).encode()
    head = (
        f"POST /wanted HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(question)}\r\n\r\n"
    ).encode()
    data = ("--data", str(tmp_path))
    with broker(*data, *_AUTO) as running, _client(running) as many, _client(running) as other:
        for number in range(9_000):
            many.subscribe(f"room{number}/x", uncounted=True)
        many.sync()
        with socket.create_connection(("127.0.0.1", running.ports["auto"]), timeout=30) as asking:
            asking.sendall(head + question)
            pings = sorted(_ping_s(running, other) for _ in range(_PINGS))
            # The question was under way meanwhile: it is not answered yet.
            assert not select.select([asking], [], [], 0)[0]
        assert pings[len(pings) // 2] < 0.1
        assert pings[-1] < 2.0


def test_a_question_pauses_every_so_many_steps() -> None:
    """Also within one topic."""
    desk = Desk(bus={"max_steps_per_s": 1_000_000})
    client = desk.open()
    for number in range(3_000):
        desk.sub(client, f"room{number}/x")
    work = desk.broker._bus.work
    answers: list[bool] = []
    pauses = 0
    before = work.steps
    for answer in desk.broker.wanted([b"*/none", b"room5/x", b"*/x", b"none", b"*/*"] * 3, 500):
        assert work.steps - before <= 500 + 10
        if answer is None:
            pauses += 1
            before = work.steps
        else:
            answers.append(answer)
    assert answers == [False, True, True, False, True] * 3
    assert pauses >= 3 * 3_000 // 500


def test_who_comes_and_goes_while_a_question_is_answered() -> None:
    desk = Desk()
    first, second = desk.open(), desk.open()
    for number in range(100):
        desk.sub(first, f"room{number}/x")
    asked = desk.broker.wanted([b"*/none", b"*/x"], 20)
    assert next(asked) is None
    desk.close(first)
    desk.advance(1.0)
    desk.sub(second, "hall/x")
    answers = [answer for answer in asked if answer is not None]
    assert answers == [False, True]
