"""The JavaScript client, in Node, against a real broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client_js.node import CLIENT, run_tests
from tests.host_broker.net.answering_board import answering
from tests.host_broker.net.broker_process import BrokerProcess, broker

_LIVE = CLIENT / "tests" / "live" / "broker.test.js"


@pytest.fixture(scope="module", params=["memory", "journal"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    kept: list[str | Path] = []
    if request.param == "journal":
        kept = ["--data", tmp_path_factory.mktemp("data")]
    with broker("--listen", "auto://127.0.0.1:0", *map(str, kept)) as process:
        yield process


def test_with_a_broker(running: BrokerProcess) -> None:
    address = f"127.0.0.1:{running.ports['auto']}"
    with answering(f"lightmq://{address}/board", lambda data: data[::-1]):
        count = run_tests(str(_LIVE), MOTEMQ_URL=f"umq://{address}", MOTEMQ_BOARD="board")
    assert count >= 15
