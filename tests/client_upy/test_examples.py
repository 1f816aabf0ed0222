"""Every example does what it says: run as a user would, against a real broker.

Why so long: a test for each example.
"""

import hashlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.ports import port_for_later
from host_broker.client import Client
from tests.client_upy.example_board import (
    EXAMPLES,
    ExampleBoard,
    SerialLine,
    bridge,
    fmqp,
    has_said,
    lines_until,
    received,
    said,
)
from tests.client_upy.interpreters import Interpreter
from tests.host_broker.net.broker_process import BrokerProcess, broker
from tests.host_broker.net.certificates import Authority


@pytest.fixture
def live() -> Iterator[BrokerProcess]:
    """A broker that may be started again at its ports."""
    urls = [f"{protocol}://127.0.0.1:{port_for_later()}" for protocol in ("fmqp", "lightmq")]
    with broker(*(word for url in urls for word in ("--listen", url))) as running:
        yield running


@pytest.fixture
def board(usual: Interpreter, live: BrokerProcess, tmp_path: Path) -> ExampleBoard:
    ports = live.ports
    return ExampleBoard(usual, tmp_path, PORT=ports["fmqp"], LIGHTMQ_PORT=ports["lightmq"])


@pytest.fixture
def desk(live: BrokerProcess) -> Iterator[Client]:
    with fmqp(live.ports["fmqp"]) as client:
        yield client


def _restarted(live: BrokerProcess) -> BrokerProcess:
    """End a broker without a farewell, and start another one in its place."""
    live.end(signal.SIGKILL)
    listen = [f"{protocol}://127.0.0.1:{port}" for protocol, port in live.ports.items()]
    arguments = [word for url in listen for word in ("--listen", url)]
    return BrokerProcess(*arguments, "--ephemeral")


def test_the_sensor_comes_back_after_the_broker(board: ExampleBoard, live: BrokerProcess) -> None:
    with board.running("sensor_node.py") as process:
        with fmqp(live.ports["fmqp"]) as desk:
            desk.subscribe("home/*/uptime")
            first = int(received(desk, "home/kitchen/uptime").payload)
            assert int(received(desk, "home/kitchen/uptime").payload) >= first
        live.end(signal.SIGKILL)
        lines_until(process, "not sent: ")
        again = _restarted(live)
        try:
            with fmqp(live.ports["fmqp"]) as desk:
                desk.subscribe("home/*/uptime")
                assert int(received(desk, "home/kitchen/uptime").payload) >= first
        finally:
            again.end()


def test_the_work_is_done_only_while_somebody_listens(board: ExampleBoard, desk: Client) -> None:
    with board.running("on_demand.py") as process:
        desk.subscribe("garden/*/moisture")
        assert lines_until(process, "wanted")
        received(desk, "garden/kitchen/moisture")
        desk.unsubscribe("garden/*/moisture")
        assert lines_until(process, "nobody listens") == ["nobody listens"]
        desk.sync()
        desk.subscribe("garden/kitchen/moisture", uncounted=True)  # hears, but is not heard of
        assert desk.receive(timeout_s=2.5) is None
        desk.subscribe("garden/*/moisture")
        assert lines_until(process, "wanted") == ["wanted"]
        received(desk, "garden/kitchen/moisture")


def test_commands_are_answered(board: ExampleBoard, desk: Client) -> None:
    desk.subscribe("lightmq/kitchen/*")
    with board.running("command_responder.py") as process:
        received(desk, "lightmq/kitchen/status", b"online")
        assert lines_until(process, "connected") == ["connected"]
        desk.publish("lightmq/kitchen/down", b"uptime")
        assert received(desk, "lightmq/kitchen/reply").payload.endswith(b" s")
        desk.publish("lightmq/kitchen/down", b"fly")
        assert received(desk, "lightmq/kitchen/reply").payload == b"there are: blink uptime"
    received(desk, "lightmq/kitchen/status", b"offline")


def test_the_will_tells_who_is_gone_and_who_is_back(
    board: ExampleBoard, live: BrokerProcess, desk: Client
) -> None:
    desk.subscribe("home/*/status")
    with board.running("last_will.py"):
        received(desk, "home/kitchen/status", b"online")
    received(desk, "home/kitchen/status", b"offline")
    with board.running("last_will.py") as process:
        received(desk, "home/kitchen/status", b"online")
        again = _restarted(live)
        try:
            with fmqp(live.ports["fmqp"]) as later:
                later.subscribe("home/*/status")
                received(later, "home/kitchen/status", b"online")
                process.kill()
                received(later, "home/kitchen/status", b"offline")
        finally:
            again.end()


