"""The seven steps of a soft stop (FMQP R32 to R39), and the hard one (R31), at real sockets."""

import contextlib
import socket
import time

import pytest

from host_broker.client import ConnectFailed, ConnectionLost, FmqpClient, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, until

SUBSCRIBE = bytes.fromhex("800100000000") + b"t"
BIG = 256 * 1024
LARGE = ("--set", "net.outbox_high_bytes=64_000_000")  # so that the publisher is not paused


def fmqp(running: BrokerProcess) -> FmqpClient:
    client = connect(running.urls["fmqp"], timeout_s=20.0)
    assert isinstance(client, FmqpClient)
    return client


def packet(topic: bytes, body: bytes, flags: int = 0) -> bytes:
    return bytes([flags, len(topic)]) + len(body).to_bytes(4, "big") + topic + body


def rest(sock: socket.socket) -> bytes:
    received = bytearray()
    while chunk := sock.recv(1 << 20):
        received += chunk
    return bytes(received)


def test_a_stop_takes_its_steps_in_order() -> None:
    with broker(*LARGE) as running, running.raw("fmqp") as sleeper, fmqp(running) as mortal:
        mortal.publish("t", b"will", will=True)
        mortal.publish("t", b"second", will=True)
        mortal.sync()
        sleeper.sendall(SUBSCRIBE)
        with fmqp(running) as publisher:
            publisher.sync()
            published = [number.to_bytes(4, "big") + bytes(BIG) for number in range(40)]
            for body in published:  # 10 MiB: more than the kernel takes, so that it must wait
                publisher.publish("t", body)
            publisher.sync()
            with running.raw("fmqp") as signaller:
                late = packet(b"t", b"late")
                signaller.sendall(packet(b"$/signals/stop", b"x") + late)

                def nobody_is_let_in() -> bool:
                    try:
                        running.raw("fmqp").close()
                    except ConnectionRefusedError:
                        return True
                    return False

                until(nobody_is_let_in)  # R33
                assert running.process.poll() is None
                with contextlib.suppress(OSError):
                    signaller.sendall(late)  # R34
                received = rest(sleeper)  # R38
        bodies = [*published, b"will", b"second"]
        flags = [0] * len(published) + [8, 8]
        expected = b"".join(
            packet(b"t", body, flag) for body, flag in zip(bodies, flags, strict=True)
        )
        assert received == expected  # R35, then R36 and R37
        assert running.wait()[0] == 0  # R39


def test_a_stop_waits_for_sleepers_no_longer_than_it_may() -> None:
    with (
        broker("--set", "net.drain_s=1", *LARGE) as running,
        running.raw("fmqp") as sleeper,
        fmqp(running) as mortal,
    ):
        sleeper.sendall(SUBSCRIBE)
        mortal.subscribe("will")
        mortal.publish("will", b"bye", will=True)
        mortal.sync()
        for _ in range(40):
            mortal.publish("t", bytes(BIG))
        mortal.sync()
        started = time.monotonic()
        mortal.publish("$/signals/stop", b"x")
        message = mortal.receive(10.0)
        assert message is not None
        assert message.payload == b"bye"
        code, stderr = running.wait()
        assert code == 0
        assert 0.9 < time.monotonic() - started < 5
        assert "1 connections were reset, unsent messages are lost" in stderr


def test_terminate_ends_at_once_without_wills() -> None:
    with broker() as running, fmqp(running) as heir, fmqp(running) as mortal:
        heir.subscribe("*")
        heir.sync()
        mortal.publish("will", b"bye", will=True)
        mortal.sync()
        started = time.monotonic()
        with running.raw("fmqp") as signaller:
            signaller.sendall(packet(b"$/signals/terminate", b"x"))
            assert running.wait() == (0, "")
        assert time.monotonic() - started < 3
        with pytest.raises(ConnectionLost, match=r"lost|closed"):
            while True:
                assert heir.receive(5.0) is None
        with pytest.raises(ConnectFailed):
            fmqp(running)
