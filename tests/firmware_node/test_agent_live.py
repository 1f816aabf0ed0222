"""The agent's steps for a line that breaks, on the unix port against real sockets."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.ports import port_for_later
from tests.firmware_node.board import AgentProcess, Board
from tests.firmware_node.conftest import BrokerPorts
from tests.host_broker.net import broker_process

_RETRY = {"keepalive_ms": 100, "answer_ms": 500, "retry_ms": 100, "retry_max_ms": 200}


def test_live_takes_messages_and_says_when_they_came(
    fmqp_agent: AgentProcess, broker: BrokerPorts
) -> None:
    assert fmqp_agent.step("connect", client_id="b1.check")["ok"]
    with broker.observer() as publisher:

        def publish() -> None:
            publisher.sync()
            for number in range(3):
                publisher.publish("check/b1/live", f"#{number}".encode())

        fmqp_agent.step("receive", topic="check/b1/live", count=1, timeout_ms=10)
        result = fmqp_agent.step("live", publish, ms=10_000, topic="check/b1/live", count=3)
    assert result["payloads"] == ["#0", "#1", "#2"]
    assert (result["up"], result["changes"]) == (True, [])
    assert len(result["came_ms"]) == 3
    assert 0 <= result["came_ms"][0] <= result["came_ms"][2] <= result["ms"] < 10_000


def test_live_ends_when_its_time_is_up(fmqp_agent: AgentProcess) -> None:
    fmqp_agent.step("connect", client_id="b1.check")
    result = fmqp_agent.step("live", ms=300)
    assert 300 <= result["ms"] < 5000
    assert 0 <= result["overslept_ms"] <= result["ms"]
    assert (result["up"], result["changes"], result["payloads"]) == (True, [], [])


def test_live_notices_a_broker_that_died(board: Board) -> None:
    with broker_process.broker() as dying:
        board.configure(
            board="b1", protocol="fmqp", transport="tcp", host="127.0.0.1", port=dying.ports["fmqp"]
        )
        with AgentProcess(board) as agent:
            agent.step("connect", client_id="b1.check")
            result = agent.step("live", dying.process.kill, ms=20_000)
    ((at_ms, up, why, silent_ms),) = result["changes"]
    assert (result["up"], up, why) == (False, False, "closed")
    assert 0 <= silent_ms <= at_ms <= result["ms"] < 20_000


@pytest.fixture
def deaf() -> Iterator[int]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_live_comes_back_by_itself(board: Board) -> None:
    port = port_for_later()
    listen = ["--listen", f"fmqp://127.0.0.1:{port}", "--listen", "lightmq://127.0.0.1:0"]
    with broker_process.broker(*listen) as first:
        board.configure(board="b1", protocol="fmqp", transport="tcp", host="127.0.0.1", port=port)
        with AgentProcess(board) as agent:
            agent.step("connect", client_id="b1.check", options=_RETRY)
            end = threading.Event()

            def restart() -> None:
                first.process.kill()
                first.process.wait()
                threading.Thread(target=_serve, args=(listen, end), daemon=True).start()

            result = agent.step("live", restart, ms=30_000, topic="back", count=1)
            end.set()
    downs_and_ups = [change[1] for change in result["changes"]]
    assert downs_and_ups[0] is False
    assert downs_and_ups[-1] is True
    assert result["payloads"][0].startswith("again")


def _serve(listen: list[str], end: threading.Event) -> None:
    """A broker on the port of the first, which publishes until the board has heard it."""
    with broker_process.broker(*listen) as second:
        from host_broker.client import connect

        client = connect(second.urls["fmqp"])
        with client:
            while not end.wait(0.05):
                client.publish("back", f"again {time.monotonic()}".encode())


def test_a_link_may_be_given_other_settings(board: Board, deaf: int, broker: BrokerPorts) -> None:
    board.configure(board="b1", protocol="fmqp", transport="tcp", host="127.0.0.1", port=deaf)
    with AgentProcess(board) as agent:
        refused = agent.step("connect", timeout_ms=1000, options={"answer_ms": 200})
        assert refused["ok"] is False
        assert "timeout" in refused["error"]
        taken = agent.step("connect", options={"port": broker.fmqp})
        assert taken["ok"] is True


def test_fmqp_in_lightmq(board: Board) -> None:
    listen = ["--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq+fmqp://127.0.0.1:0"]
    with broker_process.broker(*listen) as broker:
        board.configure(
            board="b2",
            protocol="lightmq",
            transport="tcp",
            host="127.0.0.1",
            port=broker.ports["lightmq+fmqp"],
        )
        with AgentProcess(board) as agent, BrokerPorts(broker.ports["fmqp"], 0).observer() as seen:
            seen.subscribe("will/b2")
            seen.sync()
            carried = {"protocol": "carried"}
            answer = agent.step(
                "connect", client_id="b2.check", will=["will/b2", "gone"], options=carried
            )
            assert answer["ok"] is True, answer
            assert agent.step("ping", count=2)["lost"] == 0
            agent.kill()
            will = seen.receive(timeout_s=10)
            assert will is not None
            assert will.payload == b"gone"


def test_echo_measures_the_line_alone(board: Board) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        board.configure(
            board="b1",
            protocol="fmqp",
            transport="tcp",
            host="127.0.0.1",
            port=listener.getsockname()[1],
        )
        seen = bytearray()
        threading.Thread(target=_echo, args=(listener, seen), daemon=True).start()
        with AgentProcess(board) as agent:
            result = agent.step("echo", size=16, count=5, total=20_000)
    assert result["ok"] is True, result
    assert len(result["rtt_us"]) == 5
    assert all(0 < rtt < 5e6 for rtt in result["rtt_us"])
    assert 0 < result["us"] < 10e6
    assert len(seen) == 6 * 16 + 20_000


def test_echo_without_an_echo_is_an_error(board: Board, deaf: int) -> None:
    board.configure(board="b1", protocol="fmqp", transport="tcp", host="127.0.0.1", port=deaf)
    with AgentProcess(board) as agent:
        result = agent.step("echo", count=1, timeout_ms=300)
    assert result["ok"] is False
    assert "0 of 16 bytes came back" in result["error"]


def _echo(listener: socket.socket, seen: bytearray) -> None:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(4096):
            seen.extend(data)
            connection.sendall(data)