def test_an_outage_loses_nothing(board: ExampleBoard, live: BrokerProcess) -> None:
    with board.running("outage.py") as process:
        with fmqp(live.ports["fmqp"]) as desk:
            desk.subscribe("meter/kitchen")
            before = int(received(desk, "meter/kitchen").payload)
        live.end(signal.SIGKILL)
        lines_until(process, "kept 4 ")
        # Its subscriber has to be there first: the broker is alive again before the board knows.
        again = _restarted(live)
        try:
            with fmqp(live.ports["fmqp"]) as desk:
                desk.subscribe("meter/kitchen")
                numbers = [int(received(desk, "meter/kitchen").payload) for _ in range(8)]
        finally:
            again.end()
    # What was written into the dead link is lost at most; what was kept came in order.
    assert numbers == list(range(numbers[0], numbers[0] + 8))
    assert before < numbers[0]


def test_a_file_travels_both_ways(board: ExampleBoard, desk: Client) -> None:
    content = hashlib.sha256(b"seed").digest() * 3125  # 100 kB, on a heap of about 64
    desk.subscribe("files/kitchen/got")
    with board.running("file_transfer.py") as process:
        desk.publish("files/kitchen/put", content, retain=True)
        assert lines_until(process, "got ") == ["got 100000 bytes"]
        assert received(desk, "files/kitchen/got").payload == content
        assert not list(board.folder.glob("*.part"))


def test_tasks_run_side_by_side(board: ExampleBoard, live: BrokerProcess) -> None:
    with board.running("asyncio_node.py") as process:
        with fmqp(live.ports["fmqp"]) as desk:
            desk.subscribe("home/kitchen/uptime")
            received(desk, "home/kitchen/uptime")
            desk.publish("home/kitchen/period", b"100")
            assert lines_until(process, "every 100 ms")
        again = _restarted(live)
        try:
            with fmqp(live.ports["fmqp"]) as desk:
                desk.subscribe("home/kitchen/uptime")
                received(desk, "home/kitchen/uptime")
                desk.publish("home/kitchen/period", b"60")
                assert lines_until(process, "every 60 ms")
                desk.publish("home/kitchen/period", b"soon")
                desk.publish("home/kitchen/period", b"70")
                assert lines_until(process, "every 70 ms")[-2:] == [
                    "not a number: b'soon'",
                    "every 70 ms",
                ]
        finally:
            again.end()


def test_the_board_sleeps_when_the_broker_has_it(board: ExampleBoard, desk: Client) -> None:
    board.lend("machine.py")
    desk.subscribe("home/*/battery")
    with board.running("deep_sleep.py") as process:
        assert said(process) == "deepsleep 600000\n"
    assert received(desk, "home/kitchen/battery").payload == b"3700"


def test_the_board_sleeps_when_there_is_no_broker(board: ExampleBoard, live: BrokerProcess) -> None:
    board.lend("machine.py")
    live.end(signal.SIGKILL)
    with board.running("deep_sleep.py") as process:
        lines = said(process).splitlines()
    assert lines[0].startswith("next time: ")
    assert "connect" in lines[0]
    assert lines[1:] == ["deepsleep 600000"]


def test_the_client_outlives_a_light_sleep(
    board: ExampleBoard, live: BrokerProcess, desk: Client
) -> None:
    board.lend("machine.py")
    desk.subscribe("home/*/battery")
    with board.running("light_sleep.py") as process:
        for _ in range(3):
            assert received(desk, "home/kitchen/battery").payload == b"3700"
        assert lines_until(process, "lightsleep") == ["lightsleep 60000"]
        live.end(signal.SIGKILL)
        lines_until(process, "next time: ")
        again = _restarted(live)
        try:
            with fmqp(live.ports["fmqp"]) as later:
                later.subscribe("home/*/battery")
                received(later, "home/kitchen/battery")
        finally:
            again.end()


def _reading(desk: Client) -> int:
    """Return the sequence number of the next reading."""
    sequence, seconds, _ = received(desk, "meter/kitchen").payload.split()
    assert int(seconds) > 0
    return int(sequence)


@pytest.mark.parametrize("protocol", ["micromsg2", "fmqp"])
def test_no_reading_is_lost_by_an_outage_and_a_power_cut(
    protocol: str, usual: Interpreter, tmp_path: Path
) -> None:
    """By the protocol that acknowledges; and by FMQP, as the README says; ``auto`` tells which."""
    urls = [f"{name}://127.0.0.1:{port_for_later()}" for name in ("auto", "fmqp")]
    with broker(*(word for url in urls for word in ("--listen", url))) as live:
        board = ExampleBoard(usual, tmp_path, PORT=live.ports["auto"])
        example = "sensor_that_may_lose_power.py"
        if protocol == "fmqp":
            text = (EXAMPLES / example).read_text()
            for there, instead in (
                ("umotemq.micromsg2 import MicroMsg2Client", "umotemq.fmqp import FmqpClient"),
                ("MicroMsg2Client(", "FmqpClient("),
                (" name=config.NAME,", ""),
            ):
                assert there in text
                text = text.replace(there, instead)
            example = "by_fmqp.py"
            (tmp_path / example).write_text(text)
        _no_reading_is_lost(board, live, example)


