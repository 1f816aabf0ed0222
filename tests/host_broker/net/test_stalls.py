"""Receivers that read nothing, again and again: how long their publishers wait."""

import socket
import time

from host_broker.bus.publication import pack
from host_broker.net.connection.stalls import StallHistory
from tests.host_broker.net.broker_process import BrokerProcess, broker

_GRACE_S = 3.0
_LIMITS = (
    *("--set", f"net.stalled_receiver_s={_GRACE_S}"),
    *("--set", "net.outbox_high_bytes=200000"),
    *("--set", "net.outbox_low_bytes=50000"),
)
_SUBSCRIBE = pack(0x80, b"t", b"")
_FLOOD = pack(0, b"t", bytes(64 * 1024)) * 512  # 32 MiB: more than all buffers on the way


def _connect(running: BrokerProcess, host: str) -> socket.socket:
    address = ("127.0.0.1", running.ports["fmqp"])
    return socket.create_connection(address, timeout=30, source_address=(host, 0))


def _echo(sock: socket.socket) -> None:
    """Wait until the broker has handled what was sent."""
    echo = pack(0, b"own", b"!")
    sock.sendall(pack(0x80, b"own", b"") + echo + pack(0x90, b"own", b""))
    got = b""
    while not got.endswith(echo):
        data = sock.recv(1 << 16)
        assert data
        got += data


def _freeze_s(running: BrokerProcess, host: str) -> float:
    """Return how long a publisher took to publish to a receiver of ``host`` that reads nothing."""
    with _connect(running, host) as sleeper, _connect(running, "127.0.0.9") as publisher:
        _echo(sleeper)
        sleeper.sendall(_SUBSCRIBE)
        _echo(publisher)
        started = time.monotonic()
        publisher.sendall(_FLOOD)
        _echo(publisher)
        return time.monotonic() - started


def test_a_host_that_stalls_again_freezes_publishers_for_a_tenth_each_time() -> None:
    """Net.stalled_receiver_s once; another host has all of it."""
    with broker(*_LIMITS) as running:
        first = _freeze_s(running, "127.0.0.2")
        again = [_freeze_s(running, "127.0.0.2") for _ in range(3)]
        another = _freeze_s(running, "127.0.0.3")
        assert first >= _GRACE_S
        assert all(each < _GRACE_S for each in again)
        assert another >= _GRACE_S
        code, stderr = running.end()
    assert code == 0
    for grace in ("3 s", "0.3 s", "0.03 s", "0.003 s"):
        assert f"it took too little for {grace}\n" in stderr


def test_who_leaves_before_its_time_is_over_does_not_have_it_again() -> None:
    """A host whose receivers hang up by themselves and come back freezes publishers no longer."""
    with broker(*_LIMITS) as running:
        with (
            _connect(running, "127.0.0.2") as sleeper,
            _connect(running, "127.0.0.9") as publisher,
        ):
            _echo(sleeper)
            sleeper.sendall(_SUBSCRIBE)
            _echo(publisher)
            publisher.setblocking(False)
            assert _fill(publisher) < len(_FLOOD)
            time.sleep(_GRACE_S * 0.6)  # less than it has
        assert _freeze_s(running, "127.0.0.2") < _GRACE_S
        assert _freeze_s(running, "127.0.0.3") >= _GRACE_S


def test_a_host_that_reads_is_not_affected() -> None:
    """Its receiver pauses for longer than the stalling host has by now, and loses nothing."""
    with broker(*_LIMITS) as running:
        _freeze_s(running, "127.0.0.2")
        with (
            _connect(running, "127.0.0.3") as reader,
            _connect(running, "127.0.0.9") as publisher,
        ):
            reader.sendall(_SUBSCRIBE)
            _echo(reader)
            publisher.setblocking(False)
            sent = _fill(publisher)
            assert sent < len(_FLOOD)
            time.sleep(_GRACE_S / 3)  # ten times what the other host has
            publisher.settimeout(30)
            received = 0
            while received < len(_FLOOD):
                if sent < len(_FLOOD):
                    publisher.setblocking(False)
                    sent += _fill(publisher, sent)
                received += len(reader.recv(1 << 20))
            assert received == len(_FLOOD)


def _fill(publisher: socket.socket, start: int = 0) -> int:
    """Send what is taken of the flood from ``start`` on, until nothing is; returns how much."""
    sent = start
    idle = 0
    while sent < len(_FLOOD) and idle < 20:
        try:
            sent += publisher.send(_FLOOD[sent : sent + 1_000_000])
            idle = 0
        except BlockingIOError:
            if start:
                break
            idle += 1
            time.sleep(0.01)
    return sent - start


def test_what_is_remembered_of_hosts() -> None:
    history = StallHistory(30.0)
    assert history.grace_s("a", 0.0) == 30.0
    for count, grace_s in enumerate((3.0, 0.3, 0.03, 0.003, 0.003)):
        history.add("a", float(count))
        assert abs(history.grace_s("a", float(count)) - grace_s) < 1e-9
    assert history.grace_s("b", 5.0) == 30.0
    assert history.grace_s("a", 4.0 + 600.0) < 1
    assert history.grace_s("a", 4.0 + 600.1) == 30.0
    history.add_left("c", 20.0, 5.0)
    assert history.grace_s("c", 5.0) == 10.0
    history.add_left("c", 10.0, 6.0)  # all that it had
    assert history.grace_s("c", 6.0) == 3.0
    history.add_left("c", 1.0, 7.0)
    assert history.grace_s("c", 7.0) == 2.0
    assert history.grace_s("c", 7.0 + 600.1) == 30.0
    for number in range(2000):
        history.add(f"{number}", 700.0)
    assert len(history._peers) == 1024
    assert history.grace_s("0", 700.0) == 30.0  # forgotten: the others stalled later
    assert history.grace_s("1999", 700.0) == 3.0
