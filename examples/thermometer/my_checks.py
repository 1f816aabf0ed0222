"""Checks for ``motemq rig run --checks my_checks.py``, which reports them as its own."""

import json
from pathlib import Path

APP = Path(__file__).parent / "app"
LONG_S = 60  # for a busy machine; a board takes a second


def check_temperature(board):
    """The thermometer starts after a reset and publishes what it measures."""
    config = {"name": board.plan.id, "broker": board.broker}
    topic = f"rooms/{board.plan.id}/temperature"
    with board.observe(topic) as heard, board.app() as app:
        app.install(APP, {"config.json": json.dumps(config)})
        app.reset()
        app.expect("thermometer started", timeout_s=LONG_S)
        assert heard.wait_for(len, LONG_S), "no temperature came"
        assert heard.seen()[0].text == "21.5"
