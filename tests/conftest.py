"""Order of the suite, and how two workers share it; the rule that nothing vanishes: a skip is
reported, and fails in CI; and what several folders run on: MicroPython's unix port, and the files
of a board."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

# Cheap and pure first, so that a broken codec is told in seconds. What comes last should be short:
# then no worker waits long for the other.
_ORDER = [
    *("motemq", "host_broker", "client_js", "firmware", "client_upy", "firmware_node"),
    *("pipeline", "boards", "benchmarks", "journey"),
]
_SPARK = "tests/pipeline/"  # one Spark for all of it, hence one worker
# What has the machine for itself, in a second session (Makefile): three boards and Spark at once.
_ALONE = ("journey",)
_SAID = "said"

# What a busy machine does to an example is no finding of it.
hypothesis.settings.register_profile(
    "suite",
    parent=hypothesis.settings.default,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


def pytest_configure(config: pytest.Config) -> None:
    # A shell that starts us in the background has SIGINT ignored, nohup has SIGHUP, and what we
    # start inherits that: no Ctrl-C of a test would ever arrive, no terminal's end be noticed.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Every Java of a test lives for seconds: what it would save later by compiling better, and by
    # collecting beside the work, it costs now. Some twenty are started.
    os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    config.pluginmanager.register(_Figures(config))


def _part(item: pytest.Item) -> str:
    return item.path.relative_to(item.config.rootpath / "tests").parts[0]


def _stage(item: pytest.Item) -> int:
    part = _part(item)
    return _ORDER.index(part) if part in _ORDER else len(_ORDER)


@pytest.hookimpl(tryfirst=True)  # before -m looks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_stage)
    for item in items:
        if _part(item) in _ALONE:
            item.add_marker("alone")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling":
    """Give whole files to workers, in our order; all of the pipeline to one of them."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _SPARK if nodeid.startswith(_SPARK) else super()._split_scope(nodeid)

    config.option.loadscopereorder = False
    return Scheduling(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("CI"):
        reporter.write_line(
            f"in CI nothing may be skipped, but {len(skipped)} tests were", red=True
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class _Figures:
    """Prints what tests ``say``, also those of other processes."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.when == "teardown" and reporter:
            for name, line in report.user_properties:
                if name == _SAID:
                    reporter.write_line(f"\n{line}", cyan=True)


@pytest.fixture(scope="session", autouse=True)
def _own_runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Locks, desks and bridges of the other worker, and of whoever else is here, are not ours."""
    folder = str(tmp_path_factory.mktemp("run"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTEMQ_RUNTIME_DIR", folder)
        yield


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Write a figure into the report of a run, passed or failed."""
    return lambda line: record_property(_SAID, line)


@pytest.fixture(scope="session")
def unix_port() -> Path:
    """MicroPython's unix port; ``MOTEMQ_MICROPYTHON`` names another one than ours."""
    other = os.environ.get("MOTEMQ_MICROPYTHON")
    if other:
        return Path(other)
    import firmware.build

    return firmware.build.ensure("unix")


@pytest.fixture(scope="session")
def board_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that is a board's ``/``: the client and the node as the rig installs them."""
    from firmware.node_files import compile_node

    out = tmp_path_factory.mktemp("board")
    for file, path in compile_node(out):
        target = out / path.lstrip("/")
        if target != file:
            target.write_bytes(file.read_bytes())
    return out
