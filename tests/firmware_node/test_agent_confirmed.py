"""The agent's step ``confirmed`` on the unix port: at a real broker, behind the rig's own proxy."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.faults.control import Route
from boards.faults.process import FaultProxy
from host_broker.client import connect
from tests.client_upy.fault_server import FaultServer
from tests.firmware_node.board import AgentProcess, Board
from tests.host_broker.net import broker_process
from tests.host_broker.net.broker_process import BrokerProcess, until

_TOPIC = "check/b1"
_COUNT = 20
_TRIES = 100  # in them the ring would overflow, were more published than it has room for
_OPTIONS = {"answer_ms": 2000, "retry_ms": 20, "retry_max_ms": 20}


@pytest.fixture(scope="module")
def both() -> Iterator[BrokerProcess]:
    """A broker that speaks MicroMsg2 to the board and FMQP to who observes."""
    listen = ["--listen", "micromsg2://127.0.0.1:0", "--listen", "fmqp://127.0.0.1:0"]
    with broker_process.broker(*listen) as running:
        yield running


@pytest.fixture
def route(both: BrokerProcess, tmp_path: Path) -> Iterator[Route]:
    with FaultProxy.start(tmp_path / "proxy.jsonl") as proxy:
        broker = f"127.0.0.1:{both.ports['micromsg2']}"
        yield proxy.control.route("b1", "127.0.0.1", broker)


def _at(board: Board, port: int) -> AgentProcess:
    board.configure(board="b1", protocol="fmqp", transport="tcp", host="127.0.0.1", port=port)
    return AgentProcess(board)


def _last(route: Route) -> int:
    return route.traces()[-1].number


def test_a_long_outage_costs_no_reading(board: Board, route: Route, both: BrokerProcess) -> None:
    """Beyond ``count`` the board publishes only while its link is up: its ring never overflows."""
    ups = 0

    def link_is_up() -> None:
        nonlocal ups
        ups += 1
        if ups == 1:
            known = _last(route)
            route.set_mode("reset")
            route.cut("rst")
            until(lambda: _last(route) >= known + _TRIES)
            route.set_mode("forward")

    with connect(both.urls["fmqp"]) as observer, _at(board, route.address[1]) as agent:
        observer.subscribe(_TOPIC)
        observer.sync()
        result = agent.step(
            "confirmed",
            link_is_up,
            client_id="b1.check",
            topic=_TOPIC,
            count=_COUNT,
            period_ms=5,
            timeout_ms=30_000,
            connects=2,
            options=_OPTIONS,
        )
        assert result["ok"] is True, result
        heard: list[str] = []
        last = f"#{result['sent'] - 1}"
        end = time.monotonic() + 20
        while last not in heard and time.monotonic() < end:
            message = observer.receive(timeout_s=1.0)
            heard += [message.payload.decode()] if message is not None else []
    assert (ups, result["connects"]) == (2, 2)
    assert result["downs"] != []
    assert (result["kept"], result["dropped"]) == (0, 0)
    assert result["sent"] >= _COUNT
    assert list(dict.fromkeys(heard)) == [f"#{number}" for number in range(result["sent"])]


def test_more_than_the_count_goes_while_the_link_is_up(board: Board, route: Route) -> None:
    """So long as it has not come up as often as was asked for there is something to cut."""
    first, cuts = 0, 0

    def link_is_up() -> None:
        nonlocal first, cuts
        if not first:
            first = _last(route)
            size = route.traces(first - 1)[0].to_broker_bytes
            # Each reading has more than four bytes.
            until(lambda: route.traces(first - 1)[0].to_broker_bytes > size + 60 * 10)
            cuts += route.cut("fin")[1]

    with _at(board, route.address[1]) as agent:
        result = agent.step(
            "confirmed",
            link_is_up,
            client_id="b1.check",
            topic=_TOPIC,
            count=5,
            period_ms=1,
            timeout_ms=30_000,
            connects=2,
            options=_OPTIONS,
        )
    assert (cuts, result["connects"], result["kept"]) == (1, 2, 0)
    assert result["sent"] > 5


def test_what_nobody_confirms_is_kept_and_told(board: Board) -> None:
    with FaultServer() as server, _at(board, server.ports["micromsg2_deaf"]) as agent:
        result = agent.step(
            "confirmed",
            client_id="b1.check",
            topic=_TOPIC,
            count=5,
            period_ms=10,
            timeout_ms=500,
            options=_OPTIONS,
        )
    assert result["ok"] is True
    assert (result["sent"], result["kept"], result["dropped"]) == (5, 5, 0)
    assert result["ms"] >= 500


def test_without_a_link_at_first_it_fails(board: Board, unused_port: int) -> None:
    board.configure(
        board="b1", protocol="fmqp", transport="tcp", host="127.0.0.1", port=unused_port
    )
    # 10 s is what it waits for its first link.
    with AgentProcess(board) as agent:
        result = agent.step(
            "confirmed",
            client_id="b1.check",
            topic=_TOPIC,
            count=5,
            period_ms=10,
            timeout_ms=500,
            options=_OPTIONS,
        )
    assert result["ok"] is False
    assert "LinkError" in result["error"] or "OSError" in result["error"]
