"""The checks of a line that breaks, on a board that is the unix port, with sockets of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.checks.registry import CHECKS
from boards.faults.process import FaultProxy
from boards.inventory.board_file import load_board
from boards.inventory.target import BoardHandle
from boards.repl import Repl
from boards.session.board_session import BoardSession
from boards.session.broker_route import BrokerRoute
from boards.session.installation import node_config
from boards.session.plan import BoardPlan, Protocol
from boards.session.serial_log import SerialLog
from tests.boards.fault_boards import UnixBoard
from tests.boards.rig_job import job_for
from tests.boards.rig_process import Broker


@pytest.fixture(scope="module", params=["fmqp", "lightmq"])
def session(
    request: pytest.FixtureRequest,
    unix_port: Path,
    board_files: Path,
    broker: Broker,
    proxy: FaultProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BoardSession]:
    protocol: Protocol = request.param
    folder = tmp_path_factory.mktemp("unix")
    shutil.copytree(board_files, folder / "files")
    plan = BoardPlan(f"unix-{protocol}", "unix", protocol, has=frozenset({"network", "proxy"}))
    way = BrokerRoute(job_for(plan, broker, folder, proxy_port=proxy.port))
    way.open()
    config = node_config(plan, None, way.address, autostart=False)
    (folder / "files" / "node.json").write_text(config)
    log = SerialLog(folder / "serial.log")
    with UnixBoard(unix_port, folder / "files") as board:
        file = folder / "unix.toml"
        file.write_text(f'id = "{plan.id}"\nmodel = "unix"\nserial_url = "{board.url}"\n')
        repl = Repl.open(board.url, deadline_s=30, tap=log.tap)
        repl.exec("import sys\nsys.path.insert(0, 'lib')", deadline_s=10)
        target = BoardHandle(load_board(file))
        yield BoardSession(plan, target, broker.fmqp, log, None, repl, broker_route=way)
        repl.close()
    way.close()
    log.close()


@pytest.mark.parametrize(
    "name",
    ["baseline", "ping_lost", "ping_idle", "reconnect_rst", "reconnect_restart", "will_clean"],
)
def test_a_unix_board_passes(session: BoardSession, name: str) -> None:
    check = CHECKS[name]
    assert not check.why_not(session.plan.protocol, session.plan.has)
    samples = check.run(session) or []
    assert [each.of for each in samples] == list(check.measures)


def test_what_it_cannot_do_is_not_asked(session: BoardSession) -> None:
    for name in ("will_abrupt", "will_reboot", "will_power"):
        assert CHECKS[name].why_not(session.plan.protocol, session.plan.has)
