"""Order of the suite; the rule that nothing vanishes: a skip is reported, and fails in CI; and what
several folders run on: MicroPython's unix port, and the files of a board."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

# Cheap and pure first, so that a broken codec is told in seconds and not after Spark.
_ORDER = ["motemq", "host_broker", "firmware", "client_upy", "firmware_node", "boards", "pipeline"]


def pytest_configure() -> None:
    # A shell that starts us in the background has SIGINT ignored, nohup has SIGHUP, and what we
    # start inherits that: no Ctrl-C of a test would ever arrive, no terminal's end be noticed.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _stage(item: pytest.Item) -> int:
    parts = item.path.relative_to(item.config.rootpath / "tests").parts
    return _ORDER.index(parts[0]) if parts[0] in _ORDER else len(_ORDER)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_stage)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("CI"):
        reporter.write_line(
            f"in CI nothing may be skipped, but {len(skipped)} tests were", red=True
        )
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Write a figure into the report of a run, passed or failed."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None
    return lambda line: reporter.write_line(f"\n{line}", cyan=True)


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
