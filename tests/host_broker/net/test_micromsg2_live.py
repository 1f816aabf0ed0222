"""MicroMsg2 at real sockets, beside FMQP and LightMQ on one broker: by client and by commands."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.access.users import User, token_hash
from host_broker.client import Client, Refused, connect
from host_broker.net.access.access_files import write_users
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq
from tests.host_broker.net.certificates import Authority

_WAIT_S = 20.0
_TOKEN = "canary-token-of-a-kitchen-board"


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker("--listen", "auto://127.0.0.1:0", "--listen", "micromsg2://127.0.0.1:0") as process:
        yield process


def url(running: BrokerProcess, protocol: str) -> str:
    return f"{protocol}://127.0.0.1:{running.ports['auto']}"


def _at(running: BrokerProcess, protocol: str = "micromsg2", name: str = "") -> Client:
    address = url(running, protocol) + (f"/{name}" if name else "")
    client = connect(address, timeout_s=_WAIT_S)
    return client


def _next(client: Client) -> tuple[str, bytes]:
    message = client.receive(_WAIT_S)
    assert message is not None
    return message.topic, message.payload


def test_three_protocols_on_one_bus(running: BrokerProcess) -> None:
    """R35: a topic's messages go to all who want it, whatever they speak."""
    with _at(running) as sensor, _at(running) as desk, _at(running, "fmqp") as program:
        desk.subscribe("topic/lightmq/attic/up", "topic/home/*", confirm=True)
        program.subscribe("home/*", confirm=True)
        with _at(running, "lightmq", "attic") as board:
            board.request("up", b"21.5", _WAIT_S)
            assert _next(desk) == ("topic/lightmq/attic/up", b"21.5")
            desk.publish("topic/lightmq/attic/down", b"heat")
            request = board.receive(_WAIT_S)
            assert request is not None
            assert request.payload == b"heat"
        sensor.publish("topic/home/hall", b"1", properties={"level": 3}, confirm=True)
        assert _next(program) == ("home/hall", b"1")
        message = desk.receive(_WAIT_S)
        assert message is not None
        assert (message.topic, message.properties) == ("topic/home/hall", {"level": 3})
        program.publish("home/cellar", b"2")
        assert _next(desk) == ("topic/home/cellar", b"2")
        assert sensor.receive(0.0) is None


def test_a_queue_is_for_one_and_comes_back(running: BrokerProcess) -> None:
    """R36: in order, to one; what a dead consumer had not acknowledged comes again, marked."""
    with _at(running) as publisher, _at(running) as first:
        jobs = [b"%d" % number for number in range(100)]
        first.subscribe("live/jobs", confirm=True)
        for job in jobs[:50]:
            publisher.publish("live/jobs", job)
        publisher.sync()
        assert [_next(first)[1] for _ in range(50)] == jobs[:50]
        first.close()
        for job in jobs[50:]:
            publisher.publish("live/jobs", job)
        publisher.sync()
        with _at(running) as second:
            second.subscribe("live/jobs", confirm=True)
            assert [_next(second)[1] for _ in range(50)] == jobs[50:]
            assert second.receive(0.0) is None


def test_filters_limit_what_comes(running: BrokerProcess) -> None:
    """R37: the broker looks at properties; who subscribes without any gets everything."""
    with _at(running) as publisher, _at(running) as some, _at(running) as everything:
        some.subscribe("topic/live/level", filter="level>N5", confirm=True)
        everything.subscribe("topic/live/level", confirm=True)
        for level in range(10):
            properties = {"level": level}
            publisher.publish("topic/live/level", b"%d" % level, properties=properties)
        publisher.sync()
        assert [_next(some)[1] for _ in range(4)] == [b"6", b"7", b"8", b"9"]
        assert len([_next(everything) for _ in range(10)]) == 10
        assert some.receive(0.0) is None


def test_thousands_of_messages_by_windows(running: BrokerProcess) -> None:
    """R26: neither side has more under way than was agreed on, and nothing is missing."""
    with _at(running) as publisher, _at(running) as reader:
        reader.subscribe("topic/live/bulk", confirm=True)
        for number in range(20_000):
            publisher.publish("topic/live/bulk", b"%d" % number)
        publisher.sync(_WAIT_S)
        assert [_next(reader)[1] for _ in range(20_000)] == [b"%d" % n for n in range(20_000)]


