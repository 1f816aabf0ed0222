"""The checks of a line that breaks, on a board that is the unix port, with sockets of its own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from boards.repl import Repl
from boards.rig.bench import Bench
from boards.rig.checks.registry import CHECKS
from boards.rig.desk.board_file import load_board
from boards.rig.desk.target import DeskBoard
from boards.rig.installation import node_config
from boards.rig.plan import BoardPlan, Protocol
from boards.rig.proxy.process import FaultProxy
from boards.rig.serial_log import SerialLog
from boards.rig.way import Way
from tests.boards.fault_boards import UnixBoard
from tests.boards.rig_job import job_for
from tests.boards.rig_process import Broker


@pytest.fixture(scope="module", params=["fmqp", "lightmq"])
def bench(
    request: pytest.FixtureRequest,
    unix_port: Path,
    board_files: Path,
    broker: Broker,
    proxy: FaultProxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    protocol: Protocol = request.param
    folder = tmp_path_factory.mktemp("unix")
    shutil.copytree(board_files, folder / "files")
    plan = BoardPlan(f"unix-{protocol}", "unix", protocol, has=frozenset({"network", "proxy"}))
    way = Way(job_for(plan, broker, folder, proxy_port=proxy.port))
    way.open()
    config = node_config(plan, None, way.address, autostart=False)
    (folder / "files" / "node.json").write_text(config)
    log = SerialLog(folder / "serial.log")
    with UnixBoard(unix_port, folder / "files") as board:
        file = folder / "unix.toml"
        file.write_text(f'id = "{plan.id}"\nmodel = "unix"\nserial_url = "{board.url}"\n')
        repl = Repl.open(board.url, deadline_s=30, tap=log.tap)
        repl.exec("import sys\nsys.path.insert(0, 'lib')", deadline_s=10)
        target = DeskBoard(load_board(file))
        yield Bench(plan, target, broker.fmqp, log, None, repl, way=way)
        repl.close()
    way.close()
    log.close()


@pytest.mark.parametrize(
    "name",
    ["baseline", "ping_lost", "ping_idle", "reconnect_rst", "reconnect_restart", "will_clean"],
)
def test_a_unix_board_passes(bench: Bench, name: str) -> None:
    check = CHECKS[name]
    assert check.fits(bench.board.protocol, bench.board.has)
    samples = check.run(bench)
    assert [each.of for each in samples] == list(check.measures)


def test_what_it_cannot_do_is_not_asked(bench: Bench) -> None:
    for name in ("will_abrupt", "will_reboot", "will_power"):
        assert not CHECKS[name].fits(bench.board.protocol, bench.board.has)
