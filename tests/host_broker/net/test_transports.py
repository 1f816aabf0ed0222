"""TLS and unix sockets, with real certificates and real files."""

import signal
import socket
import stat
import subprocess
from pathlib import Path

import pytest

from host_broker.client import ClientError, ConnectFailed, connect
from tests.host_broker.net.broker_process import broker, motemq
from tests.host_broker.net.certificates import Authority


def exchanges(url: str) -> None:
    """Send 4 MiB to ourselves through a broker and look at all of it."""
    with connect(url) as client:
        client.subscribe("big/*")
        for number in range(8):
            client.publish(f"big/{number}", bytes([number]) * 524_288)
        for number in range(8):
            message = client.receive(20.0)
            assert message is not None
            assert message.payload == bytes([number]) * 524_288
        assert client.ping(20.0) < 20.0


def test_tls_carries_both_protocols_and_is_verified(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("broker")
    files = f"?cert={cert}&key={key}"
    with broker(
        *("--listen", f"fmqps://127.0.0.1:0{files}"),
        *("--listen", f"lightmqs://127.0.0.1:0{files}"),
    ) as running:
        exchanges(f"{running.urls['fmqps']}?ca={ours.file}")
        exchanges(f"{running.urls['fmqps']}?insecure=1")
        with connect(f"{running.urls['lightmqs']}/hall?ca={ours.file}") as hall:
            assert hall.request("up", b"x", 20.0) == b""
        for wrong in ("", f"?ca={theirs.file}"):
            with pytest.raises(ConnectFailed, match="cannot prove who it is"):
                connect(running.urls["fmqps"] + wrong)
        plain = running.urls["fmqps"].replace("fmqps", "fmqp")
        with pytest.raises(ClientError), connect(plain, timeout_s=20.0) as client:
            client.ping(20.0)
        code, said = running.end()
        assert code == 0
        assert said.endswith(": 127.0.0.1: no TLS: it speaks something else\n")


def test_a_client_ca_lets_only_its_clients_in(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("broker")
    listen = f"fmqps://127.0.0.1:0?cert={cert}&key={key}&client_ca={ours.file}"
    with broker("--listen", listen) as running:
        url = f"{running.urls['fmqps']}?ca={ours.file}"
        good, good_key = ours.issue("good")
        exchanges(f"{url}&cert={good}&key={good_key}")
        bad, bad_key = theirs.issue("bad")
        for wrong in (url, f"{url}&cert={bad}&key={bad_key}"):
            with pytest.raises(ClientError), connect(wrong) as client:
                client.ping(20.0)


@pytest.mark.parametrize("protocol", ["fmqps", "lightmqs", "umqs", "fqs", "micromsg2s"])
def test_both_ends_say_that_a_certificate_is_missing(tmp_path: Path, protocol: str) -> None:
    """By TLS 1.3 the client's handshake is over by then, and asyncio sends no alert."""
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    cert, key = ours.issue("broker")
    listen = f"autos://127.0.0.1:0?cert={cert}&key={key}&client_ca={ours.file}"
    with broker("--listen", listen) as running:
        url = f"{running.urls['autos'].replace('autos', protocol)}?ca={ours.file}"
        asked = r"show a certificate: \?cert=FILE&key=FILE"
        with pytest.raises(ClientError, match=asked), connect(url, timeout_s=20.0) as client:
            client.ping(20.0)
        bad, bad_key = theirs.issue("bad")
        url = f"{url}&cert={bad}&key={bad_key}"
        with pytest.raises(ClientError) as caught, connect(url, timeout_s=20.0) as client:
            client.ping(20.0)
        assert "show a certificate" not in str(caught.value)
        _, said = running.end()
    assert "127.0.0.1: no TLS: it showed no certificate, and this listener has a client_ca" in said
    assert "127.0.0.1: no TLS: its certificate is not of our client_ca (" in said


def test_half_open_handshakes_end_and_disturb_nobody(tmp_path: Path) -> None:
    cert, key = Authority(tmp_path, "ours").issue("broker")
    listen = f"fmqps://127.0.0.1:0?cert={cert}&key={key}"
    with broker("--listen", listen, "--set", "net.tls_handshake_s=4") as running:
        silent = [running.raw("fmqps") for _ in range(200)]
        exchanges(f"{running.urls['fmqps']}?insecure=1")
        for sock in silent:
            with sock:
                assert sock.recv(1) == b""
        assert running.end() == (0, "")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "needs a certificate and its key"),
        ("?cert=missing.pem&key=missing.key", "cannot read missing.pem"),
        ("?cert={key}&key={key}", "no certificate"),
        ("?cert={cert}&key={key}&client_ca={key}", "holds no CA certificates"),
        ("?cert={cert}&key={key}&slow=never", "it must be one of pause, drop-oldest"),
    ],
)
def test_a_listener_that_cannot_be_says_why(query: str, words: str, tmp_path: Path) -> None:
    cert, key = Authority(tmp_path, "ours").issue("broker")
    url = f"fmqps://127.0.0.1:0{query.format(cert=cert, key=key)}"
    done = subprocess.run(
        motemq("broker", "--ephemeral", "--listen", url),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_unix_socket_is_private_and_gone_after_a_stop(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    with broker("--listen", f"fmqp+unix://{path}") as running:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        exchanges(running.urls["fmqp+unix"])
        assert running.end() == (0, "")
    assert not path.exists()
    with pytest.raises(ConnectFailed, match="nothing listens"):
        connect(f"fmqp+unix://{path}")


def test_a_unix_socket_left_by_a_killed_broker_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "broker.sock"
    url = f"lightmq+unix://{path}?mode=660"
    with broker("--listen", url) as running:
        running.end(signal.SIGKILL)
    assert path.is_socket()
    with broker("--listen", url) as running:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        with connect(f"lightmq+unix://{path}?client_id=hall") as hall:
            assert hall.name == "hall"
            assert hall.request("up", b"x", 20.0) == b""
        again = motemq("broker", "--ephemeral", "--listen", url)
        done = subprocess.run(again, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1
        assert "another process listens there" in done.stderr
        assert path.is_socket()


def test_a_file_in_the_way_of_a_unix_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")
    argv = motemq("broker", "--ephemeral", "--listen", f"fmqp+unix://{path}")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "this file is no socket" in done.stderr
    assert path.read_text() == "data"


def test_a_connection_without_a_word_ends_and_an_empty_publication_is_life() -> None:
    with broker("--set", "fmqp.idle_timeout_s=1") as running:
        empty = bytes.fromhex("000100000000") + b"t"
        with running.raw("fmqp") as silent, running.raw("fmqp") as alive:
            alive.settimeout(0.2)
            for _ in range(15):
                alive.sendall(empty)
                with pytest.raises(socket.timeout):
                    alive.recv(1)
            assert silent.recv(1) == b""


def test_a_broker_out_of_files_accepts_again_when_it_has_some() -> None:
    with broker(shell_prefix="ulimit -n 40;") as running:
        crowd = [running.raw("fmqp") for _ in range(45)]  # the kernel accepts for the broker
        said = running.process.stderr
        assert said is not None
        while b"connections have to wait" not in said.readline():
            assert running.process.poll() is None
        for each in crowd:
            each.close()
        with connect(running.urls["fmqp"], timeout_s=20.0) as client:
            assert client.ping(20.0) < 20.0
        code, _ = running.end()
        assert code == 0
