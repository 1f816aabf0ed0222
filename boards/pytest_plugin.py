"""pytest on boards of the desk: fixtures ``rig_*``, inert without ``--rig``.

    def test_led(rig_board):
        rig_board.install("app")
        rig_board.reset()
        rig_board.expect("the LED is on")

One item per board that fits; a board is locked, flashed and given the client once per session.
Locks are the rig's own, so pytest, ``motemq rig run`` and other people exclude each other. With
``--rig`` nothing is left out in silence: a test whose boards the desk does not have is an error,
unless its mark says ``optional=True``, and a session in which no test used a board fails with exit
code 4. An installed MoteMQ brings this plugin along; ``-p boards.pytest_plugin`` is not needed
then, and harmless.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from boards.inventory.rig_file import Rig
    from boards.pytest_board import BoardPool, RigBoard
    from boards.pytest_broker import FaultRoutes, RigBroker, RigFaults
    from boards.session.run_brokers import RunBrokers
import re
from collections.abc import Iterable

_TAIL_LINES = 40
_NOTHING_RAN = 4

_rig_key: "pytest.StashKey[Rig]" = pytest.StashKey()
_pool_key: "pytest.StashKey[BoardPool]" = pytest.StashKey()
_NO_BOARD = "no board"
_ON_BOARD = "board"  # the user property that says on which board a test ran


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; none of them changes a session that has no ``--rig``."""
    group = parser.getgroup("rig", "boards on a desk (MoteMQ)")
    group.addoption("--rig", metavar="FILE", help="Use the boards of this rig.toml.")
    group.addoption("--rig-board", action="append", default=[], metavar="ID", help="Only this one.")
    group.addoption("--rig-cap", action="append", default=[], help="Only boards that have it.")
    group.addoption("--rig-no-flash", action="store_true", help="Take boards as they are.")
    group.addoption("--rig-out", default="out/pytest-rig", metavar="DIR", help="For serial logs.")
    parser.addini("rig", "The rig.toml to use, as --rig.", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Read the desk, if one is named; a mistake in it ends the session with its file and line."""
    config.addinivalue_line(
        "markers",
        "rig(caps=set(), count=1, optional=False): which boards of the desk a test wants; where it "
        "has none that is an error, or a skip if optional",
    )
    config.addinivalue_line("markers", "xdist_group(name): what one worker runs")
    file = config.getoption("--rig") or config.getini("rig")
    if not file:
        return
    if not sys.platform.startswith("linux"):
        raise pytest.UsageError(f"--rig needs Linux, to find boards; this is {sys.platform}")
    from boards.inventory.models import TomlError
    from boards.inventory.rig_file import load_rig

    try:
        rig = config.stash[_rig_key] = load_rig(Path(file))
        for id in config.getoption("--rig-board"):
            rig.board(id)
    except TomlError as error:
        raise pytest.UsageError(str(error)) from None
    from boards.pytest_board import BoardPool

    config.stash[_pool_key] = BoardPool(
        config.stash[_rig_key],
        out=Path(config.getoption("--rig-out")),
        flash=not config.getoption("--rig-no-flash"),
    )
    config.pluginmanager.register(_Session(config), "motemq_rig_session")


class _Session:
    """What a session with ``--rig`` does besides: boards stay together, and some must be tried."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._ran = False

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep the tests of a board together, unless they are distributed in another way."""
        if config.option.dist not in SCATTERING:
            return None
        return scheduling(config, log, config.stash[_rig_key].boards)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notice a test that ran on a board, here or in a worker of xdist."""
        if report.when == "call" and any(name == _ON_BOARD for name, _ in report.user_properties):
            self._ran = True

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End with 4 where no test ran on a board: that has proven nothing."""
        config = self._config
        if self._ran or config.option.collectonly or hasattr(config, "workerinput"):
            return
        if session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = _NOTHING_RAN
            if reporter := config.pluginmanager.get_plugin("terminalreporter"):
                reporter.write_line("rig: no test ran on a board", red=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one item per board for ``rig_board``, one per test for ``rig_boards``."""
    config = metafunc.config
    single = "rig_board" in metafunc.fixturenames
    if not single and "rig_boards" not in metafunc.fixturenames:
        return
    name = "rig_board" if single else "rig_boards"
    if _rig_key not in config.stash:
        metafunc.parametrize(name, [_NO_BOARD], indirect=True, scope="session")
        return
    marks = list(metafunc.definition.iter_markers("rig"))
    for mark in marks:
        _require_known(mark, metafunc.definition.nodeid)
    caps = set().union(*(mark.kwargs.get("caps", set()) for mark in marks))
    caps |= set(config.getoption("--rig-cap"))
    count = max((mark.kwargs.get("count", 1) for mark in marks), default=1)
    ids = _fitting(config, caps)
    if not ids or len(ids) < count:
        what = f"caps {', '.join(sorted(caps))}" if caps else "this choice"
        reason = f"the desk has {len(ids)} boards for {what}, {count} are wanted"
        optional = any(mark.kwargs.get("optional", False) for mark in marks)
        skip = [pytest.mark.skip(reason=reason)] if optional else []
        empty = pytest.param(_Missing(reason), marks=skip, id=_NO_BOARD)
        metafunc.parametrize(name, [empty], indirect=True, scope="session")
        return
    # Boards are taken in sorted order, so that two sessions never wait for each other.
    chosen = [(id,) for id in sorted(ids)] if single else [tuple(sorted(ids)[:count])]
    params = [
        pytest.param(one, id="+".join(one), marks=pytest.mark.xdist_group("+".join(one)))
        for one in chosen
    ]
    metafunc.parametrize(name, params, indirect=True, scope="session")


def _require_known(mark: pytest.Mark, test: str) -> None:
    """Fail the collection for a mark that would choose other boards than it seems to."""
    known = {"caps", "count", "optional"}
    if mark.args or mark.kwargs.keys() - known or isinstance(mark.kwargs.get("caps"), str):
        pytest.fail(
            f'{test}: write its mark as rig(caps={{"wifi"}}, count=1, optional=False), or less',
            pytrace=False,
        )


@dataclass(frozen=True, slots=True)
class _Missing:
    """Instead of boards, why there are none."""

    reason: str


def _fitting(config: pytest.Config, caps: set[str]) -> list[str]:
    rig = config.stash[_rig_key]
    wanted = config.getoption("--rig-board")
    return [
        board.id
        for board in rig.boards.values()
        if caps <= set(board.caps) and (not wanted or board.id in wanted)
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``--rig``, leave out what wants a board."""
    if _rig_key in config.stash:
        return
    wanting = [item for item in items if _wants_board(item)]
    if wanting:
        config.hook.pytest_deselected(items=wanting)
        items[:] = [item for item in items if item not in wanting]


def _wants_board(item: pytest.Item) -> bool:
    names: Sequence[str] = getattr(item, "fixturenames", ())
    return any(name in names for name in ("rig_board", "rig_boards", "rig_broker", "rig_faults"))


@pytest.fixture(scope="session")
def rig_board(request: pytest.FixtureRequest) -> "Iterator[RigBoard]":
    """One board of the desk: locked, flashed, with the client on it."""
    yield from (boards[0] for boards in _taken(request))


@pytest.fixture(scope="session")
def rig_boards(request: pytest.FixtureRequest) -> "Iterator[list[RigBoard]]":
    """As many boards as the test's mark ``rig(count=…)`` says."""
    yield from _taken(request)


def _taken(request: pytest.FixtureRequest) -> "Iterator[list[RigBoard]]":
    if isinstance(request.param, _Missing):
        pytest.fail(request.param.reason, pytrace=False)
    pool = request.config.stash[_pool_key]
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(pool.board(id)) for id in request.param]


@pytest.fixture(scope="session")
def _rig_brokers(pytestconfig: pytest.Config) -> "Iterator[RunBrokers]":
    """The broker of this session, where its boards reach it."""
    from boards.session.plan import plan_desk
    from boards.session.run_brokers import facing, is_open_to_others, open_broker, own

    rig = pytestconfig.stash[_rig_key]
    plans = plan_desk(rig, pytestconfig.getoption("--rig-board") or (), ())
    host = facing(plans, rig)
    terminal = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    if is_open_to_others(host) and terminal is not None:
        terminal.ensure_newline()
        terminal.write_line(f"rig: {open_broker(host)}", yellow=True)
    with own(host, _out(pytestconfig) / "broker.log") as brokers:
        yield brokers


@pytest.fixture(scope="session")
def _rig_routes(pytestconfig: pytest.Config, _rig_brokers: "RunBrokers") -> "Iterator[FaultRoutes]":
    """The fault proxy of this session."""
    from boards.faults.process import FaultProxy
    from boards.pytest_broker import FaultRoutes

    with FaultProxy.start(_out(pytestconfig) / "proxy.jsonl") as proxy:
        yield FaultRoutes(proxy.control, _rig_brokers)


@pytest.fixture
def rig_broker(_rig_brokers: "RunBrokers") -> "Iterator[RigBroker]":
    """The session's broker: where boards find it, and what a test says and hears there."""
    from boards.pytest_broker import RigBroker

    broker = RigBroker(_rig_brokers)
    yield broker
    broker.close()


@pytest.fixture
def rig_faults(rig_board: "RigBoard", _rig_routes: "FaultRoutes") -> "Iterator[RigFaults]":
    """The way of ``rig_board`` to the broker, to be disturbed; undisturbed after the test."""
    faults = _rig_routes.of(rig_board.id)
    yield faults
    faults.clear()


def _out(config: pytest.Config) -> Path:
    out = Path(config.getoption("--rig-out"))
    out.mkdir(parents=True, exist_ok=True)
    return out


@pytest.fixture
def rig_measure(request: pytest.FixtureRequest) -> Callable[[str, float, str], None]:
    """``rig_measure(name, value, unit)`` puts a measurement into the test's report."""

    def measure(name: str, value: float, unit: str) -> None:
        # Not record_property, which warns where JUnit XML is of the newer family.
        request.node.user_properties.append((name, f"{value:g} {unit}"))

    return measure


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Say which boards a test ran on, and what they said if it failed."""
    boards = _boards_of(item)
    if boards and call.when == "call":
        for board in boards:
            item.user_properties += [(_ON_BOARD, board.id), ("firmware_sha", board.firmware_sha)]
    report = yield
    if report.failed:
        for board in boards:
            text = "\n".join(board.tail(_TAIL_LINES))
            report.sections.append((f"what {board.id} said ({board.log_path})", text))
    return report


def _boards_of(item: pytest.Item) -> "list[RigBoard]":
    values: dict[str, Any] = getattr(item, "funcargs", {})
    if "rig_board" in values:
        return [values["rig_board"]]
    return list(values.get("rig_boards", []))


# What xdist does with -n alone would put the tests of one board into several workers.
SCATTERING = ("load", "worksteal", "loadgroup")


def group_of(nodeid: str, ids: Iterable[str]) -> str:
    """Return the boards, joined by +, in the parameters of a test; the test itself if none is."""
    names = "|".join(re.escape(id) for id in sorted(ids, key=len, reverse=True))
    parameters = nodeid.partition("::")[2].partition("[")[2].removesuffix("]")
    found = re.search(rf"(?:^|-)((?:{names})(?:\+(?:{names}))*)(?=-|$)", parameters)
    return found[1] if names and found else nodeid


def scheduling(config: Any, log: Any, ids: Iterable[str]) -> Any:
    """Return xdist's scheduler that keeps each board's tests together."""
    from xdist.scheduler import LoadScopeScheduling

    known = tuple(ids)

    scheduler = LoadScopeScheduling(config, log)
    # Made to be overridden; not by a subclass, as the base has no types.
    scheduler._split_scope = lambda nodeid: group_of(nodeid, known)
    return scheduler
