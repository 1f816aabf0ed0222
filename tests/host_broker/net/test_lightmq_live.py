"""LightMQ at real sockets: silent deaths, names of the dead, and a broker that is stopping."""

import os
import signal
import socket
import time

import pytest

from host_broker.bus.publication import unpack
from host_broker.client import Client, ConnectFailed, Refused, connect
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.events import Connack, Event, Ping, Pong, Send, SendResp
from tests.host_broker.net.broker_process import broker, motemq, spawn, until

_ALL = ("fmqp", "lightmq", "lightmq+fmqp")
_LISTEN = [word for name in _ALL for word in ("--listen", f"{name}://127.0.0.1:0")]
_QUICK = ("--set", "lightmq.ping_interval_s=0.3", "--set", "lightmq.ping_timeout_s=0.3")
# As much time as a busy machine may keep a client from answering that lives.
_PATIENT = ("--set", "lightmq.ping_interval_s=0.3", "--set", "lightmq.ping_timeout_s=3")
_CODEC = Codec("client")


def fmqp(url: str) -> Client:
    client = connect(url, timeout_s=20.0)
    return client


def lightmq(url: str) -> Client:
    client = connect(url, timeout_s=20.0)
    return client


def heard(sock: socket.socket, count: int) -> list[Event]:
    """Read until so many frames have come, or the broker has closed."""
    codec = Codec("client")
    events: list[Event] = []
    while len(events) < count and (data := sock.recv(65536)):
        events += codec.receive_data(data)
    return events


def expect(client: Client, *messages: tuple[str, bytes]) -> None:
    for message in messages:
        received = client.receive(20.0)
        assert received is not None, message
        assert (received.topic, received.payload) == message


def test_a_stopped_process_has_its_last_will_published() -> None:
    """R12, R13, A17, FMQP R25: SIGSTOP; its kernel goes on acknowledging, it says no PONG."""
    with broker(*_LISTEN, *_PATIENT) as running, fmqp(running.urls["fmqp"]) as watcher:
        watcher.subscribe("will")
        watcher.subscribe("lightmq/mortal/status")
        watcher.sync()
        url = running.urls["lightmq+fmqp"] + "/mortal"
        will = ("--will-topic", "will", "--will-payload", "gone")
        process = spawn(motemq("sub", url, "x", *will))
        try:
            expect(watcher, ("lightmq/mortal/status", b"online"))
            # It answers PINGs for longer than it may be silent.
            assert watcher.receive(4.0) is None
            os.kill(process.pid, signal.SIGSTOP)
            stopped = time.monotonic()
            expect(watcher, ("will", b"gone"), ("lightmq/mortal/status", b"offline"))
            assert 2.0 < time.monotonic() - stopped < 20
            assert process.poll() is None
        finally:
            process.kill()
            process.communicate(timeout=20)


def test_a_board_that_restarts_gets_its_name_back() -> None:
    """R8, A10, A17: refused while its former self may live, which is found out at once."""
    patient = ("--set", "lightmq.ping_interval_s=600", "--set", "lightmq.ping_timeout_s=0.3")
    with broker(*_LISTEN, *patient) as running, running.raw("lightmq") as dead:
        dead.sendall(_CODEC.connect("board"))
        assert heard(dead, 1) == [Connack(0, accepted=True)]
        with pytest.raises(Refused) as caught:
            lightmq(running.urls["lightmq"] + "/board")
        assert caught.value.code == 4
        assert [type(event) for event in heard(dead, 1)] == [Ping]

        def accepted() -> bool:
            try:
                lightmq(running.urls["lightmq"] + "/board").close()
            except Refused:
                return False
            return True

        until(accepted)


@pytest.mark.parametrize("name", ["lightmq", "lightmq+fmqp", "auto"])
@pytest.mark.parametrize("how", ["SIGTERM", "$/signals/stop"])
def test_whoever_comes_while_the_broker_stops_is_told_so(name: str, how: str) -> None:
    """R9, R11: code 2, over and over until the last messages are taken; FMQP R33 beside it."""
    slow = ("--set", "net.drain_s=20", "--set", "net.outbox_high_bytes=64_000_000")
    listen = [*_LISTEN, "--listen", "auto://127.0.0.1:0", "--set", "fmqp.signals=loopback"]
    with broker(*listen, *slow) as running, running.raw("fmqp") as sleeper:
        sleeper.sendall(bytes.fromhex("800100000000") + b"t")
        with fmqp(running.urls["fmqp"]) as publisher:
            publisher.sync()
            for _ in range(40):  # 10 MiB: more than the kernel takes
                publisher.publish("t", bytes(256 * 1024))
            publisher.sync()
            if how == "SIGTERM":
                running.process.terminate()
            else:
                publisher.publish(how, b"x")

            def is_stopping() -> bool:
                try:
                    running.raw("fmqp").close()
                except ConnectionError:  # refused, or reset with the listener's queue
                    return True
                return False

            until(is_stopping)
            for client_id in ("late", "later", "late"):
                with running.raw(name) as late:
                    late.sendall(_CODEC.connect(client_id) + _CODEC.send(1, b"x"))
                    assert heard(late, 2) == [Connack(2, accepted=False)]
                    assert late.recv(1) == b""
            with running.raw(name) as bad:
                bad.sendall(b"\x01\x00\x02\x05x")
                assert heard(bad, 2) == [Connack(3, accepted=False)]
            with running.raw(name) as silent, running.raw("auto") as stranger:
                stranger.sendall(bytes.fromhex("800100000000") + b"t")
                assert _rest(stranger) == b""  # FMQP has no word for it
                assert running.process.poll() is None
                received = _rest(sleeper)  # it wakes up: the broker can end now
                assert len(received) == 40 * (7 + 256 * 1024)
                assert running.wait()[0] == 0
                assert _rest(silent) == b""
    with pytest.raises(ConnectFailed):
        lightmq(running.urls["lightmq"])


