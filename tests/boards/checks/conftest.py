"""A virtual board with the node on it, and a bench for one check at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest

from boards.repl import Repl
from boards.rig.bench import Bench
from boards.rig.checks.declared import Samples
from boards.rig.checks.registry import CHECKS
from boards.rig.installation import copy_node, node_config, stage_node
from boards.rig.plan import BoardPlan, Need
from boards.rig.plan import Protocol as Speaks
from boards.rig.serial_log import SerialLog
from boards.virtual.board import VirtualBoard
from tests.boards.checks.broken_broker import BrokenBroker, Fault
from tests.boards.desk_files import desk_board, running_esp32
from tests.boards.rig_process import Broker

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
            _bench(esp32, plan, broker, between.port, tmp_path) as bench,
        ):
            if on_board:
                bench.repl.exec(on_board, deadline_s=10)
            return CHECKS[name].run(bench)

    return run


@contextmanager
def _bench(
    board: VirtualBoard, plan: BoardPlan, broker: Broker, port: int, folder: Path
) -> Iterator[Bench]:
    # What an earlier check left in the board's memory is not to judge this one.
    board.control.reset()
    log = SerialLog(folder / "serial.log")
    config = node_config(plan, None, ("127.0.0.1", port), autostart=False)
    code = f"with open('/node.json', 'w') as file:\n file.write({config!r})"
    try:
        with Repl.open(board.address.serial_url, deadline_s=30, tap=log.tap) as repl:
            repl.exec(code, deadline_s=10)
            yield Bench(
                board=plan,
                target=desk_board(folder, board),
                broker=broker.fmqp,
                log=log,
                bridge=None,
                repl=repl,
            )
    finally:
        log.close()
