"""The interpreter's terminal, with another program on it."""

import selectors
import sys
import time
from pathlib import Path

from boards.virtual.esp32.console import Console

_END_S = 30.0
_TYPED = bytes(range(256)) * 40  # more than the terminal holds, with byte 3 all over

# Tells when its terminal is full; reads all as soon as it may, and says it again.
_PROGRAM = f"""
import fcntl, os, struct, termios, time
def waiting():
    return struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, bytes(4)))[0]
while waiting() < 4095:
    time.sleep(0.01)
os.write(1, b"full")
while not os.path.exists("read"):
    time.sleep(0.01)
left = {len(_TYPED)}
while left:
    data = os.read(0, left)
    os.write(1, data)
    left -= len(data)
time.sleep({_END_S})
"""


def test_where_ctrl_c_is_a_byte_nothing_is_lost_for_it(tmp_path: Path) -> None:
    heard = bytearray()
    selector = selectors.DefaultSelector()
    console = Console(selector, heard.extend)

    def hear(count: int) -> None:
        deadline = time.monotonic() + _END_S
        while len(heard) < count and time.monotonic() < deadline:
            for key, events in selector.select(0.1):
                key.data(events)

    try:
        console.start([sys.executable, "-c", _PROGRAM], tmp_path)
        console.write(_TYPED[:5000])
        hear(4)
        assert heard == b"full"
        console.write(_TYPED[5000:])
        (tmp_path / "read").touch()
        hear(4 + len(_TYPED))
    finally:
        console.close()
        selector.close()
    assert heard == b"full" + _TYPED
