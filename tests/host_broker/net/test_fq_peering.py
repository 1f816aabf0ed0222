"""Brokers that take messages from each other, by rows of upstream (R45 to R47)."""

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.client import Client, connect
from tests.host_broker.net.broker_process import broker, until
from tests.host_broker.net.certificates import Authority
from tests.host_broker.net.fq_nodes import ON_DISK, PATIENCE_S, Node, three


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[list[Node]]:
    """Each takes from the one before it."""
    with three(tmp_path, (1,)) as nodes:
        yield nodes


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[list[Node]]:
    """Each takes from both others, so that there are two ways from one to another."""
    with three(tmp_path, (1, 2)) as nodes:
        yield nodes


def _heard(client: Client, count: int) -> list[str]:
    """Return payloads until there are so many different ones, and what else comes at once."""
    found: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(set(found)) < count and time.monotonic() < deadline:
        message = client.receive(1.0)
        if message is not None:
            found.append(message.payload.decode())
    return found


def _goes_round(nodes: list[Node]) -> None:
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(node.client("listener")) for node in nodes]
        publishers = [stack.enter_context(node.publisher()) for node in nodes]
        for number, publisher in enumerate(publishers):
            for count in range(100):
                publisher.publish(f"ring/r.{number}", f"{number}.{count}".encode())
        for publisher in publishers:
            publisher.sync()
        wanted = {f"{number}.{count}" for number in range(3) for count in range(100)}
        for node, listener in zip(nodes, listeners, strict=True):
            payloads: Counter[str] = Counter()
            while len(payloads) < len(wanted):
                message = listener.receive(PATIENCE_S)
                assert message is not None, f"{node.node_id}: {wanted - payloads.keys()}"
                assert message.properties is not None
                payloads[message.payload.decode()] += 1
                assert message.properties["fq.sender"] == "pub"
                hops = str(message.properties["fq.hops"]).split()
                assert hops[0] == node.node_id
                # The client's address is the oldest, behind the broker that it published to.
                origin = nodes[int(message.topic[-1])].node_id
                assert hops[-2:] == [origin, "127.0.0.1"]
                assert len(hops) == len(set(hops))
            assert set(payloads.values()) == {1}
        # What comes twice would be there before this.
        for number, publisher in enumerate(publishers):
            publisher.publish(f"ring/last.{number}", f"last {number}".encode())
        for listener in listeners:
            assert sorted(_heard(listener, 3)) == ["last 0", "last 1", "last 2"]


def test_each_message_goes_round_once(ring: list[Node]) -> None:
    """R24, R26, R45, R46: to each broker exactly once, with the brokers it has passed."""
    _goes_round(ring)


def test_two_ways_are_one_message(mesh: list[Node]) -> None:
    """R46: hops alone would let it come by either way."""
    _goes_round(mesh)


def test_one_is_killed_and_comes_back(ring: list[Node]) -> None:
    """What is published meanwhile waits on disk for it; nothing is lost, nothing comes twice."""
    first, second, third = ring
    # From the first to the second, which is killed, to the third.
    with first.publisher() as publisher, third.client("far") as far:
        publisher.publish("ring/before", b"before")
        assert _heard(far, 1) == ["before"]
        second.kill()
        until(lambda: not first.gives_to("for-1"))
        meanwhile = [f"meanwhile {count}" for count in range(200)]
        for payload in meanwhile:
            publisher.publish("ring/meanwhile", payload.encode())
        publisher.sync()
        second.start()
        assert _heard(far, len(meanwhile)) == meanwhile
        publisher.publish("ring/after", b"after")
        assert _heard(far, 1) == ["after"]


def test_a_row_that_goes_ends_the_link(ring: list[Node]) -> None:
    """R47: and a broker that is not there is tried again and again."""
    first, _, third = ring
    first.change("DELETE FROM upstream")
    until(lambda: not third.gives_to("for-0"))
    first.takes_from(third, f"for-0/{ON_DISK}")
    until(lambda: third.gives_to("for-0"))
    third.kill()
    third.start()
    until(lambda: third.gives_to("for-0"))


def test_a_peer_by_tls(tmp_path: Path) -> None:
    """R45, R47: by fqs://, with the authority that the row names; without it there is no link."""
    authority = Authority(tmp_path, "ours")
    certificate, key = authority.issue("giver")
    taker = Node(tmp_path / "taker", "192.0.2.2")
    try:
        with broker(
            "--listen",
            f"fqs://127.0.0.1:0?cert={certificate}&key={key}",
            "--ephemeral",
            "--set",
            "fq.node_id=192.0.2.1",
        ) as giver:
            port = giver.ports["fqs"]
            statement = (
                "INSERT INTO upstream (host, port, source, password, exchange) "
                "VALUES (?, ?, ?, '', 'ring')"
            )
            taker.change(statement, ("fqs://127.0.0.1", port, "unknown/q1/mem:private"))
            host = f"fqs://127.0.0.1?ca={authority.file}"
            taker.change(statement, (host, port, "known/q2/mem:private"))
            address = f"fqs://pub@127.0.0.1:{port}?ca={authority.file}"
            with connect(address, timeout_s=PATIENCE_S) as publisher, taker.client("far") as far:
                heard = None
                while heard is None:  # until the binding is there
                    publisher.publish("ring/a", b"by TLS", confirm=True)
                    heard = far.receive(0.2)
                assert heard.payload == b"by TLS"
    finally:
        _, said = taker.process.end()
    assert said.count("its certificate is not accepted") == 1
    assert f"the upstream fqs://127.0.0.1:{port} as 'unknown/q1/mem:private'" in said
