"""Brokers in a thread of the test, with the compiled part of the poller and without."""

from collections.abc import Iterator

import pytest

from tests.host_broker.net.served import Served, served


@pytest.fixture(params=[False, True], ids=["compiled", "pure"])
def pure(request: pytest.FixtureRequest) -> bool:
    """Whether the compiled part is left out."""
    return bool(request.param)


@pytest.fixture
def broker(pure: bool) -> Iterator[Served]:
    with served(pure=pure) as running:
        assert (running.poller.passage is None) == pure
        yield running
