"""The same checks on CPython, on MicroPython from source, and from the .mpy a board gets."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client_upy.interpreters import (
    Begun,
    Interpreter,
    begun,
    judged,
    micropython_wrapping,
)

# Over streams in memory; over scripted drivers; the wire contract.
_NAMES = [
    "topic",
    "fmqp",
    "fmqp_alike",
    "batch",
    "fmqp_peer",
    "lightmq",
    "lightmq_peer",
    "micromsg2",
    "micromsg2_peer",
    "fragments",
    "link",
    "outage",
    "store",
    "store_count",
    "aio_waits",
]
_DRIVERS = ["uart", "wifi"]
# By either driver.
_DRIVEN = [
    (name, driver)
    for name in (
        *("recovery", "misuse", "confirm", "confirm_order", "confirm_micromsg2"),
        *("fragments_window", "peers"),
    )
    for driver in ("sync", "aio")
]
_VECTORS = ["vectors_fmqp", "vectors_lightmq", "vectors_micromsg2", "vectors_link"]


@pytest.fixture(scope="module")
def runs(interpreter: Interpreter, vectors: dict[str, str]) -> Iterator[Begun]:
    wire = [(name, vectors[name.removeprefix("vectors_")]) for name in _VECTORS]
    # The longest first.
    named = [(name,) for name in reversed(_NAMES + _DRIVERS)]
    with begun(interpreter, [*_DRIVEN, *named, *wire]) as runs:
        yield {run if run in _DRIVEN else run[:1]: result for run, result in runs.items()}


@pytest.mark.parametrize("name", _NAMES + _DRIVERS + _VECTORS)
def test_checks(runs: Begun, name: str) -> None:
    judged(*runs[name,].result())


@pytest.mark.parametrize("run", _DRIVEN, ids="-".join)
def test_driven_checks(runs: Begun, run: tuple[str, ...]) -> None:
    judged(*runs[run].result())


# Those that wait, or have somebody wait.
_TIMED = [
    *((name, "sync") for name in ("recovery", "confirm", "peers")),
    *((name,) for name in ("link", "fmqp_peer", "lightmq_peer", "micromsg2_peer", "outage")),
]


def test_ticks_may_start_again(unix32_port: Path, board_files: Path) -> None:
    """As after 12 days: in the middle of each check, 50 ms after its beginning."""
    with begun(micropython_wrapping(unix32_port, board_files / "lib"), _TIMED) as runs:
        for run in _TIMED:
            judged(*runs[run].result())
