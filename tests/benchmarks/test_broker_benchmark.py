"""The benchmark measures real deliveries; how fast is never a test's business."""

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import burst, idle, latency, metering, rounds, singles, steady
from benchmarks.broker.peers import (
    AUTO,
    BARE_LOOP,
    MOSQUITTO,
    MOTEMQ,
    NATS,
    RELAY,
    Peer,
    PeerFailed,
    Running,
    running,
)
from benchmarks.broker.wires import FMQP, MQTT
from benchmarks.broker.workloads import WORKLOADS, Traffic, Workload

_HERE = (MOTEMQ, AUTO, RELAY)
_BURSTS = [workload for workload in WORKLOADS if workload.kind == "burst"]
_SINGLES = [workload for workload in WORKLOADS if workload.kind == "singles"]


@pytest.mark.parametrize("workload", _BURSTS, ids=lambda workload: workload.name)
@pytest.mark.parametrize("peer", _HERE, ids=lambda peer: peer.name)
def test_bursts_deliver_everything(peer: Peer, workload: Workload) -> None:
    """A measurement returns only if exactly the expected bytes arrived at the subscribers."""
    with running(peer, workload.tls) as broker:
        found = burst.measure(peer, broker, workload.traffic, 0.05)
    assert found.deliveries_per_second > 0
    assert found.cpu_us > 0


@pytest.mark.parametrize("workload", _SINGLES, ids=lambda workload: workload.name)
@pytest.mark.parametrize("peer", _HERE, ids=lambda peer: peer.name)
def test_singles_deliver_everything(peer: Peer, workload: Workload) -> None:
    with running(peer) as broker:
        found = singles.measure(peer, broker, workload.traffic, 0.05)
    assert found.deliveries_per_second > 0
    assert found.cpu_us > 0


@pytest.mark.parametrize("peer", _HERE, ids=lambda peer: peer.name)
def test_every_delivery_is_timed(peer: Peer) -> None:
    with running(peer) as broker:
        found = latency.measure(peer, broker, 2_000, 0.2)
    assert 0 < found.p50 <= found.p99 <= found.p999 < latency.STALL_S * 1e6


def test_idle_clients_cost_memory() -> None:
    with running(MOTEMQ) as broker:
        found = idle.measure(MOTEMQ, broker, count=200)
    assert found.kib_per_client > 0
    assert 0 <= found.cpu_percent < 100


def test_publications_and_deliveries_are_spelled_right() -> None:
    assert FMQP.publication("bench/one", b"hi") == b"\x00\x09\x00\x00\x00\x02bench/onehi"
    assert MQTT.publication("bench/one", b"hi") == b"\x30\x0d\x00\x09bench/onehi"
    assert MQTT.publication("bench/one", b"x" * 200)[:3] == b"\x30\xd3\x01"
    assert MQTT.subscribe(["a/*"], 0)[0] == b"\x82\x08\x00\x01\x00\x03a/+\x00"
    assert NATS.wire.publication("bench/one", b"hi") == b"PUB bench.one 2\r\nhi\r\n"
    assert NATS.wire.delivery("bench/one", b"hi", 1) == b"MSG bench.one 101 2\r\nhi\r\n"
    assert NATS.wire.subscribe(["a/*/b"], 0)[0] == b"SUB a.*.b 100\r\nPING\r\n"


def _losing_relay(listening: socket.socket) -> None:
    """One subscriber, one publisher; it forwards all but a few bytes."""
    with listening, listening.accept()[0] as subscriber:
        subscriber.recv(2)
        subscriber.sendall(b"ok")
        with listening.accept()[0] as publisher:
            publisher.recv(2)
            publisher.recv(9)
            while data := publisher.recv(65536):
                subscriber.sendall(data)


@pytest.mark.parametrize("module", [burst, singles], ids=["burst", "singles"])
def test_a_lost_delivery_is_never_speed(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.3)
    traffic = Traffic((("bench/one",),), (("bench/one",),))
    listening = socket.create_server(("127.0.0.1", 0))
    broker = Running(listening.getsockname()[1], os.getpid())
    relay = threading.Thread(target=_losing_relay, args=(listening,))
    relay.start()
    with pytest.raises(PeerFailed, match=r"byte relay lost"):
        module.measure(RELAY, broker, traffic, 0.05)
    relay.join(10)
    assert not relay.is_alive()


def _three_at_a_time(listening: socket.socket, reads: list[int], frame: int, lie: bool) -> None:
    """A subscriber, three publishers; delivers when all three have published, then looks at them.

    ``reads``: the bytes of every read. ``lie``: deliver as if publisher 7 had published.
    """
    with contextlib.ExitStack() as stack:
        subscriber = stack.enter_context(listening.accept()[0])
        subscriber.recv(2)
        subscriber.sendall(b"ok")
        publishers = [stack.enter_context(listening.accept()[0]) for _ in range(3)]
        for publisher in publishers:
            publisher.recv(2)
        while True:
            said = []
            for publisher in publishers:
                said.append(publisher.recv(65536))
                reads.append(len(said[-1]))
            if not said[0]:
                return
            # Whoever does not wait for its delivery would speak now.
            reads.extend(frame + 1 for _ in select.select(publishers, [], [], 0.02)[0])
            data = b"".join(said)
            subscriber.sendall(data.replace(b"\x02\0", b"\x07\0") if lie else data)


