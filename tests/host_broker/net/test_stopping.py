"""The seven steps of a soft stop (FMQP R32 to R39), and the hard one (R31), at real sockets."""

import contextlib
import http.client
import json
import os
import socket
import ssl
import time
from pathlib import Path

import pytest

from host_broker.client import Client, ConnectFailed, ConnectionLost, connect
from tests.host_broker.net.broker_process import END_S, broker, motemq, spawn, until
from tests.host_broker.net.certificates import Authority

SUBSCRIBE = bytes.fromhex("800100000000") + b"t"
BIG = 256 * 1024
SIGNALS = ("--set", "fmqp.signals=loopback")  # whoever is on this machine may end it
LARGE = ("--set", "net.outbox_high_bytes=64_000_000")  # so that the publisher is not paused


def fmqp(url: str) -> Client:
    client = connect(url, timeout_s=20.0)
    return client


def packet(topic: bytes, body: bytes, flags: int = 0) -> bytes:
    return bytes([flags, len(topic)]) + len(body).to_bytes(4, "big") + topic + body


def rest(sock: socket.socket) -> bytes:
    received = bytearray()
    while chunk := sock.recv(1 << 20):
        received += chunk
    return bytes(received)


def test_a_stop_takes_its_steps_in_order() -> None:
    with (
        broker(*SIGNALS, *LARGE) as running,
        running.raw("fmqp") as sleeper,
        fmqp(running.urls["fmqp"]) as mortal,
    ):
        mortal.publish("t", b"will", will=True)
        mortal.publish("t", b"second", will=True)
        mortal.sync()
        sleeper.sendall(SUBSCRIBE)
        with fmqp(running.urls["fmqp"]) as publisher:
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
        broker("--set", "net.drain_s=1", *SIGNALS, *LARGE) as running,
        running.raw("fmqp") as sleeper,
        fmqp(running.urls["fmqp"]) as mortal,
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
        message = mortal.receive(20.0)
        assert message is not None
        assert message.payload == b"bye"
        code, stderr = running.wait()
        assert code == 0
        assert 0.9 < time.monotonic() - started < 10  # which net.drain_s is by itself
        assert "1 connections were reset, unsent messages are lost" in stderr


def listener(scheme: str, folder: Path) -> tuple[str, str]:
    """What to listen on, and what clients append to its address."""
    listen = f"{scheme}://127.0.0.1:0"
    if scheme == "fmqp":
        return listen, ""
    cert, key = Authority(folder, "ours").issue("broker")
    return f"{listen}?cert={cert}&key={key}", "?insecure=1"


@pytest.mark.parametrize("scheme", ["fmqp", "fmqps"])
def test_nobody_is_waited_for_who_has_taken_everything(scheme: str, tmp_path: Path) -> None:
    """R35 to R37: whatever carries it, nothing left is nothing left."""
    listen, trust = listener(scheme, tmp_path)
    with (
        broker("--listen", listen, "--set", "net.drain_s=20") as running,
        fmqp(running.urls[scheme] + trust) as heir,
        fmqp(running.urls[scheme] + trust) as mortal,
    ):
        heir.subscribe("will")
        heir.sync()
        mortal.publish("will", b"bye", will=True)
        mortal.sync()
        started = time.monotonic()
        running.process.terminate()
        message = heir.receive(20.0)
        assert message is not None
        assert message.payload == b"bye"
        for client in (heir, mortal):
            with pytest.raises(ConnectionLost):
                client.receive(20.0)
        assert running.wait() == (0, "")
        assert time.monotonic() - started < 10


@pytest.mark.parametrize("scheme", ["fmqp", "fmqps"])
def test_those_who_are_reset_have_their_wills_too(scheme: str, tmp_path: Path) -> None:
    """R36, R37: whoever missed the first drain gets no more, but what they leave reaches others."""
    listen, trust = listener(scheme, tmp_path)
    arguments = ("--listen", listen, "--data", str(tmp_path / "data"))
    with broker(*arguments, "--set", "net.drain_s=1", *LARGE) as running:
        url = running.urls[scheme] + trust
        with contextlib.ExitStack() as stack:
            heir = stack.enter_context(fmqp(url))
            sleepers = [stack.enter_context(connect(url, unread_bytes=0)) for _ in range(3)]
            heir.subscribe("will")
            for number, sleeper in enumerate(sleepers):
                sleeper.subscribe("t")
                sleeper.publish("will", b"%d" % number, will=True)
                sleeper.sync()
            for _ in range(120):  # more than the kernel takes for a reader who began
                heir.publish("t", bytes(BIG))
            heir.sync()
            running.process.terminate()
            wills = [message.payload for _ in range(3) if (message := heir.receive(20.0))]
            assert sorted(wills) == [b"0", b"1", b"2"]
            with pytest.raises(ConnectionLost):
                heir.receive(20.0)
        code, stderr = running.wait()
        assert code == 0
        assert stderr == "broker: 3 connections were reset, unsent messages are lost\n"


def test_a_stop_before_it_listens_is_a_stop_too(tmp_path: Path) -> None:
    """A start may take a while, e.g. that of a large journal."""
    users = tmp_path / "users.toml"
    os.mkfifo(users, 0o600)  # the start waits for it
    arguments = ("--ephemeral", "--listen", "fmqp://127.0.0.1:0", "--set", f"access.users={users}")
    with spawn(motemq("broker", *arguments)) as process:
        writing = os.open(users, os.O_WRONLY)  # as soon as the broker reads
        process.terminate()
        os.close(writing)
        _, complaint = process.communicate(timeout=END_S)
        assert (process.returncode, complaint) == (0, b"")


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:  # it was closed with us in its queue: the next one is refused
        pass
    return True


