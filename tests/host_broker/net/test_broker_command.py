"""``motemq broker`` as a person runs it: ready lines, clear failures, an orderly end."""

import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from host_broker.client import Timeout, connect
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, until
from tests.host_broker.net.journal_decoder import read_journal


def fails(*arguments: str) -> tuple[int, str]:
    """Run a broker that must not start; return its exit code and stderr, which is one message."""
    done = subprocess.run(motemq("broker", *arguments), capture_output=True, text=True, timeout=60)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_without_a_data_folder_it_says_that_nothing_is_kept() -> None:
    running = BrokerProcess("--listen", "fmqp://127.0.0.1:0")
    code, stderr = running.end()
    assert code == 0
    assert stderr == "broker: no --data folder given, so nothing is kept (--ephemeral)\n"


def test_both_protocols_meet_on_one_bus() -> None:
    with broker() as running, connect(running.urls["fmqp"]) as listener:
        listener.subscribe("lightmq/kitchen/up")
        listener.sync()
        with connect(running.urls["lightmq"] + "/kitchen") as kitchen:
            assert kitchen.request("up", b"21.5", 20.0) == b""
            message = listener.receive(20.0)
            assert message is not None
            assert (message.topic, message.payload) == ("lightmq/kitchen/up", b"21.5")
            listener.publish("lightmq/kitchen/down", b"heat")
            request = kitchen.receive(20.0)
            assert request is not None
            assert request.payload == b"heat"
        assert running.end() == (0, "")


def test_a_port_in_use_is_named_with_its_holder() -> None:
    with broker() as running:
        port = running.ports["fmqp"]
        code, stderr = fails("--ephemeral", "--listen", f"fmqp://127.0.0.1:{port}")
    assert code == 1
    assert f"port {port} is in use by " in stderr
    assert f"(process {running.process.pid})" in stderr
    assert stderr.count("\n") == 1


def test_other_addresses_than_loopback_need_to_be_asked_for() -> None:
    code, stderr = fails("--ephemeral", "--listen", "fmqp://0.0.0.0:0")
    assert code == 1
    assert "--insecure-bind" in stderr
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--listen", "mqtt://127.0.0.1:0"], "unknown protocol 'mqtt'; there are: fmqp, fmqps"),
        (["--listen", "127.0.0.1:8765"], "write it as fmqp://127.0.0.1:8765"),
        (["--listen", "fmqp://127.0.0.1:99999"], "is no address"),
        (["--set", "net.speed=1"], "unknown key 'net.speed'"),
        (["--config", "missing.toml"], "cannot read --config missing.toml"),
        (["--data", "x"], "--ephemeral and --data exclude each other"),
    ],
)
def test_a_wrong_option_is_a_usage_error(arguments: list[str], words: str) -> None:
    code, stderr = fails("--ephemeral", *arguments)
    assert code == 2
    assert words in stderr


def test_an_unknown_host_is_named() -> None:
    code, stderr = fails("--ephemeral", "--listen", "fmqp://no.such.host.invalid:0")
    assert code == 1
    assert "no.such.host.invalid" in stderr


def test_a_data_folder_has_one_broker(tmp_path: Path) -> None:
    with broker("--data", str(tmp_path)) as running:
        arguments = ("--listen", "fmqp://127.0.0.1:0", "--data", str(tmp_path))
        code, stderr = fails(*arguments)
        assert code == 1
        assert f"--data {tmp_path} is in use by another broker" in stderr
        assert f"process {running.process.pid}" in stderr
        running.end(signal.SIGKILL)
        with broker("--data", str(tmp_path)) as next_one:
            assert next_one.end() == (0, "")


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    code, stderr = fails("--listen", "fmqp://127.0.0.1:0", "--data", str(folder))
    assert code == 1
    assert f"cannot use --data {folder}" in stderr