@pytest.mark.parametrize("lie", [False, True], ids=["true", "lie"])
def test_a_publisher_has_one_publication_under_way(lie: bool) -> None:
    """Else a read of a broker could return two, and would not measure what it says."""
    frame = len(FMQP.publication("bench/one", b"x" * 64))
    reads: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        broker = Running(listening.getsockname()[1], os.getpid())
        relay = threading.Thread(target=_three_at_a_time, args=(listening, reads, frame, lie))
        relay.start()
        traffic = Traffic((("bench/one",),) * 3, (("bench/one",),))
        if lie:
            with pytest.raises(PeerFailed, match="that nobody published"):
                singles.measure(RELAY, broker, traffic, 0.1)
        else:
            assert singles.measure(RELAY, broker, traffic, 0.1).deliveries_per_second > 0
        relay.join(10)
    assert not relay.is_alive()
    assert set(reads) - {0} == {frame}


_BUSY = """
import sys, time
print(flush=True)
sys.stdin.readline()
while time.process_time() < 0.5:
    pass
print(flush=True)
sys.stdin.readline()
"""


def test_the_processor_time_is_that_of_the_broker() -> None:
    """A child is busy while we wait for it: the time is its, not ours, for us a disturbance."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", _BUSY], text=True, **pipes) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        mine, its = metering.Meter(os.getpid()), metering.Meter(child.pid)
        child.stdin.write("go\n")
        child.stdin.flush()
        child.stdout.readline()
        of_child, of_me = its.stop(1000), mine.stop(1000)
        metering.settle(child.pid)
        settled_s = metering.cpu_s(child.pid)
        child.stdin.close()
    assert settled_s >= 0.5
    assert 300 < of_child.cpu_us < 600
    assert of_me.cpu_us < 100
    assert of_me.others_share > of_child.others_share
    assert of_me.disturbed


def test_what_is_said_between_deliveries_is_not_counted() -> None:
    """nats-server speaks after two seconds; it may be cut anywhere by the reads."""
    topic = "bench/one"
    said = NATS.wire.delivery(topic, struct.pack("<d", 1.5) + b"x" * 56, 0)
    stream = said + NATS.wire.aside + said
    for cut in range(len(stream) + 1):
        deliveries = latency.Deliveries(NATS, topic)
        deliveries.add(2.0, stream[:cut])
        deliveries.add(2.0, stream[cut:])
        assert deliveries.taken_s == [0.5, 0.5]


def test_a_disturbed_measurement_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = metering.Measured(1.0, 1.0, 1.0, 1.0, others_share=0.0, stolen_share=0.0)
    for noise in (replace(quiet, others_share=0.2), replace(quiet, stolen_share=0.2)):
        answers = iter([noise, quiet])
        monkeypatch.setitem(rounds.MEASURE, "burst", lambda *_: next(answers))  # noqa: B023
        result = rounds.measure(WORKLOADS[0], (RELAY,), 1, 0.1, lambda _: None)
        assert result.measured == {RELAY.name: [quiet]}


def _run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "broker", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=None if path is None else {"PATH": path},
    )


def test_without_a_peer_it_says_so_and_fails() -> None:
    result = _run("--rounds", "1", path="/nonexistent")
    assert result.returncode == 3
    for peer in (MOSQUITTO, NATS):
        assert f"not measured: {peer.name} (apt-get install {peer.package})" in result.stderr


def test_the_table_and_the_json_hold_the_same_workloads(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    arguments = ["1to1", "journal", "--rounds", "1", "--duration", "0.05", "--ours-only"]
    result = _run(*arguments, "--json", str(file))
    assert result.returncode == 0, result.stderr
    assert "| 1→1, one topic |" in result.stdout
    assert "| 1→1, journal on/off |" in result.stdout
    assert list(json.loads(file.read_text())["workloads"]) == ["1to1", "journal"]


def test_the_bare_loop_serves_one_pair_after_the_other() -> None:
    with running(BARE_LOOP) as broker:
        for _ in range(2):
            found = latency.measure(BARE_LOOP, broker, 2_000, 0.1)
            assert 0 < found.p50 <= found.p99


def test_latency_is_measured_in_windows_of_all_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steady, "_WINDOWS", 2)
    monkeypatch.setattr(steady, "_WINDOW_MESSAGES", 200)
    told: list[str] = []
    document: dict[str, Any] = {}
    table = steady.measure("latency-1k", (MOTEMQ,), 2, document, told.append)
    assert len(told) == 2
    assert {name: len(all_) for name, all_ in document["latency_us_at_1000"].items()} == {
        "motemq": 4,
        "bare loop": 4,
    }
    assert "4 windows of 0.2 s" in table
    assert "| 1,000 | bare loop |" in table
