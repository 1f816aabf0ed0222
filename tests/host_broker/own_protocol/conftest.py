"""The line protocol, installed once; people with ``nc``, who hang up at the end of a test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.host_broker.own_protocol.installed import Netcat, install


@pytest.fixture(scope="session")
def line_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which the line protocol is installed."""
    target = tmp_path_factory.mktemp("installed")
    install(target)
    return target


@pytest.fixture
def nc() -> Iterator[Callable[..., Netcat]]:
    """Start ``nc`` with these arguments."""
    started: list[Netcat] = []

    def start(*where: str) -> Netcat:
        started.append(Netcat(*where))
        return started[-1]

    yield start
    for each in started:
        each.close()
