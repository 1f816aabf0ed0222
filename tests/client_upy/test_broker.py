"""The clients and the real broker, also where connections are cut and FMQP is carried."""

from collections.abc import Iterator

import pytest

from tests.client_upy.broker_side import BrokerSide
from tests.client_upy.interpreters import Interpreter, run_checks


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A file with the ports of a running broker and of what stands before it."""
    with BrokerSide() as side:
        yield str(side.written_to(tmp_path_factory.mktemp("broker") / "ports.json"))


@pytest.mark.parametrize("name", ["broker", "aio", "aio_loss"])
def test_client_and_broker(interpreter: Interpreter, ports: str, name: str) -> None:
    run_checks(interpreter, name, ports)
