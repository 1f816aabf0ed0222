"""A virtual board with the node on it, and a session for one check at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from boards.checks.declared import Samples
from boards.checks.registry import CHECKS
from boards.faults.process import FaultProxy
from boards.repl import Repl
from boards.session.board_session import BoardSession
from boards.session.broker_route import BrokerRoute
from boards.session.installation import copy_node, node_config, stage_node
from boards.session.plan import BoardPlan, Need
from boards.session.plan import Protocol as Speaks
from boards.session.serial_log import SerialLog
from boards.virtual.board import VirtualBoard
from tests.boards.checks.broken_broker import BrokenBroker, Fault
from tests.boards.desk_files import desk_board, running_esp32
from tests.boards.rig_job import job_for
from tests.boards.rig_process import Broker

Lay = Callable[[Speaks], BoardSession]
Change = Callable[[str, dict[str, Any]], None]
Calls = Callable[[Change], None]

_HAS: frozenset[Need] = frozenset({"network", "lossless", "buttons"})


class RunCheck(Protocol):
    """``run_check(name, protocol, fault, on_board)``."""

    def __call__(
        self, name: str, protocol: Speaks = "fmqp", fault: Fault | None = None, on_board: str = ""
    ) -> list[Samples]:
        """Run one check; ``fault``: of its broker; ``on_board``: Python to run there before."""


@pytest.fixture(scope="module")
def esp32(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualBoard]:
    folder = tmp_path_factory.mktemp("board")
    with running_esp32(folder / "c1", "c1") as board:
        (folder / "node.json").write_text("{}")
        node = stage_node(folder / "node")
        url = board.address.serial_url
        copy_node(url, node, folder / "node.json", deadline_s=60, on_line=lambda line: None)
        yield board


@pytest.fixture
def run_check(esp32: VirtualBoard, broker: Broker, tmp_path: Path) -> RunCheck:
    def run(
        name: str, protocol: Speaks = "fmqp", fault: Fault | None = None, on_board: str = ""
    ) -> list[Samples]:
        plan = BoardPlan("c1", "virtual-esp32", protocol, has=_HAS)
        address = getattr(broker, protocol)
        with (
            BrokenBroker(address, protocol, fault or (lambda _way, packet: [packet])) as between,
            _bench(esp32, plan, broker, between.port, tmp_path) as session,
        ):
            if on_board:
                session.repl.exec(on_board, deadline_s=10)
            return CHECKS[name].run(session) or []

    return run


@contextmanager
def _bench(
    board: VirtualBoard, plan: BoardPlan, broker: Broker, port: int, folder: Path
) -> Iterator[BoardSession]:
    # What an earlier check left in the board's memory is not to judge this one.
    board.control.reset()
    log = SerialLog(folder / "serial.log")
    config = node_config(plan, None, ("127.0.0.1", port), autostart=False)
    code = f"with open('/node.json', 'w') as file:\n file.write({config!r})"
    try:
        with Repl.open(board.address.serial_url, deadline_s=30, tap=log.tap) as repl:
            repl.exec(code, deadline_s=10)
            yield BoardSession(
                plan=plan,
                target=desk_board(folder, board),
                broker=broker.fmqp,
                log=log,
                bridge=None,
                repl=repl,
            )
    finally:
        log.close()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    with FaultProxy.start(tmp_path_factory.mktemp("proxy") / "proxy.jsonl") as running:
        yield running


@pytest.fixture
def lay(
    esp32: VirtualBoard,
    broker: Broker,
    proxy: FaultProxy,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[Lay]:
    """Lay out a session on which the board meets the broker through the proxy."""
    open_now: list[BoardSession] = []

    def session(protocol: Speaks) -> BoardSession:
        plan = BoardPlan(request.node.name, "virtual-esp32", protocol, has=_HAS | {"proxy"})
        way = BrokerRoute(job_for(plan, broker, tmp_path, proxy_port=proxy.port))
        way.open()
        esp32.control.reset()
        log = SerialLog(tmp_path / "serial.log")
        repl = Repl.open(esp32.address.serial_url, deadline_s=30, tap=log.tap)
        config = node_config(plan, None, way.address, autostart=False)
        repl.exec(f"with open('/node.json', 'w') as file:\n file.write({config!r})", deadline_s=10)
        target = desk_board(tmp_path, esp32)
        open_now.append(BoardSession(plan, target, broker.fmqp, log, None, repl, broker_route=way))
        return open_now[-1]

    yield session
    for each in open_now:
        each.repl.close()
        each.log.close()
        assert each.broker_route is not None
        each.broker_route.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Have a function look at each of the agent's steps, and change its arguments."""
    real = BoardSession.call

    def install(change: Change) -> None:
        def call(self: BoardSession, name: str, **arguments: Any) -> dict[str, Any]:
            change(name, arguments)
            return real(self, name, **arguments)

        monkeypatch.setattr(BoardSession, "call", call)

    return install
