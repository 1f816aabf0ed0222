"""The benchmark measures real deliveries; how fast is never a test's business."""

import contextlib
import json
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.broker import burst, idle, latency, metering, retained, rounds, singles, steady
from benchmarks.broker.effort import QUICK
from benchmarks.broker.generator import Load
from benchmarks.broker.peers import (
    BARE_LOOP,
    BY_NAME,
    JOURNAL,
    MOSQUITTO,
    MOTEMQ,
    NATS,
    PURE,
    RELAY,
    WRITTEN_RELAY,
    Peer,
    PeerFailed,
    Running,
    running,
)
from benchmarks.broker.wires import FMQP, MQTT
from benchmarks.broker.workloads import WORKLOADS, Traffic, Workload, numbered

_HERE = (MOTEMQ, RELAY)
_BURSTS = [each for each in WORKLOADS if each.kind == "burst" and not each.on_request]
_SINGLES = [workload for workload in WORKLOADS if workload.kind == "singles"]


def _load(peer: Peer, traffic: Traffic) -> Load:
    return Load(peer.wire, peer.hearing, traffic)


@pytest.mark.parametrize("workload", _BURSTS, ids=lambda workload: workload.name)
def test_bursts_deliver_everything(workload: Workload) -> None:
    """A measurement returns only if exactly the expected bytes arrived at the subscribers."""
    for name in set(workload.brokers) - {NATS.name, MOSQUITTO.name}:
        peer = BY_NAME[name]
        with running(peer, workload.tls) as broker:
            found = burst.measure(peer, broker, _load(peer, workload.traffic(1)), 0.05)
        assert found.deliveries_per_second > 0
        assert found.cpu_us > 0


@pytest.mark.parametrize("workload", _SINGLES, ids=lambda workload: workload.name)
@pytest.mark.parametrize("peer", _HERE, ids=lambda peer: peer.name)
def test_singles_deliver_everything(peer: Peer, workload: Workload) -> None:
    with running(peer) as broker:
        found = singles.measure(peer, broker, _load(peer, workload.traffic(1)), 0.05)
    assert found.deliveries_per_second > 0
    assert found.cpu_us > 0


@pytest.mark.parametrize("peer", [*_HERE, BARE_LOOP], ids=lambda peer: peer.name)
def test_every_delivery_is_timed(peer: Peer) -> None:
    load = _load(peer, latency.traffic(1))
    with running(peer) as broker:
        for _ in range(2):
            found = latency.measure(peer, broker, load, 2_000, 0.2)
            assert 0 < found.p50 <= found.p99 <= found.p999 < latency.STALL_S * 1e6


def test_idle_clients_cost_memory() -> None:
    with running(MOTEMQ) as broker:
        found = idle.measure(MOTEMQ, broker, count=200)
    assert found.kib_per_client > 0
    assert 0 <= found.cpu_percent < 100


def test_what_is_retained_costs_memory() -> None:
    """Its payloads are in the broker's memory at least once."""
    with running(MOTEMQ) as broker:
        found = retained.measure(MOTEMQ, broker, 1)
    assert found.retained_mb > retained.RETAINED_BYTES / 1e6
    assert found.subscribers_mb >= 0


def test_publications_and_deliveries_are_spelled_right() -> None:
    assert FMQP.publication("bench/one", b"hi", 0) == b"\x00\x09\x00\x00\x00\x02bench/onehi"
    assert MQTT.publication("bench/one", b"hi", 0) == b"\x30\x0d\x00\x09bench/onehi"
    assert MQTT.publication("bench/one", b"x" * 200, 0)[:3] == b"\x30\xd3\x01"
    assert MQTT.subscribe(["a/*"], 0)[0] == b"\x82\x08\x00\x01\x00\x03a/+\x00"
    assert NATS.wire.publication("bench/one", b"hi", 0) == b"PUB bench.one 2\r\nhi\r\n"
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
    traffic = Traffic((((("bench/one"), numbered(0, b"x" * 64)),),), (("bench/one",),))
    listening = socket.create_server(("127.0.0.1", 0))
    broker = Running(listening.getsockname()[1], os.getpid())
    relay = threading.Thread(target=_losing_relay, args=(listening,))
    relay.start()
    with pytest.raises(PeerFailed, match=r"byte relay (lost|delivered other)"):
        module.measure(RELAY, broker, _load(RELAY, traffic), 0.05)
    relay.join(10)
    assert not relay.is_alive()


