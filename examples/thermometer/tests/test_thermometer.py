"""The thermometer on a board: what it says on its console, and what arrives at the broker."""

import json
from pathlib import Path

import pytest

APP = Path(__file__).parents[1] / "app"
LONG_S = 60  # for a busy machine; a board takes a second


@pytest.fixture
def board(rig_board, rig_faults):
    """A board that has just started, and finds its broker through the faults."""
    config = {"name": "kitchen", "broker": rig_faults.fmqp}
    rig_board.install(APP, {"config.json": json.dumps(config)})
    rig_board.reset()
    rig_board.expect("thermometer started", timeout_s=LONG_S)
    return rig_board


def test_it_publishes_the_temperature(board, rig_broker, rig_measure):
    temperatures = rig_broker.subscribe("rooms/kitchen/temperature")
    message = temperatures.receive(LONG_S)
    assert message is not None
    assert message.payload == b"21.5"
    free = board.exec("import gc; gc.collect(); print(gc.mem_free())")
    rig_measure("heap_free", int(free), "bytes")


def test_it_takes_another_period(board, rig_broker):
    board.expect("link up", timeout_s=LONG_S)
    rig_broker.publish("rooms/kitchen/period", "often")
    board.expect("no period: b'often'", timeout_s=LONG_S)
    rig_broker.publish("rooms/kitchen/period", "50")
    assert board.expect(r"every (\d+) ms", timeout_s=LONG_S)[1] == "50"


def test_it_is_back_after_its_connection_was_cut(board, rig_broker, rig_faults):
    board.expect("link up", timeout_s=LONG_S)  # or the status is that of the test before
    status = rig_broker.subscribe("rooms/kitchen/status")
    until(status, b"online")
    assert rig_faults.cut() >= 1
    until(status, b"offline")  # its last will
    until(status, b"online")


def test_it_starts_again_when_its_power_is_back(board):
    board.power(on=False)
    board.power(on=True)
    board.expect("thermometer started", timeout_s=LONG_S)


def test_degrees(board):
    code = "from thermometer import degrees; print([degrees(t) for t in (215, -5, 0)])"
    assert board.exec(code).strip() == "['21.5', '-0.5', '0.0']"


def until(subscription, payload):
    """Wait for a message with this payload; others may come before."""
    heard = []
    while message := subscription.receive(LONG_S):
        if message.payload == payload:
            return
        heard.append(message.payload)
    raise AssertionError(f"{payload} did not come, but {heard}")
