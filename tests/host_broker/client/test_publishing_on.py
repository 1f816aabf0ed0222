"""A publisher that has to wait for the broker goes on as soon as it may, not at its deadline."""

import asyncio
import time
from collections.abc import Iterator

import pytest

from host_broker.client import connect, connect_async
from tests.host_broker.net.broker_process import BrokerProcess, broker

# Thirty windows of LightMQ, three times what is held for a broker that has not confirmed it.
_MESSAGES = 1000
_PAYLOAD = bytes(12_000)
_DEADLINE_S = 60.0
_TOPICS = {"fmqp": "on/t", "lightmq": "up"}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker() as process:
        yield process


@pytest.fixture(params=[False, True], ids=["", "reconnect"])
def reconnect(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.parametrize("scheme", _TOPICS)
def test_blocking(running: BrokerProcess, scheme: str, reconnect: bool) -> None:
    began = time.monotonic()
    with connect(running.urls[scheme], reconnect=reconnect, timeout_s=_DEADLINE_S) as client:
        for _ in range(_MESSAGES):
            client.publish(_TOPICS[scheme], _PAYLOAD)
        client.sync()
    assert time.monotonic() - began < _DEADLINE_S


@pytest.mark.parametrize("scheme", _TOPICS)
def test_asyncio(running: BrokerProcess, scheme: str, reconnect: bool) -> None:
    async def main() -> None:
        url = running.urls[scheme]
        async with connect_async(url, reconnect=reconnect, timeout_s=_DEADLINE_S) as client:
            for _ in range(_MESSAGES):
                await client.publish(_TOPICS[scheme], _PAYLOAD)
            await client.sync()

    began = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - began < _DEADLINE_S