def test_a_relay_that_writes_has_in_its_file_what_it_has_relayed(tmp_path: Path) -> None:
    """It is what a journal costs at least, so it must not write less."""
    peer = replace(
        WRITTEN_RELAY, argv=lambda port, folder, tls: WRITTEN_RELAY.argv(port, tmp_path, tls)
    )
    file, sent = tmp_path / "relayed", random.Random(1).randbytes(3_000_000)
    with (
        running(peer) as broker,
        socket.create_connection(("127.0.0.1", broker.port), 10) as listener,
    ):
        listener.sendall(b"\0\1")
        assert listener.recv(2) == b"ok"
        with socket.create_connection(("127.0.0.1", broker.port), 10) as talker:
            sending = threading.Thread(target=talker.sendall, args=(b"\0\0" + sent,))
            sending.start()
            got = b""
            while len(got) < len(sent):
                got += listener.recv(65536)
            sending.join()
        assert got == sent
        end = time.monotonic() + 10
        while file.stat().st_size < len(sent) and time.monotonic() < end:
            time.sleep(0.01)  # a poll of another process's thread, bounded by `end`
        assert file.read_bytes() == sent


def _lying_relay(listening: socket.socket) -> None:
    """One subscriber, one publisher; of the second packet the last byte is another."""
    with listening, listening.accept()[0] as subscriber:
        subscriber.recv(2)
        subscriber.sendall(b"ok")
        with listening.accept()[0] as publisher:
            publisher.recv(2)
            data = publisher.recv(65536)
            subscriber.sendall(data[:19] + b"?" + data[20:])
            while data := publisher.recv(65536):
                subscriber.sendall(data)


def test_deliveries_are_compared_before_they_are_counted() -> None:
    traffic = Traffic(((("a", b"one"), ("b", b"two")),), (("a", "b"),))
    listening = socket.create_server(("127.0.0.1", 0))
    broker = Running(listening.getsockname()[1], os.getpid())
    relay = threading.Thread(target=_lying_relay, args=(listening,))
    relay.start()
    with pytest.raises(PeerFailed, match=r"delivered something else: after 10 bytes"):
        burst.check(RELAY, broker, _load(RELAY, traffic))
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
            subscriber.sendall(data.replace(b"#0002;", b"#0007;") if lie else data)


@pytest.mark.parametrize("lie", [False, True], ids=["true", "lie"])
def test_a_publisher_has_one_publication_under_way(lie: bool) -> None:
    """Else a read of a broker could return two, and would not measure what it says."""
    frame = len(FMQP.publication("bench/one", b"x" * 64, 0))
    reads: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        broker = Running(listening.getsockname()[1], os.getpid())
        relay = threading.Thread(target=_three_at_a_time, args=(listening, reads, frame, lie))
        relay.start()
        publishers = tuple((("bench/one", numbered(n, b"x" * 64)),) for n in range(3))
        load = _load(RELAY, Traffic(publishers, (("bench/one",),)))
        if lie:
            with pytest.raises(PeerFailed, match=r"that nobody published"):
                singles.measure(RELAY, broker, load, 0.1)
        else:
            assert singles.measure(RELAY, broker, load, 0.1).deliveries_per_second > 0
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
    publications = (("a/b", b"x" * 40), ("c", b"y" * 700))
    load = _load(NATS, Traffic((publications,), (("a/b", "c"),)))
    first, second = (
        NATS.wire.delivery(topic, body, number) for number, (topic, body) in enumerate(publications)
    )
    stream = first + second + NATS.wire.aside + first
    ends = (len(first), len(first + second), len(stream))
    for cut in range(len(stream) + 1):
        deliveries = latency.Deliveries(load, NATS.wire.aside, 10)
        deliveries.add(1.0, stream[:cut])
        deliveries.add(2.0, stream[cut:])
        heard = [1.0 if cut >= end else 2.0 for end in ends]
        assert deliveries.taken_s == [heard[0], heard[1] - 0.1, heard[2] - 0.2]
        assert deliveries.got == load.bytes_due(0, [3])


