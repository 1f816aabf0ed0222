"""Brokers in a thread of the test, with the compiled table of topics and with its Python twin."""

from collections.abc import Iterator

import pytest

from tests.host_broker.net.served import Served, served


@pytest.fixture(params=[False, True], ids=["compiled", "python"])
def pure(request: pytest.FixtureRequest) -> bool:
    """Whether the Python twin is used."""
    return bool(request.param)


@pytest.fixture
def broker(pure: bool) -> Iterator[Served]:
    with served(pure=pure) as running:
        yield running
