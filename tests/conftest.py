"""Order of the suite, and the rule that nothing vanishes: a skip is reported, and fails in CI."""

import os
from collections.abc import Callable

import pytest

# Cheap and pure first, so that a broken codec is told in seconds and not after Spark.
_ORDER = ["motemq", "host_broker", "firmware", "client_upy", "firmware_node", "boards", "pipeline"]


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
