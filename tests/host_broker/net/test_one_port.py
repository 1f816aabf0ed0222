"""``auto://`` as clients of every kind find it, at a real broker."""

import contextlib
import gc
import http.client
import os
import socket
import ssl
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from host_broker.cli import broker as broker_cli
from host_broker.client import ConnectionLost, connect
from host_broker.net.service import ServiceOptions
from tests.host_broker.net.broker_process import BrokerProcess, broker, motemq, until
from tests.host_broker.net.certificates import Authority

AUTO = ("--listen", "auto://127.0.0.1:0")
# MicroMsg2: a handshake of 1.0, of SharpMessaging's 1.1, and of 1.1 without an identity.
_HANDSHAKE = bytes.fromhex("0100000468756c6b00067075627375620000")
_SHARP = bytes.fromhex("010100084d79436c69656e7400000000")
_NAMELESS = bytes.fromhex("0101000000000000")
# SEND number 1 to topic/home/kitchen, without properties.
_SEND = bytes.fromhex("00000112") + b"topic/home/kitchen" + bytes.fromhex("000004") + b"21.5"


def url(running: BrokerProcess, scheme: str, listener: str = "auto") -> str:
    """The address of a listener as a client of one protocol writes it."""
    return running.urls[listener].replace(listener, scheme, 1)


def meet(fmqp: str, lightmq: str) -> None:
    """An FMQP client hears a LightMQ board, and the other way round."""
    with connect(fmqp) as desk, connect(lightmq) as board:
        desk.subscribe(f"lightmq/{board.name}/up")
        desk.sync()
        assert board.request("up", b"21.5", 20.0) == b""
        message = desk.receive(20.0)
        assert message is not None
        assert message.payload == b"21.5"
        desk.publish(f"lightmq/{board.name}/down", b"heat")
        request = board.receive(20.0)
        assert request is not None
        assert request.payload == b"heat"


def test_both_protocols_meet_at_one_port() -> None:
    with broker(*AUTO) as running:
        meet(url(running, "fmqp"), url(running, "lightmq") + "/hall")
        assert running.end() == (0, "")


def test_both_protocols_meet_at_one_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "auto.sock"
    with broker("--listen", f"auto+unix://{path}?mode=660") as running:
        meet(f"fmqp+unix://{path}", f"lightmq+unix://{path}?client_id=hall")
        assert running.end() == (0, "")
    assert not path.exists()


