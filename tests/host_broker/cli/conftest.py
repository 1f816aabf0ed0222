"""One real broker for all tests of a module that do not harm it."""

from collections.abc import Iterator

import pytest

from tests.host_broker.net.broker_process import BrokerProcess, broker


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture(scope="module")
def url(running: BrokerProcess) -> str:
    """Return the FMQP address of a running broker."""
    return running.urls["fmqp"]