@pytest.mark.parametrize(
    ("sent", "expected"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_a_stop_delivers_and_runs_the_wills_of_all(
    sent: signal.Signals, expected: int, tmp_path: Path
) -> None:
    with broker("--data", str(tmp_path)) as running:
        clients = [connect(running.urls["fmqp"]) for _ in range(3)]
        for number, client in enumerate(clients):
            client.subscribe("gone/*")
            client.publish(f"gone/{number}", b"bye", will=True)
            client.sync()
        assert running.end(sent) == (expected, "")
        for client in clients:
            received = [client.receive(20.0) for _ in range(3)]
            topics = sorted(message.topic for message in received if message)
            assert topics == ["gone/0", "gone/1", "gone/2"]
            client.close()
    stored = [message for part in read_journal(tmp_path / "journal").values() for message in part]
    wills = [message for message in stored if message.topic.startswith("gone/")]
    assert sorted((will.topic, will.body, will.flags) for will in wills) == [
        (f"gone/{number}", b"bye", 0x08) for number in range(3)
    ]


def test_a_stop_does_not_wait_for_a_receiver_that_sleeps() -> None:
    with broker("--set", "net.drain_s=2") as running, running.raw("fmqp") as sleeper:
        sleeper.sendall(bytes.fromhex("800100000000") + b"t")
        with connect(running.urls["fmqp"], timeout_s=2.0) as publisher:
            publisher.sync()
            with pytest.raises(Timeout, match="took no more bytes"):
                for _ in range(1000):
                    publisher.publish("t", bytes(128 * 1024))
        started = time.monotonic()
        code, stderr = running.end()
        assert code == 0
        assert "unsent messages are lost" in stderr
        assert time.monotonic() - started < 7


def test_a_malformed_fmqp_packet_is_skipped_and_the_connection_lives() -> None:
    with broker() as running, running.raw("fmqp") as sock:
        sock.sendall(bytes.fromhex("800100000000") + b"t")
        for bad in ("00000000000178", "000300000001610062" + "78", "000200000001c3287a"):
            sock.sendall(bytes.fromhex(bad))
        good = bytes.fromhex("000100000002") + b"thi"
        sock.sendall(good)
        assert sock.recv(100) == good


def test_a_malformed_lightmq_frame_closes_only_its_connection() -> None:
    with broker() as running, connect(running.urls["lightmq"] + "/good") as good:
        with running.raw("lightmq") as sock:
            sock.sendall(bytes.fromhex("010004") + b"\x03bad")
            assert sock.recv(100) == bytes.fromhex("02000100")
            sock.sendall(bytes.fromhex("ff0000"))
            assert sock.recv(100) == b""
        assert good.ping(20.0) < 20.0


@pytest.mark.parametrize("ending", ["fin", "rst"])
def test_a_will_runs_however_the_connection_ends(ending: str) -> None:
    with broker() as running, connect(running.urls["fmqp"]) as heir:
        heir.subscribe("gone")
        heir.sync()
        client = connect(running.urls["fmqp"])
        client.publish("gone", ending.encode(), will=True)
        client.sync()
        if ending == "fin":
            client.close()
        else:
            client.abort()
        message = heir.receive(20.0)
        assert message is not None
        assert message.payload == ending.encode()
        assert heir.receive(0.1) is None


def test_a_half_closed_client_still_gets_what_was_sent_to_it() -> None:
    with broker() as running, running.raw("fmqp") as sock:
        own = bytes.fromhex("000100000002") + b"thi"
        sock.sendall(bytes.fromhex("800100000000") + b"t" + own * 1000)
        sock.shutdown(socket.SHUT_WR)
        received = b""
        while chunk := sock.recv(65536):
            received += chunk
        assert received == own * 1000


def test_too_many_connections_are_refused_and_those_there_live() -> None:
    with broker("--set", "net.max_connections=2") as running:
        first, second = connect(running.urls["fmqp"]), connect(running.urls["fmqp"])
        first.ping(20.0)
        second.ping(20.0)
        with running.raw("fmqp") as third, pytest.raises(ConnectionResetError):
            third.sendall(b"\0")
            if third.recv(1) == b"":
                raise ConnectionResetError
        first.ping(20.0)
        second.close()

        def there_is_room() -> bool:
            with running.raw("fmqp") as sock:
                sock.sendall(bytes.fromhex("800100000000") + b"t" + b"\0\1\0\0\0\1tx")
                try:
                    return sock.recv(1) != b""
                except ConnectionResetError:
                    return False

        until(there_is_room)
        first.close()
        code, stderr = running.end()
        assert code == 0
        assert "net.max_connections" in stderr


def test_nothing_is_left_behind() -> None:
    with broker() as running:
        pid = running.process.pid
        tasks = {int(entry) for entry in os.listdir(f"/proc/{pid}/task")}
        assert pid in tasks
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        assert children == ""
        running.end(signal.SIGKILL)


def test_the_sockets_are_tuned_against_dead_peers() -> None:
    with broker() as running, running.raw("fmqp") as sock:
        sock.sendall(bytes.fromhex("800100000000") + b"t" + b"\0\1\0\0\0\1tx")
        assert sock.recv(100) == b"\0\1\0\0\0\1tx"
        ends = f":{running.ports['fmqp']:04X} 0100007F:{sock.getsockname()[1]:04X} "

        def keepalive_is_armed() -> bool:
            table = Path("/proc/net/tcp").read_text().splitlines()
            timer = next(line for line in table if ends in line).split()[5]
            kind, _, ticks = timer.partition(":")
            return kind == "02" and int(ticks, 16) <= 1500  # in 1/100 s

        until(keepalive_is_armed)


def test_a_lost_peer_without_a_word_is_a_reset_too() -> None:
    with broker() as running, connect(running.urls["fmqp"]) as heir:
        heir.subscribe("$/info/clients")
        message = heir.receive(20.0)
        assert message is not None
        assert struct.unpack(">Q", message.payload) == (1,)
        running.raw("fmqp").close()
        counts = [heir.receive(20.0) for _ in range(2)]
        assert [struct.unpack(">Q", got.payload)[0] for got in counts if got] == [2, 1]
