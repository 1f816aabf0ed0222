"""The clients and the real broker, also where connections are cut and FMQP is carried."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.client_upy.interpreters import (
    Begun,
    Interpreter,
    begun,
    judged,
    micropython_32,
    run_checks,
)

_NAMES = [
    "broker",
    "chunks",
    "aio",
    "aio_handlers",
    "aio_loss",
    "broker_micromsg2",
    "aio_micromsg2",
    "aio_queues",
]


@pytest.fixture(scope="module")
def runs(interpreter: Interpreter, broker_ports: str) -> Iterator[Begun]:
    with begun(interpreter, [(name, broker_ports) for name in _NAMES]) as runs:
        yield {run[:1]: result for run, result in runs.items()}


@pytest.mark.parametrize("name", _NAMES)
def test_client_and_broker(runs: Begun, name: str) -> None:
    judged(*runs[name,].result())


def test_a_long_life_leaves_nothing_behind(
    unix32_port: Path, board_files: Path, broker_ports: str, say: Callable[[str], None]
) -> None:
    text = run_checks(micropython_32(unix32_port, board_files / "lib"), "soak", broker_ports)
    figures = [line for line in text.splitlines() if line.startswith("soak: ")]
    assert len(figures) == 1
    say(figures[0])
