"""Without power nothing runs; what is in flash is there when it is back."""

import time
from collections.abc import Callable

import pytest

from boards.virtual.board import BoardError, VirtualBoard

Tool = Callable[..., str]


def test_the_power_is_cut_and_comes_back(running: VirtualBoard, mpremote: Tool) -> None:
    mpremote(running, "exec", "with open('kept.txt', 'w') as f: f.write('still here')")
    boots = running.control.state()["boots"]
    running.control.power(on=False)
    assert running.control.state() == {"state": "held", "boots": boots}
    with pytest.raises(BoardError, match="no power"):
        running.control.reset()
    with pytest.raises(BoardError, match="no power"):
        running.control.boot()
    running.control.power(on=True)
    until = time.monotonic() + 60
    while running.control.state() != {"state": "running", "boots": boots + 1}:
        assert time.monotonic() < until
        time.sleep(0.02)
    code = "import machine; print(open('kept.txt').read(), machine.reset_cause())"
    assert mpremote(running, "resume", "exec", code).split() == ["still", "here", "1"]