def test_a_fast_publisher_waits_for_a_slow_reader(running: BrokerProcess) -> None:
    """R26: 40 MB, of which at most 16 MiB may wait; nothing is missing."""
    count = 40_000

    def publish() -> None:
        with _at(running, "fmqp") as program:
            for number in range(count):
                program.publish("live/flood", b"%d" % number + bytes(1000))
            program.sync(_WAIT_S)

    with _at(running) as reader, ThreadPoolExecutor(1) as pool:
        reader.subscribe("topic/live/flood", confirm=True)
        published = pool.submit(publish)
        for number in range(count):
            assert int(_next(reader)[1].rstrip(b"\0")) == number
        published.result(_WAIT_S)


def test_a_long_message(running: BrokerProcess) -> None:
    """R18, R20: above 255 bytes and up to what the broker takes."""
    with _at(running) as publisher, _at(running) as reader:
        reader.subscribe("topic/live/long", confirm=True)
        for size in (1, 255, 256, 70_000, 1024 * 1024):
            publisher.publish("topic/live/long", bytes(size))
            assert len(_next(reader)[1]) == size
        with pytest.raises(Refused, match=r"bus\.max_body"):
            publisher.publish("topic/live/long", bytes(1024 * 1024 + 1), confirm=True)


def test_a_client_that_reconnects_loses_nothing() -> None:
    """What was published while the broker was away reaches it."""
    listen = ("--listen", f"micromsg2://127.0.0.1:{port_for_later()}")
    with broker(*listen) as first:
        client = connect(first.urls["micromsg2"], reconnect=True, timeout_s=_WAIT_S)
        with client:
            client.publish("topic/t", b"1", confirm=True)
            client.subscribe("topic/t", confirm=True)
            first.process.kill()
            first.process.wait(_WAIT_S)
            with broker(*listen):
                client.publish("topic/t", b"2")
                client.sync(_WAIT_S)
                found = client.receive(_WAIT_S)
                while found is None:  # where messages may be missing
                    found = client.receive(_WAIT_S)
                assert found.payload == b"2"


