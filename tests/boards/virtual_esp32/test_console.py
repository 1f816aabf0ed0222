"""The interpreter's terminal, with another program on it."""

import selectors
import time
from pathlib import Path

from boards.virtual.esp32.console import Console

_END_S = 20.0


def test_where_ctrl_c_is_a_byte_nothing_is_lost_for_it(tmp_path: Path) -> None:
    typed = bytes(range(256)) * 40  # more than the terminal holds
    heard = bytearray()
    selector = selectors.DefaultSelector()
    console = Console(selector, heard.extend)
    try:
        for start in range(0, len(typed), 1000):
            console.write(typed[start : start + 1000])
        console.start(["/usr/bin/head", "-c", str(len(typed))], tmp_path)
        deadline = time.monotonic() + _END_S
        while len(heard) < len(typed) and time.monotonic() < deadline:
            for key, events in selector.select(0.1):
                key.data(events)
    finally:
        console.close()
        selector.close()
    assert heard == typed