def _no_reading_is_lost(board: ExampleBoard, live: BrokerProcess, example: str) -> None:
    seen: list[int] = []
    with board.running(example) as process:
        lines_until(process, "kept 0 from before")
        with fmqp(live.ports["fmqp"]) as desk:
            desk.subscribe("meter/kitchen")
            seen += [_reading(desk) for _ in range(3)]
        live.end(signal.SIGKILL)
        lines_until(process, "kept 4 ")
        process.kill()  # the power fails
        process.wait()
    with board.running(example) as process:
        (line,) = lines_until(process, "kept ")
        assert int(line.split()[1]) >= 4
        lines_until(process, "kept ")
        again = _restarted(live)
        try:
            with fmqp(live.ports["fmqp"]) as desk:
                desk.subscribe("meter/kitchen")
                while len(set(seen)) < 20:
                    seen.append(_reading(desk))
        finally:
            again.end()
    first, last = min(seen), max(seen)
    # Its subscriber comes after the first ones that a link brings: they are the broker's by then.
    assert sorted(set(seen[3:])) == list(range(min(seen[3:]), last + 1))
    assert first >= 1


def test_the_certificate_is_looked_at(usual: Interpreter, tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ours")
    cert, key = authority.issue("broker")
    listen = ["--listen", f"fmqps://127.0.0.1:0?cert={cert}&key={key}"]
    with broker(*listen, "--listen", "fmqp://127.0.0.1:0") as running:
        board = ExampleBoard(usual, tmp_path, TLS_PORT=running.ports["fmqps"])
        (tmp_path / "ca.pem").write_bytes(authority.file.read_bytes())
        with fmqp(running.ports["fmqp"]) as desk:
            desk.subscribe("home/kitchen/uptime")
            with board.running("tls_node.py"):
                received(desk, "home/kitchen/uptime")
        stranger = Authority(tmp_path, "stranger")
        (tmp_path / "ca.pem").write_bytes(stranger.file.read_bytes())
        with board.running("tls_node.py") as process:
            line = lines_until(process, "not sent: ")[-1]
            assert "connect" in line
            assert "TLS: certificate: " in line


def test_the_bridge_carries_a_board_that_has_no_network(
    usual: Interpreter, live: BrokerProcess, tmp_path: Path
) -> None:
    with SerialLine() as line, fmqp(live.ports["fmqp"]) as desk:
        uart = {"id": line.board_port, "baud": 921600, "tx": 4, "rx": 5}
        board = ExampleBoard(usual, tmp_path, UART=uart)
        board.lend("machine.py")
        desk.subscribe("home/*/uptime")
        with board.running("uart_bridge.py"), bridge(line.url, live.ports["fmqp"]):
            first = received(desk, "home/kitchen/uptime")
            assert received(desk, "home/kitchen/uptime").received_ns > first.received_ns
            again = _restarted(live)
            try:
                with fmqp(live.ports["fmqp"]) as later:
                    later.subscribe("home/*/uptime")
                    received(later, "home/kitchen/uptime")
            finally:
                again.end()


def test_the_watchdog_is_fed_only_by_proof(
    usual: Interpreter, live: BrokerProcess, tmp_path: Path
) -> None:
    board = ExampleBoard(
        usual,
        tmp_path,
        PORT=live.ports["fmqp"],
        SSID="attic",
        PASSWORD="secret",
        WATCHDOG_MS=1500,
        GIVE_UP_MS=2000,
    )
    board.lend("machine.py")
    board.lend("network.py")
    with fmqp(live.ports["fmqp"]) as desk:
        desk.subscribe("home/*/signal")
        with board.running("wifi_watchdog") as process:
            assert lines_until(process, "power save")[-1] == "power save off"
            for _ in range(12):  # longer than both deadlines
                assert received(desk, "home/kitchen/signal").payload == b"-61"
            assert not has_said(process)
            live.process.send_signal(signal.SIGSTOP)  # silent, while every send still succeeds
            try:
                assert "watchdog: reset" in lines_until(process, "watchdog")
            finally:
                live.process.send_signal(signal.SIGCONT)


def test_a_user_s_passwords_stay_out_of_git() -> None:
    ignored = ["git", "check-ignore", "-q", str(EXAMPLES / "config.py")]
    assert subprocess.run(ignored, cwd=EXAMPLES, timeout=60).returncode == 0


def test_every_example_is_run_here() -> None:
    text = Path(__file__).read_text()
    examples = {path.name for path in EXAMPLES.iterdir() if path.name != "config.example.py"}
    # Names are given to ``running``, or are parameters of a test for it; nothing else quotes them.
    assert {name for name in examples if f'"{name}"' not in text} == set()
