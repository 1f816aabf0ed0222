"""The same checks on CPython, on MicroPython from source, and from the .mpy a board gets."""

import pytest

from tests.client_upy.interpreters import Interpreter, run_checks


@pytest.mark.parametrize(
    "name", ["topic", "fmqp", "fmqp_peer", "lightmq", "lightmq_peer", "link", "outage"]
)
def test_client_over_memory(interpreter: Interpreter, name: str) -> None:
    run_checks(interpreter, name)


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_vectors(interpreter: Interpreter, protocol: str, vectors: dict[str, str]) -> None:
    run_checks(interpreter, f"vectors_{protocol}", vectors[protocol])


@pytest.mark.parametrize("name", ["uart", "wifi"])
def test_scripted_driver(interpreter: Interpreter, name: str) -> None:
    run_checks(interpreter, name)
