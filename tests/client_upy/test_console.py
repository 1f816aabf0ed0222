"""The console as a transport: whole frames for who reads late, no long wait where nobody does."""

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from pathlib import Path

_S = 60.0
_FULL = 60_000  # bytes in a pipe of 64 KiB: hardly room for another write
_CODE = """\
import sys, time
sys.path.insert(0, {client!r})
from umotemq.console import Console
console = Console()
for size in (64, 200000, 200000):
    start = time.ticks_ms()
    sent = console.write(bytes(size)) or 0
    print(size, sent, time.ticks_diff(time.ticks_ms(), start), file=sys.stderr)
"""


def _waiting(pipe: int) -> int:
    raw = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int(struct.unpack("i", raw)[0])


def test_a_frame_is_whole_for_who_reads_late(unix_port: Path) -> None:
    """On a busy computer a bridge comes a little late; then nothing printed may be in a frame."""
    client = Path(__file__).parents[2] / "client_upy"
    ours, its = os.pipe()
    with subprocess.Popen(
        [unix_port, "-c", _CODE.format(client=str(client))],
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(its)
        try:
            _read_late(process, ours)
        finally:
            process.kill()
            os.close(ours)


def _read_late(process: "subprocess.Popen[str]", ours: int) -> None:
    assert process.stderr is not None
    assert process.stderr.readline().split()[:2] == ["64", "64"]
    until = time.monotonic() + _S
    while _waiting(ours) < _FULL:
        assert time.monotonic() < until
        time.sleep(0.005)
    time.sleep(0.1)  # so late we are
    got = 0
    while got < 200_064 and select.select([ours], [], [], _S)[0]:
        data = os.read(ours, 65536)
        assert data, f"it has ended after {got} bytes"
        got += len(data)
    assert process.stderr.readline().split()[:2] == ["200000", "200000"]
    # From here on nobody reads: what has begun is given up, after half a second at most.
    _, cut, took_ms = map(int, process.stderr.readline().split())
    assert 0 < cut < 200_000 and took_ms < 5_000