def _rest(sock: socket.socket) -> bytes:
    received = bytearray()
    try:
        while chunk := sock.recv(1 << 20):
            received += chunk
    except ConnectionResetError:
        pass
    return bytes(received)


def test_whoever_is_not_read_is_not_silent() -> None:
    """A17: its PONG waits in the kernel, because it publishes to somebody who is congested."""
    limits = ("--set", "net.outbox_high_bytes=100000", "--set", "net.outbox_low_bytes=50000")
    with (
        broker(*_LISTEN, *_QUICK, *limits) as running,
        running.raw("fmqp") as sleeper,
        fmqp(running.urls["fmqp"]) as watcher,
        running.raw("lightmq") as board,
    ):
        sleeper.sendall(bytes.fromhex("800f00000000") + b"lightmq/held/up")
        watcher.subscribe("lightmq/held/status")
        watcher.sync()
        board.sendall(_CODEC.connect("held"))
        expect(watcher, ("lightmq/held/status", b"online"))
        board.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):  # until the broker reads no more
            while True:
                sent += board.send(_CODEC.send(sent & 0xFFFF, bytes(60_000)))
        assert sent > 1_000_000
        assert watcher.receive(2.0) is None  # more than three times what a silent one has
        sleeper.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while True:
                sleeper.recv(1 << 20)
        # It is read again, and now it is silent indeed.
        expect(watcher, ("lightmq/held/status", b"offline"))


def test_carried_fmqp_is_acknowledged_when_others_have_it() -> None:
    """R17: the SENDRESP comes after the effect, at real sockets too."""
    with (
        broker(*_LISTEN) as running,
        fmqp(running.urls["fmqp"]) as watcher,
        running.raw("lightmq+fmqp") as board,
    ):
        watcher.subscribe("a")
        watcher.sync()
        packet = bytes.fromhex("000100000001") + b"ax"
        frames = b"".join(_CODEC.send(id, packet) for id in range(100))
        board.sendall(_CODEC.connect("board") + frames)
        assert heard(board, 101)[1:] == [SendResp(id, b"") for id in range(100)]
        expect(watcher, *[("a", b"x")] * 100)


@pytest.mark.parametrize("name", ["lightmq", "lightmq+fmqp"])
def test_whoever_never_says_connect_is_closed(name: str) -> None:
    """R5, A17: silent, or one byte at a time; and whoever has said it stays."""
    with (
        broker(*_LISTEN, "--set", "lightmq.connect_timeout_s=2") as running,
        running.raw(name) as silent,
        running.raw(name) as slow,
        running.raw(name) as board,
    ):
        board.sendall(_CODEC.connect("board"))
        assert heard(board, 1) == [Connack(0, accepted=True)]
        started = time.monotonic()
        slow.settimeout(0.1)
        hello = iter(_CODEC.connect("x" * 200))
        said = b"more"
        while said:
            try:
                slow.sendall(bytes([next(hello)]))
                said = slow.recv(1)
            except TimeoutError:
                continue  # it was told nothing, and not closed
            except ConnectionError:
                break
        assert 1.5 < time.monotonic() - started < 20
        assert _rest(silent) == b""
        board.sendall(_CODEC.ping(7))
        assert heard(board, 1) == [Pong(7)]


@pytest.mark.parametrize("policy", ["drop-oldest", "drop-newest"])
def test_what_a_slow_carried_receiver_misses_are_whole_messages(policy: str) -> None:
    """R14, FMQP R3: packets that take several SENDs are dropped with all of them."""
    listen = ("--listen", "fmqp://127.0.0.1:0")
    slow = ("--listen", f"lightmq+fmqp://127.0.0.1:0?slow={policy}")
    limits = ("--set", "net.outbox_high_bytes=200000", "--set", "net.outbox_low_bytes=50000")
    pings = ("--set", "lightmq.ping_interval_s=0")
    with (
        broker(*listen, *slow, *limits, *pings) as running,
        running.raw("lightmq+fmqp") as sleeper,
        fmqp(running.urls["fmqp"]) as publisher,
    ):
        subscription = bytes.fromhex("800100000000") + b"t"
        sleeper.sendall(_CODEC.connect("sleeper") + _CODEC.send(1, subscription))
        codec = Codec("client")
        events: list[Event] = []
        while len(events) < 2:  # CONNACK, SENDRESP
            events += codec.receive_data(sleeper.recv(65536))
        published = [bytes([number & 0xFF]) * (3000 + number) for number in range(4000)]
        for body in published:
            publisher.publish("t", body)
        publisher.sync()
        stream = b""
        while not stream.endswith(b"the end"):
            for event in codec.receive_data(sleeper.recv(1 << 20)):
                assert isinstance(event, Send)
                stream += event.data
            publisher.publish("t", b"the end")  # whichever of these is not dropped
        bodies = [body for _, _, body in unpack(stream)]
        got = [body for body in bodies if body != b"the end"]
        assert 10 < len(got) < len(published)
        assert set(got) <= set(published)
        assert [len(body) for body in got] == sorted({len(body) for body in got})