def test_a_disturbed_measurement_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = metering.Measured(1.0, 1.0, 1.0, 1.0, others_share=0.0, stolen_share=0.0)
    others = [name for name in BY_NAME if name != RELAY.name]
    effort = replace(QUICK, rounds=1, attempts=2)
    for noise in (replace(quiet, others_share=0.2), replace(quiet, stolen_share=0.2)):
        answers = iter([noise, quiet])
        monkeypatch.setattr(burst, "measure", lambda *_: next(answers))  # noqa: B023
        result = rounds.measure(WORKLOADS[0], others, 1, effort, lambda _: None)
        assert result.measured == {RELAY.name: [quiet]}


def _run(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "broker", *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=None if path is None else {"PATH": path},
    )


def test_without_a_peer_it_says_so_and_fails() -> None:
    result = _run("--rounds", "1", path="/nonexistent")
    assert result.returncode == 3
    for peer in (MOSQUITTO, NATS):
        assert f"not measured: {peer.name} (apt-get install {peer.package})" in result.stderr


def test_the_table_and_the_json_hold_the_same_workloads(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    arguments = ["mixed-1-1", "mixed-data", "--rounds", "1", "--duration", "0.05", "--ours-only"]
    result = _run(*arguments, "--json", str(file))
    assert result.returncode == 0, result.stderr
    assert "| mixed 1→1, 64 topics |" in result.stdout
    assert "| mixed 1→1, 64 topics, journal | motemq, --data / motemq |" in result.stdout
    assert list(json.loads(file.read_text())["workloads"]) == ["mixed-1-1", "mixed-data"]


def test_latency_is_measured_in_windows_of_all_in_turn() -> None:
    others = {name for name in BY_NAME if name not in (MOTEMQ.name, JOURNAL.name)}
    told: list[str] = []
    document: dict[str, Any] = {}
    effort = replace(QUICK, windows=2, window_messages=200)
    table = steady.measure("latency-10k", sorted(others), 1, effort, document, told.append)
    assert len(told) == 2
    assert {name: len(all_) for name, all_ in document["latency_us_at_10000"].items()} == {
        "motemq": 4,
        "motemq, --data": 4,
        "bare loop": 4,
    }
    assert "4 windows of 0.1 s" in table
    assert "| 10,000 | bare loop |" in table
    assert table.count("| 1.15 |") == table.count("| 1.3 |") == 1


def test_a_broker_that_fails_ends_its_row_only(tmp_path: Path) -> None:
    broken = tmp_path / "mosquitto"
    broken.write_text("#!/bin/sh\necho out of order >&2\nexit 1\n")
    broken.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    arguments = ["mixed-1-1", "mixed-data", "--rounds", "1", "--duration", "0.05"]
    result = _run(*arguments, path=path)
    assert result.returncode == 1
    assert "failed: mixed-1-1: mosquitto did not accept connections" in result.stdout
    assert "out of order" in result.stdout
    assert "| mixed 1→1, 64 topics, journal |" in result.stdout
    assert "| mixed 1→1, 64 topics |" not in result.stdout


@pytest.mark.parametrize("peer", [MOTEMQ, PURE], ids=lambda peer: peer.name)
def test_only_the_pure_broker_runs_without_compiled_code(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment of the benchmark says."""
    monkeypatch.setenv("MOTEMQ_PURE_PYTHON", "1")
    with running(peer) as broker:
        environment = Path(f"/proc/{broker.pid}/environ").read_bytes().split(b"\0")
    assert (b"MOTEMQ_PURE_PYTHON=1" in environment) == (peer is PURE)


def test_the_rows_are_listed() -> None:
    result = _run("--list", path="/nonexistent")
    assert result.returncode == 0
    rows = [line.split()[0] for line in result.stdout.splitlines()]
    assert rows == [*(workload.name for workload in WORKLOADS), *steady.MEASURES]


def test_a_short_run_with_all_peers_prints_its_verdicts() -> None:
    result = _run("mixed-1-1", "--rounds", "1", "--duration", "0.05", "--seed", "77")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("| motemq / ") == 3
    assert "not measured" not in result.stdout
