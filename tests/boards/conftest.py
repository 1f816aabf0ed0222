"""A live broker for boards to talk to."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.boards.rig_process import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "motemq", "broker", "--ephemeral"),
            *("--listen", "fmqp://127.0.0.1:0", "--listen", "lightmq://127.0.0.1:0"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        lines = [process.stdout.readline().split() for _ in range(2)]
        ports = {line[1]: line[2] for line in lines}  # listening PROTOCOL HOST:PORT
        yield Broker(ports["fmqp"], ports["lightmq"])
        process.terminate()
        process.wait(20)
