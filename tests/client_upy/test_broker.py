"""The clients and the real broker, also where connections are cut and FMQP is carried."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client_upy.interpreters import Interpreter, micropython_32, run_checks


@pytest.mark.parametrize("name", ["broker", "chunks", "aio", "aio_loss"])
def test_client_and_broker(interpreter: Interpreter, broker_ports: str, name: str) -> None:
    run_checks(interpreter, name, broker_ports)


def test_a_long_life_leaves_nothing_behind(
    unix32_port: Path, board_files: Path, broker_ports: str, say: Callable[[str], None]
) -> None:
    text = run_checks(micropython_32(unix32_port, board_files / "lib"), "soak", broker_ports)
    figures = [line for line in text.splitlines() if line.startswith("soak: ")]
    assert len(figures) == 1
    say(figures[0])