def test_with_a_certificate_the_same_port_takes_tls_and_looks_inside(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    ca = f"?ca={ours.file}"
    with broker("--listen", f"auto://127.0.0.1:0?cert={cert}&key={key}") as running:
        meet(url(running, "fmqp"), url(running, "lightmq") + "/plain")
        meet(url(running, "fmqps") + ca, url(running, "lightmqs") + "/hidden" + ca)
        meet(url(running, "fmqps") + ca, url(running, "lightmq") + "/mixed")
        context = ssl.create_default_context(cafile=ours.file)
        https = http.client.HTTPSConnection(
            "127.0.0.1", running.ports["auto"], timeout=10, context=context
        )
        https.request("GET", "/healthz")
        answer = https.getresponse()
        assert answer.status == 200
        assert b'"ok"' in answer.read()
        https.close()
        with context.wrap_socket(running.raw("auto"), server_hostname="127.0.0.1") as veiled:
            for byte in bytes.fromhex("01000504") + b"drip":
                veiled.send(bytes([byte]))  # a TLS record each
            assert veiled.recv(4) == bytes.fromhex("02000100")
        assert running.end() == (0, "")


def test_the_settings_certificate_makes_auto_take_tls(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    files = ("--set", f"net.tls_cert={cert}", "--set", f"net.tls_key={key}")
    with (
        broker(*AUTO, *files) as running,
        connect(f"{url(running, 'fmqps')}?ca={ours.file}") as client,
    ):
        client.sync()


def test_autos_takes_nothing_but_tls(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    ca = f"?ca={ours.file}"
    with broker("--listen", f"autos://127.0.0.1:0?cert={cert}&key={key}") as running:
        meet(url(running, "fmqps", "autos") + ca, url(running, "lightmqs", "autos") + "/hall" + ca)
        with pytest.raises(ConnectionLost), connect(url(running, "fmqp", "autos")) as client:
            client.sync()
        code, said = running.end()
        assert code == 0
        assert said.endswith(": 127.0.0.1: no TLS: it speaks something else\n")


def _shake_hands(sock: socket.socket, handshake: bytes) -> None:
    """Say a handshake byte by byte, take the answer, and say the same again as the last word."""
    for byte in handshake:
        sock.sendall(bytes([byte]))
    answer = b""
    while len(answer) < 14:
        answer += sock.recv(14 - len(answer))
    assert answer[:10] == b"\x01\x00\x00\x06motemq"
    assert answer[10:] == bytes(4)
    sock.sendall(handshake)


def test_micromsg2_is_heard_at_the_same_port_and_inside_of_tls(tmp_path: Path) -> None:
    """MicroMsg2 R1, R3: its clients begin, with version 1.0."""
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    context = ssl.create_default_context(cafile=ours.file)
    with (
        broker("--listen", f"auto://127.0.0.1:0?cert={cert}&key={key}") as running,
        connect(url(running, "fmqp")) as desk,
    ):
        desk.subscribe("home/*")
        desk.sync()
        with (
            running.raw("auto") as plain,
            context.wrap_socket(running.raw("auto"), server_hostname="127.0.0.1") as veiled,
        ):
            for sock in (plain, veiled):
                _shake_hands(sock, _HANDSHAKE)
                sock.sendall(_SEND)
                message = desk.receive(20.0)
                assert message is not None
                assert (message.topic, message.payload) == ("home/kitchen", b"21.5")
        assert running.end() == (0, "")


def test_micromsg2_has_listeners_of_its_own_for_what_auto_cannot_tell(tmp_path: Path) -> None:
    """MicroMsg2 R4: with the lower version; R8: an identity may be absent."""
    path = tmp_path / "mm2.sock"
    listen = ("--listen", "micromsg2://127.0.0.1:0", "--listen", f"micromsg2+unix://{path}")
    with broker(*listen) as running:
        with running.raw("micromsg2") as sharp, running.raw("micromsg2") as nameless:
            _shake_hands(sharp, _SHARP)
            _shake_hands(nameless, _NAMELESS)
        with socket.socket(socket.AF_UNIX) as unix:
            unix.connect(str(path))
            _shake_hands(unix, _HANDSHAKE)
        assert running.end() == (0, "")


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("autos://127.0.0.1:0", "needs a certificate and its key"),
        ("auto://127.0.0.1:0?cert=missing.pem&key=missing.key", "cannot read missing.pem"),
        ("auto://127.0.0.1:0?cert=missing.pem", "needs a certificate and its key"),
        (
            "auto://0.0.0.0:0",
            "without encryption and authentication; listen on 127.0.0.1 or with autos",
        ),
        ("auto://127.0.0.1:0/board", "MicroMsg2 and UMQ have client ids"),
    ],
)
def test_an_auto_listener_that_cannot_be_says_why(address: str, words: str) -> None:
    done = subprocess.run(
        motemq("broker", "--ephemeral", "--listen", address),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert words in done.stderr


def _answer(running: BrokerProcess, said: bytes) -> bytes:
    with running.raw("auto") as sock:
        sock.sendall(said)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := sock.recv(4096):
                answer += chunk
        return answer


def test_what_is_not_built_yet_is_refused_in_its_own_terms_and_told_once() -> None:
    websocket = b"GET /umq HTTP/1.0\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n"
    with broker(*AUTO) as running:
        for _ in range(3):
            assert _answer(running, websocket).startswith(b"HTTP/1.1 426 Upgrade Required\r\n")
            mqtt = bytes.fromhex("101000044d5154540402003c000474657374")
            assert _answer(running, mqtt) == bytes.fromhex("20020001")
            assert _answer(running, b"SSH-2.0-OpenSSH_9.2\r\n") == b""
        meet(url(running, "fmqp"), url(running, "lightmq") + "/hall")
        code, said = running.end()
        assert code == 0
        told = [line.split(": ", 2)[2] for line in said.splitlines()]
        assert told == [
            "127.0.0.1 speaks mqtt, which this broker does not yet",
            "127.0.0.1 began with 53 53 48 2d 32 2e 30 2d 4f, which is no protocol we know",
        ]


def test_tls_without_a_certificate_is_refused_as_tls_refuses() -> None:
    with broker(*AUTO) as running:
        context = ssl.create_default_context()
        with running.raw("auto") as sock, pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            context.wrap_socket(sock, server_hostname="127.0.0.1")
        code, said = running.end()
        assert code == 0
        assert "has no certificate: add ?cert=FILE&key=FILE" in said


def test_a_client_that_says_nothing_is_told_in_the_log_what_it_must_do() -> None:
    with broker(*AUTO, "--set", "net.first_bytes_s=0.5") as running:
        with running.raw("auto") as silent, running.raw("auto") as alive:
            # An empty publication is enough: FMQP has nothing smaller to say.
            alive.sendall(b"\0\1\0\0\0\0t")
            assert silent.recv(1) == b""
            alive.sendall(b"\x80\1\0\0\0\0t" + b"\0\1\0\0\0\1tx")
            assert alive.recv(100) == b"\0\1\0\0\0\1tx"
        code, said = running.end()
        assert code == 0
        assert "did not say what it speaks within 0.5 s (net.first_bytes_s)" in said
        assert "a client here must speak first" in said


def test_inside_of_tls_too_silence_is_ended_and_who_was_recognised_stays(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    listen = f"auto://127.0.0.1:0?cert={cert}&key={key}"
    with broker("--listen", listen, "--set", "net.first_bytes_s=0.5") as running:
        context = ssl.create_default_context(cafile=ours.file)
        with (
            connect(f"{url(running, 'fmqps')}?ca={ours.file}") as client,
            connect(url(running, "fmqp")) as plain,
            context.wrap_socket(running.raw("auto"), server_hostname="127.0.0.1") as silent,
        ):
            with contextlib.suppress(ConnectionResetError, ssl.SSLError):
                assert silent.recv(1) == b""
            assert client.receive(1.0) is None  # twice as long as it may be unknown
            client.sync()
            plain.sync()
        assert running.end()[0] == 0


def _open_files(running: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{running.process.pid}/fd"))


def test_silent_connections_are_bounded_and_leave_nothing(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    listen = f"auto://127.0.0.1:0?cert={cert}&key={key}"
    with broker("--listen", listen, "--set", "net.max_unrecognised=20") as running:
        meet(url(running, "fmqp"), url(running, "lightmq") + "/hall")
        until(lambda: _open_files(running) < 20)
        before = _open_files(running)
        with contextlib.ExitStack() as stack:
            for number in range(300):
                sock = stack.enter_context(running.raw("auto"))
                # Silent, in the middle of a word, and in the middle of a handshake.
                sock.sendall((b"", b"\x10\x10\x00", b"\x16\x03\x01\x02\x00")[number % 3])
            meet(url(running, "fmqp"), url(running, "lightmq") + "/hall")
            until(lambda: _open_files(running) <= before + 20)
            code, said = running.end()
        assert code == 0
        assert "Traceback" not in said
        assert "more than net.max_unrecognised clients say nothing" in said


def test_a_stop_turns_the_unrecognised_out(tmp_path: Path) -> None:
    ours = Authority(tmp_path, "ours")
    cert, key = ours.issue("broker")
    with broker("--listen", f"auto://127.0.0.1:0?cert={cert}&key={key}") as running:
        half = [b"", b"G", b"\x16\x03\x01\x02\x00", b"GET / HTTP/1.1\r\n"]
        crowd = [running.raw("auto") for _ in half]
        for sock, said in zip(crowd, half, strict=True):
            sock.sendall(said)
        meet(url(running, "fmqp"), url(running, "lightmq") + "/hall")
        code, told = running.end()
        assert code == 0
        assert "Traceback" not in told
        for sock in crowd:
            with sock, contextlib.suppress(ConnectionResetError):
                while sock.recv(4096):
                    pass


def test_a_client_cannot_be_auto() -> None:
    done = subprocess.run(
        motemq("sub", "auto://127.0.0.1:8765", "t"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "a client says which protocol it speaks: fmqp://127.0.0.1:8765" in done.stderr


def test_without_arguments_it_listens_on_one_port_and_says_what_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the port that is documented, so nothing is bound here: it may be in use."""
    served: list[ServiceOptions] = []

    def serve(options: ServiceOptions, ready: "object") -> int:
        served.append(options)
        assert callable(ready)
        ready(["auto 127.0.0.1:8765"])
        return 0

    monkeypatch.setattr(broker_cli, "serve", serve)
    thresholds = gc.get_threshold()
    try:
        done = CliRunner().invoke(broker_cli.command, [])
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    assert done.exit_code == 0
    assert [str(address) for address in served[0].listen] == ["auto://127.0.0.1:8765"]
    assert "listening auto 127.0.0.1:8765\n" in done.output
    assert "broker: try motemq sub fmqp://127.0.0.1:8765 'home/*' -v" in done.output
