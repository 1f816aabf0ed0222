"""``motemq bridge`` as a service: many ports, unplugged, in use, killed; brokers that come and go.

The broker is the real one; the boards are pseudo-terminals that speak FMQP.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import Client, connect
from tests.boards.bridge_process import motemq, running, status
from tests.boards.serial_board import DEADLINE_S, Board, eventually
from tests.host_broker.net.broker_process import BrokerProcess
from tests.host_broker.net.certificates import Authority

_SUBSCRIPTION, _WILL, _CACHE = 0x80, 0x08, 0x04


def _packet(topic: str, body: str = "", flags: int = 0) -> bytes:
    head = bytes([flags, len(topic)]) + len(body).to_bytes(4, "big")
    return head + topic.encode() + body.encode()


@contextlib.contextmanager
def _broker(listen: str = "fmqp://127.0.0.1:0") -> Iterator[BrokerProcess]:
    process = BrokerProcess("--ephemeral", "--listen", listen)
    try:
        yield process
    finally:
        process.end()


@contextlib.contextmanager
def _observer(port: int, topic: str) -> Iterator[Client]:
    client = connect(f"fmqp://127.0.0.1:{port}")
    with client:
        client.subscribe(topic)
        client.sync()
        yield client


def _texts(client: Client, count: int) -> list[str]:
    return [client.receive(timeout_s=DEADLINE_S).payload.decode() for _ in range(count)]


def test_two_boards_in_one_process_meet_at_the_broker(tmp_path: Path) -> None:
    boards = [Board(tmp_path / f"board{number}") for number in range(2)]
    config = tmp_path / "bridge.toml"
    with _broker() as broker:
        port = broker.ports["fmqp"]
        config.write_text(
            f'[defaults]\nto = "fmqp://127.0.0.1:{port}"\nbaud = 115200\nsilence_s = 30\n'
            f'[[port]]\nserial = "{boards[0].url}"\nrtscts = true\n'
            f'[[port]]\nserial = "{boards[1].url}"\n'
        )
        with running("bridge", "--config", str(config), runtime=tmp_path / "run") as bridge:
            bridge.wait_for("board1: bridging")
            boards[1].send(_packet("to/1", flags=_SUBSCRIPTION))
            boards[1].send(_packet("here/1", "1", flags=_CACHE))
            with _observer(port, "here/1") as client:
                assert _texts(client, 1) == ["1"]  # so the subscription before it counts
            boards[0].send(_packet("to/1", "hello"))
            assert boards[1].receive(len(_packet("to/1", "hello"))) == _packet("to/1", "hello")
            first, second = status(tmp_path / "run")
            assert (first["name"], second["name"]) == ("board0", "board1")
            assert second["state"] == "open"
            assert second["to_board_bytes"] == len(_packet("to/1", "hello"))
            assert first["to_broker_bytes"] == len(_packet("to/1", "hello"))
            assert 0 < second["to_board_wait_us"]["max"] < DEADLINE_S * 1e6
            assert bridge.end() == 0
            assert any("board0: 1 sessions" in line for line in bridge.lines)
    for board in boards:
        board.close()
    assert list((tmp_path / "run").iterdir()) == []


def test_many_ports_in_one_process(tmp_path: Path) -> None:
    """More descriptors than select() can wait for, and than a process may usually have."""
    count = 180
    boards = [Board(tmp_path / f"board{number}") for number in range(count)]
    config = tmp_path / "bridge.toml"
    with _broker() as broker, _observer(broker.ports["fmqp"], "t/*") as client:
        config.write_text(
            f'[defaults]\nto = "fmqp://127.0.0.1:{broker.ports["fmqp"]}"\nsilence_s = 60\n'
            + "".join(f'[[port]]\nserial = "{board.url}"\n' for board in boards)
        )
        with running("bridge", "--config", str(config), runtime=tmp_path / "run") as bridge:
            bridge.wait_for(f"board{count - 1}: bridging")
            for number, board in enumerate(boards):
                board.send(_packet("t/a", f"{number}"))
            assert {int(text) for text in _texts(client, count)} == set(range(count))
            descriptors = len(os.listdir(f"/proc/{bridge.popen.pid}/fd"))
            assert descriptors > 1024
            assert {port["state"] for port in status(tmp_path / "run")} == {"open"}
            assert bridge.end() == 0
    for board in boards:
        board.close()


def test_unplugged_and_plugged_in_again(tmp_path: Path) -> None:
    link = tmp_path / "usb-Pico-if00"
    with _broker() as broker, _observer(broker.ports["fmqp"], "t/*") as client:
        to = f"fmqp://127.0.0.1:{broker.ports['fmqp']}"
        with running("bridge", "--serial", str(link), "--to", to, "--wait") as bridge:
            bridge.wait_for("(waiting for the port)")
            for life in range(3):
                board = Board(link)
                bridge.wait_for(f"serial port {link}: open")
                board.send(_packet("t/will", f"will {life}", flags=_WILL))
                board.send(_packet("t/a", f"life {life}"))
                assert _texts(client, 1) == [f"life {life}"]
                board.close()
                bridge.wait_for("it vanished while in use")
                assert _texts(client, 1) == [f"will {life}"]
            assert bridge.end(signal.SIGINT) == 130


def test_a_port_in_use_is_told_with_the_process_that_has_it(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    arguments = ["bridge", "--serial", board.url, "--to", "fmqp://127.0.0.1:1"]
    with running(*arguments, runtime=tmp_path / "run") as first:
        first.wait_for("bridging")
        second = subprocess.run(
            motemq(*arguments), capture_output=True, text=True, timeout=DEADLINE_S
        )
        assert second.returncode == 1
        assert "-m motemq" in second.stderr
        assert f"(process {first.popen.pid})" in second.stderr
        with running(*arguments, "--wait") as waiting:
            waiting.wait_for(f"(process {first.popen.pid})")
            first.popen.kill()
            waiting.wait_for("board: open")
            board.send(b"x")
            waiting.wait_for("nothing listens at fmqp://127.0.0.1:1")
    board.close()


def test_a_broker_that_restarts_is_found_again_and_the_beginning_is_kept(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    runtime = tmp_path / "run"
    port = port_for_later()
    to = f"fmqp://127.0.0.1:{port}"
    with _broker(to) as broker:
        # Silence, which ends a session too, is to be slower than this test on a busy machine.
        arguments = ["--serial", board.url, "--to", to, "--silence", "4"]
        with running("bridge", *arguments, runtime=runtime) as bridge:
            bridge.wait_for("bridging")
            with _observer(port, "t/a") as client:
                board.send(_packet("t/a", "x", flags=_CACHE))
                # It ends with a FIN because it has read all; else the kernel sends a RST.
                assert _texts(client, 1) == ["x"]
            bridge.wait_for("session 1 open")
            broker.end()
            bridge.wait_for("session closed: closed by the broker")
            eventually(lambda: status(runtime)[0]["state"] == "idle")
            board.send(_packet("t/kept", "one", flags=_CACHE))
            bridge.wait_for("nothing listens at")
            with _broker(to):
                # A stream that is talking keeps being tried, from its first byte on.
                with _observer(port, "t/kept") as client:
                    while not bridge_found(runtime):
                        board.send(_packet("t/kept", "more", flags=_CACHE))
                    bridge.wait_for("session 2 open")
                    assert _texts(client, 1)[0] in ("one", "more")
                assert status(runtime)[0]["connect_failures"] >= 1
            assert bridge.end() == 0
    board.close()


def bridge_found(runtime: Path) -> bool:
    return bool(status(runtime)[0]["sessions"] == 2)


def test_a_bridge_that_is_killed_fires_the_will_and_its_successor_goes_on(tmp_path: Path) -> None:
    board = Board(tmp_path / "board")
    runtime = tmp_path / "run"
    with _broker() as broker, _observer(broker.ports["fmqp"], "t/*") as client:
        to = f"fmqp://127.0.0.1:{broker.ports['fmqp']}"
        arguments = ["bridge", "--serial", board.url, "--to", to]
        with running(*arguments, runtime=runtime) as first:
            first.wait_for("bridging")
            board.send(_packet("t/will", "gone", flags=_WILL) + _packet("t/a", "one"))
            assert _texts(client, 1) == ["one"]
            first.popen.kill()
            assert _texts(client, 1) == ["gone"]
            first.end()
        assert len(list(runtime.iterdir())) == 1  # its socket
        with running(*arguments, runtime=runtime) as second:
            second.wait_for("bridging")
            board.send(_packet("t/a", "two"))
            assert _texts(client, 1) == ["two"]
            (only,) = status(runtime)
            assert only["sessions"] == 1
            assert len(list(runtime.iterdir())) == 1  # the dead one's was removed
            # SIGTERM loses nothing that the board has said.
            board.send(_packet("t/a", "three"))
            assert _texts(client, 1) == ["three"]
            assert second.end() == 0
    board.close()


def test_tls_to_the_broker(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    board = Board(tmp_path / "board")
    with _broker(f"fmqps://127.0.0.1:0?cert={cert}&key={key}") as broker:
        url = f"fmqps://127.0.0.1:{broker.ports['fmqps']}"
        with running("bridge", "--serial", board.url, "--to", url) as distrusting:
            distrusting.wait_for("bridging")
            board.send(b"x")
            distrusting.wait_for("name its authority with ?ca=FILE")
            distrusting.end()
        with running("bridge", "--serial", board.url, "--to", f"{url}?ca={authority.file}") as good:
            good.wait_for("bridging")
            body = "long " * 20_000
            board.send(_packet("t/a", flags=_SUBSCRIPTION) + _packet("t/a", body))
            expected = _packet("t/a", body)
            assert board.receive(len(expected)) == expected
            # A clean end: the broker sees TLS close, then FIN.
            assert good.end() == 0
    board.close()


def test_a_serial_port_over_the_network_and_through_to_the_broker(tmp_path: Path) -> None:
    """Board, bridge --listen --rfc2217 with a token, bridge --to, broker."""
    token = tmp_path / "token"
    token.write_text("secret word")
    board = Board(tmp_path / "board")
    listen = ["--listen", "0", "--rfc2217", "--token-file", str(token)]
    with (
        _broker() as broker,
        _observer(broker.ports["fmqp"], "t/*") as client,
        running("bridge", "--serial", board.url, *listen, runtime=tmp_path / "a") as far,
    ):
        address = far.wait_for("listening on").split("listening on ")[1].split()[0]
        url = f"rfc2217://{address}?token_file={token}"
        to = f"fmqp://127.0.0.1:{broker.ports['fmqp']}"
        with running(
            "bridge", "--serial", url, "--baud", "57600", "--to", to, runtime=tmp_path / "b"
        ) as near:
            near.wait_for("bridging")
            far.wait_for("has the port")
            board.send(_packet("t/a", "far"))
            assert _texts(client, 1) == ["far"]
            far.end()
            near.wait_for("its far end closed it")
            assert status(tmp_path / "b")[0]["state"] == "no port"
            assert near.end() == 0
        assert not any("secret" in line for line in near.lines + far.lines)
    board.close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a port and where it leads"),
        (["--serial", "x"], "name a port and where it leads"),
        (["--serial", "x", "--to", "fmqp://h", "--listen", "1"], "name a port"),
        (["--serial", "x", "--to", "fmqp://h", "--rfc2217"], "go with --listen"),
        (["--serial", "x", "--listen", "0.0.0.0:1"], "give a token file"),
        (["--serial", "x", "--listen", "h:p"], "is not HOST:PORT"),
        (["--serial", "x", "--listen", "1", "--token-file", "/no/such"], "token file /no/such"),
        (["--config", "/no/such.toml"], "cannot be read"),
        (["--config", "x", "--serial", "y"], "those of the file only"),
        (["--serial", "x", "--to", "tcp://h"], "names no port"),
    ],
)
def test_usage_errors_are_one_clear_line(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        motemq("bridge", *arguments), capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