def test_by_tls_and_by_a_unix_socket(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    path = tmp_path / "mm2.sock"
    listen = [f"micromsg2s://127.0.0.1:0?cert={cert}&key={key}", f"micromsg2+unix://{path}"]
    with broker(*(word for address in listen for word in ("--listen", address))) as running:
        secure = f"{running.urls['micromsg2s']}/board?ca={ours.file}"
        local = f"micromsg2+unix://{path}?client_id=desk"
        with connect(secure) as board, connect(local) as desk:
            assert (board.name, desk.name) == ("board", "desk")
            desk.subscribe("jobs", confirm=True)
            board.publish("jobs", b"by TLS")
            assert _next(desk) == ("jobs", b"by TLS")
        assert running.end() == (0, "")


def test_users_log_in(tmp_path: Path) -> None:
    """A token of a file, and what a user may not do is an error that says so."""
    write_users(tmp_path / "users.toml", {"kitchen": User(token=token_hash(_TOKEN))})
    (tmp_path / "rules.toml").write_text(
        '[roles.users]\nconnect = ["micromsg2"]\npublish = ["%c/**"]\nsubscribe = ["%c/**"]\n'
    )
    (tmp_path / "token").write_text(_TOKEN)
    (tmp_path / "wrong").write_text("another-token-of-many-letters")
    access = [f"access.users={tmp_path}/users.toml", f"access.rules={tmp_path}/rules.toml"]
    options = [word for each in access for word in ("--set", each)]
    with broker("--listen", "auto://127.0.0.1:0", *options) as running:
        kitchen = f"{url(running, 'micromsg2')}/kitchen?token_file={tmp_path}"
        with connect(f"{kitchen}/token") as client:
            client.subscribe("topic/kitchen/t", confirm=True)
            client.publish("topic/kitchen/t", b"mine", confirm=True)
            assert _next(client) == ("topic/kitchen/t", b"mine")
            with pytest.raises(Refused, match="may not publish: hall/t"):
                client.publish("topic/hall/t", b"not mine", confirm=True)
        for wrong in (f"{kitchen}/wrong", f"{url(running, 'micromsg2')}/kitchen"):
            with pytest.raises(Refused, match="may not connect with this name"):
                connect(wrong)
        code, said = running.end()
        assert code == 0
        assert _TOKEN not in said


def test_pub_sub_and_ping(running: BrokerProcess) -> None:
    address = url(running, "micromsg2")
    listening = subprocess.Popen(
        motemq("sub", address, "topic/cli/*", "cli-jobs", "-v", "--count", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert listening.stderr is not None
    assert "subscribed" in listening.stderr.readline()
    for topic, payload in (("topic/cli/a", "1"), ("cli-jobs", "2")):
        subprocess.run(motemq("pub", address, topic, payload), check=True, timeout=_WAIT_S)
    stdout, _ = listening.communicate(timeout=_WAIT_S)
    assert stdout == "topic/cli/a 1\ncli-jobs 2\n"
    done = subprocess.run(
        motemq("ping", f"{running.urls['micromsg2']}/me", "--count", "5", "--json"),
        capture_output=True,
        timeout=_WAIT_S,
        check=True,
    )
    assert len(json.loads(done.stdout)["round_trips_us"]) == 5


def _listening(*words: str) -> "subprocess.Popen[str]":
    """Return a ``motemq sub`` whose subscription is active."""
    listening = subprocess.Popen(
        motemq("sub", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert listening.stderr is not None
    assert listening.stderr.readline() == "subscribed\n"
    return listening


def test_properties_and_filters_on_the_command_line(running: BrokerProcess) -> None:
    """R37, R40: several filters must all hold; what is printed says the properties."""
    address, topic = url(running, "micromsg2"), "topic/cli/props"
    words = ["--filter", "level>N5", "--filter", "room&T;", "--filter", "at<D1413198001"]
    listening = _listening(address, topic, *words, "--json", "--count", "2")
    spoken = _listening(address, topic, "--format", "%p|%P", "--count", "4")
    for payload, properties in (
        ("1", ["level=N5", "room=Ta;b", "at=D1413198000.25"]),
        ("2", ["level=N5.5", "room=Ta;b\n", "at=D2014-10-13T12:00:00.25+01:00"]),
        ("3", ["level=N6", "room=Tab", "at=D0"]),
        ("4", ["level=N+7", "room=T;", "at=D-1", "empty=T"]),
    ):
        options = [word for each in properties for word in ("--property", each)]
        subprocess.run(
            motemq("pub", address, topic, payload, *options), check=True, timeout=_WAIT_S
        )
    stdout, _ = listening.communicate(timeout=_WAIT_S)
    assert listening.returncode == 0
    second, fourth = (json.loads(line) for line in stdout.splitlines())
    assert (second["payload"], second["properties"]) == (
        "2",
        {"level": 5.5, "room": "a;b\\n", "at": "2014-10-13T11:00:00.250000Z"},
    )
    assert (fourth["payload"], fourth["properties"]) == (
        "4",
        {"level": 7, "room": ";", "at": "1969-12-31T23:59:59Z", "empty": ""},
    )
    stdout, _ = spoken.communicate(timeout=_WAIT_S)
    assert stdout.splitlines()[2:] == [
        "3|level:6 room:ab at:1970-01-01T00:00:00Z",
        "4|level:7 room:; at:1969-12-31T23:59:59Z empty:",
    ]


def test_sub_takes_from_a_queue_what_it_prints(running: BrokerProcess) -> None:
    """R36: what it did not print is for the next, marked; filters leave the rest to others."""
    address = url(running, "micromsg2")
    with _at(running) as publisher:
        for number in range(30):
            properties = {"odd": number % 2}
            publisher.publish("cli/queue", b"%d" % number, properties=properties)
        publisher.sync()
    for words, said in (
        (
            ["--count", "2", "--filter", "odd=N1"],
            ["1 odd:1 queue-number:2", "3 odd:1 queue-number:4"],
        ),
        (["--count", "2"], ["0 odd:0 queue-number:1", "2 odd:0 queue-number:3"]),
        (
            ["--count", "2"],
            ["4 odd:0 redelivered:1 queue-number:5", "5 odd:1 redelivered:1 queue-number:6"],
        ),
    ):
        done = subprocess.run(
            motemq("sub", address, "cli/queue", "--format", "%p %P", *words),
            capture_output=True,
            text=True,
            timeout=_WAIT_S,
        )
        assert (done.returncode, done.stdout.splitlines()) == (0, said)
    with _at(running) as reader:
        reader.subscribe("cli/queue", confirm=True)
        assert [int(_next(reader)[1]) for _ in range(30 - 6)] == list(range(6, 30))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["pub", "topic/", "x"], "is no destination of MicroMsg2"),
        (
            ["pub", "topic/a", "x", "--retain"],
            "has no retained messages; give the broker's fmqp://",
        ),
        (["sub", "topic/a", "--feedback"], "has no feedback about subscribers"),
    ],
)
def test_mistakes_are_said_at_once(
    running: BrokerProcess, words: list[str], complaint: str
) -> None:
    command, *rest = words
    done = subprocess.run(
        motemq(command, url(running, "micromsg2"), *rest),
        capture_output=True,
        text=True,
        timeout=_WAIT_S,
    )
    assert done.returncode == 2
    assert complaint in done.stderr