@pytest.mark.parametrize("scheme", ["fmqp", "fmqps"])
def test_who_hangs_up_during_a_stop_is_not_waited_for(scheme: str, tmp_path: Path) -> None:
    """Nobody is read then (R34), so nobody reads that it has gone either."""
    listen, _ = listener(scheme, tmp_path)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    with (
        broker("--listen", listen, "--set", "net.drain_s=60", *LARGE) as running,
        contextlib.ExitStack() as stack,
    ):

        def client() -> socket.socket:
            sock = running.raw(scheme)
            return stack.enter_context(trust.wrap_socket(sock) if scheme == "fmqps" else sock)

        sleeper, leaver = client(), client()
        sleeper.sendall(SUBSCRIBE + packet(b"t", b"ready"))
        assert sleeper.recv(1)
        leaver.sendall(bytes.fromhex("800100000000") + b"u")
        for _ in range(120):  # more than the kernel takes for a reader who began
            leaver.sendall(packet(b"t", bytes(BIG)))
        leaver.sendall(packet(b"u", b"processed"))
        assert leaver.recv(100).endswith(b"processed")
        running.process.terminate()
        until(lambda: not is_listening(running.ports[scheme]))
        leaver.shutdown(socket.SHUT_WR)  # as when its process is killed: no goodbye of TLS
        while sleeper.recv(1 << 20):
            pass
        assert running.wait() == (0, "")


@pytest.mark.parametrize("slow", ["pause", "drop-oldest"])
def test_who_has_said_its_last_word_and_takes_nothing_is_reset(slow: str) -> None:
    """Its half of the connection is closed, the other one has no end by itself."""
    listen = f"fmqp://127.0.0.1:0?slow={slow}"
    with (
        broker("--listen", listen, "--set", "net.drain_s=1", *LARGE) as running,
        running.raw("fmqp") as sleeper,
        fmqp(running.urls["fmqp"]) as publisher,
    ):
        sleeper.sendall(SUBSCRIBE)
        publisher.sync()
        for _ in range(40):  # more than the kernel takes
            publisher.publish("t", bytes(BIG))
        publisher.sync()
        sleeper.shutdown(socket.SHUT_WR)
        publisher.ping(20.0)
        started = time.monotonic()
        code, stderr = running.end()
        assert code == 0
        assert time.monotonic() - started < 20  # net.user_timeout_s is 30
        assert stderr == "broker: 1 connections were reset, unsent messages are lost\n"


def test_terminate_ends_at_once_without_wills() -> None:
    with (
        broker(*SIGNALS) as running,
        fmqp(running.urls["fmqp"]) as heir,
        fmqp(running.urls["fmqp"]) as mortal,
    ):
        heir.subscribe("*")
        heir.sync()
        mortal.publish("will", b"bye", will=True)
        mortal.sync()
        started = time.monotonic()
        with running.raw("fmqp") as signaller:
            signaller.sendall(packet(b"$/signals/terminate", b"x"))
            code, stderr = running.wait()
        assert time.monotonic() - started < 10  # as long as a soft stop may take
        # Whoever supervises the broker starts it again; whoever reads its log knows why.
        assert code == 3
        assert stderr == "broker: $/signals/terminate came from 'anonymous' at 127.0.0.1\n"
        with pytest.raises(ConnectionLost, match=r"lost|closed"):
            while True:
                assert heir.receive(20.0) is None
        with pytest.raises(ConnectFailed):
            fmqp(running.urls["fmqp"])


def test_what_is_published_by_http_during_a_stop_is_refused_and_not_lost(tmp_path: Path) -> None:
    arguments = ("--listen", "auto://127.0.0.1:0", "--data", str(tmp_path / "data"))
    numbered = {"Publisher": "spark", "Publisher-Number": "1.0"}

    def post(page: http.client.HTTPConnection, **headers: str) -> tuple[int, object]:
        body = packet(b"home/lamp", b"on")
        said = {"Content-Type": "application/x-fmqp"} | headers
        page.request("POST", "/publish", body, said)
        answer = page.getresponse()
        document = json.loads(answer.read())
        return answer.status, document.get("published")

    with (
        broker(*arguments, "--set", "net.drain_s=60", *LARGE) as running,
        running.raw("auto") as sleeper,
        fmqp(running.urls["auto"].replace("auto", "fmqp")) as publisher,
        contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
        ) as page,
    ):
        sleeper.sendall(SUBSCRIBE)
        assert post(page) == (200, 1)
        for _ in range(40):  # more than the kernel takes, so that the stop has to wait
            publisher.publish("t", bytes(BIG))
        publisher.sync()
        running.process.terminate()

        def is_stopping() -> bool:
            page.request("GET", "/healthz")
            answer = page.getresponse()
            answer.read()
            return answer.status == 503

        until(is_stopping)
        assert post(page) == (503, None)
        assert post(page, **numbered) == (503, None)
        rest(sleeper)
        assert running.wait() == (0, "")
    with (
        broker(*arguments) as running,
        contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", running.ports["auto"], timeout=20)
        ) as page,
    ):
        assert post(page, **numbered) == (200, 1)
