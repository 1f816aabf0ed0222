"""A disk without room: publishers wait, nothing is lost, and all goes on when there is room again.

A limit on the size of files stands for the full disk: it can be set and lifted from outside, and
refuses a write in its middle as a full disk does.
"""

import contextlib
import http.client
import json
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import Client, ClientError, connect
from host_broker.client_errors import ConnectionLost, Refused
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, spawn, until
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.journal_decoder import read_journal

OPTIONS = (
    *("--listen", "auto://127.0.0.1:0"),
    *("--set", "journal.partitions=1", "--set", "net.drain_s=1"),
)
LIMIT_BYTES = 300_000
COUNT = 3000


@pytest.fixture
def running(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker("--data", str(tmp_path), *OPTIONS) as started:
        yield started


def limit(running: BrokerProcess, size: int) -> None:
    resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def connected(running: BrokerProcess, scheme: str) -> Client:
    return connect(running.urls["auto"].replace("auto", scheme), timeout_s=60.0)


def fill(client: Client, retain: bool) -> threading.Thread:
    """Publish more than there is room for, and wait until the broker has it."""

    def work() -> None:
        for number in range(COUNT):
            client.publish("t/a", number.to_bytes(4, "big") + bytes(1000), retain=retain)
        client.sync(60.0)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def numbers(tmp_path: Path) -> list[int]:
    (messages,) = read_journal(tmp_path / "journal").values()
    return [int.from_bytes(each.body[:4], "big") for each in messages if each.topic == "t/a"]


def is_full(running: BrokerProcess) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=30)
    try:
        connection.request("GET", "/stats")
        return bool(json.loads(connection.getresponse().read())["journal"]["full"])
    finally:
        connection.close()


def held(running: BrokerProcess) -> int:
    """Return how many connections are read no further."""
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=30)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    return int(float(next(line for line in lines if line.startswith("motemq_clients_held "))[20:]))


def came_back(url: str) -> bool:
    with contextlib.suppress(Refused), connect(url, timeout_s=60.0):
        return True
    return False


def post(running: BrokerProcess) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=30)
    try:
        connection.request("POST", "/publish/t/http", b"x")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("retain", [False, True])
def test_everything_waits_and_goes_on_when_there_is_room(
    running: BrokerProcess, tmp_path: Path, retain: bool
) -> None:
    limit(running, LIMIT_BYTES)
    publisher = connected(running, "fmqp")
    filling = fill(publisher, retain)
    until(lambda: is_full(running))
    assert post(running) == 503
    board = connected(running, "lightmq")
    asking = threading.Thread(target=lambda: board.request("up", b"asked", 60.0))
    asking.start()
    asking.join(1.0)
    # None of them was told that what it published is kept.
    assert asking.is_alive()
    assert filling.is_alive()
    limit(running, resource.RLIM_INFINITY)
    for thread in (filling, asking):
        thread.join(60.0)
        assert not thread.is_alive()
    assert post(running) == 200
    publisher.close()
    board.close()
    code, stderr = running.end()
    assert code == 0
    assert numbers(tmp_path) == list(range(COUNT))
    first, second = stderr.splitlines()
    assert "cannot be written for now" in first
    assert "publishers wait" in first
    assert "goes on after" in second


def test_what_is_lost_at_the_end_is_counted(running: BrokerProcess, tmp_path: Path) -> None:
    with connected(running, "fmqp") as heard, connected(running, "fmqp") as publisher:
        heard.subscribe("t/a")
        heard.sync()
        limit(running, LIMIT_BYTES)
        with pytest.raises(ClientError):
            for number in range(COUNT):
                publisher.publish("t/a", number.to_bytes(4, "big") + bytes(1000))
            publisher.sync(3.0)
        code, stderr = running.end()
        delivered = 0
        with contextlib.suppress(ConnectionLost):
            while heard.receive(20.0) is not None:
                delivered += 1
    assert code == 1
    assert "Traceback" not in stderr
    kept = numbers(tmp_path)
    assert kept == list(range(len(kept)))
    # The echo of the sync, and its subscription's, are among what was accepted.
    (line,) = [line for line in stderr.splitlines() if "are lost" in line]
    (lost,) = [int(word) for word in line.split() if word.isdigit()]
    assert delivered <= len(kept) + lost <= delivered + 3
    assert lost > 0


@pytest.mark.parametrize("ack", ["memory", "written", "synced"])
@pytest.mark.parametrize(
    ("path", "words"),
    [("fmqp", ("t/a", "x")), ("fmqp", ("t/kept", "x", "--retain")), ("lightmq", ("up", "x"))],
    ids=["plain", "retained", "lightmq"],
)
def test_the_exit_code_of_pub_is_what_journal_ack_promises(
    tmp_path: Path, ack: str, path: str, words: tuple[str, ...]
) -> None:
    """The disk takes nothing: only in memory is there anything to be told."""
    data = ("--data", str(tmp_path), *OPTIONS, "--set", f"journal.ack={ack}")
    with broker(*data) as running:
        port = running.ports["auto"]

        def code(within_s: int) -> int:
            name = f"/b{within_s}" if path == "lightmq" else ""
            url = f"{path}://127.0.0.1:{port}{name}"
            with spawn(motemq("pub", url, *words, "--answer-within", str(within_s))) as process:
                return process.wait(60)

        limit(running, 10)
        assert code(50) == 0 if ack == "memory" else code(2) == 1
        limit(running, resource.RLIM_INFINITY)
        assert code(50) == 0
        assert running.end()[0] == 0


def test_a_consumer_group_is_told_to_try_again(running: BrokerProcess) -> None:
    def ask(method: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=30)
        try:
            connection.request(method, "/journal/groups/spark", b'{"positions": {"0": 1}}')
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    assert post(running) == 200
    assert ask("PUT") == (204, b"")
    limit(running, 1)  # less than what says that there are no groups
    for method in ("PUT", "DELETE"):
        status, said = ask(method)
        assert status == 503
        assert json.loads(said)["error"] == "it cannot be noted: File too large; try again"
    limit(running, resource.RLIM_INFINITY)
    assert ask("PUT") == (204, b"")
    assert ask("DELETE") == (204, b"")
    assert running.end() == (0, "")


@pytest.mark.parametrize("scheme", ["lightmq", "lightmqs"])
def test_a_board_that_restarts_meanwhile_gets_its_name_back(tmp_path: Path, scheme: str) -> None:
    """Nobody reads that its former self has hung up: it waits, as all who publish do."""
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    secure = f"autos://127.0.0.1:0?cert={cert}&key={key}"
    with broker("--data", str(tmp_path / "data"), *OPTIONS, "--listen", secure) as running:
        of = "auto" if scheme == "lightmq" else "autos"
        url = f"{scheme}://127.0.0.1:{running.ports[of]}/kitchen?ca={authority.file}"
        if of == "auto":
            url = url.partition("?")[0]
        limit(running, LIMIT_BYTES)
        publisher = connected(running, "fmqp")
        filling = fill(publisher, retain=False)
        until(lambda: is_full(running))
        # Whether the filling publisher is held depends on how much of it was read before.
        another = connected(running, "fmqp")
        another.publish("t/a", b"held from here on")
        until(lambda: held(running) > 0)
        others = held(running)
        former = connect(url, timeout_s=60.0)
        former.publish("up", b"held from here on")
        until(lambda: held(running) > others)
        with pytest.raises(Refused):
            connect(url, timeout_s=60.0)
        former.abort()
        until(lambda: came_back(url))
        limit(running, resource.RLIM_INFINITY)
        filling.join(60.0)
        publisher.close()
        another.close()
        assert running.end()[0] == 0
