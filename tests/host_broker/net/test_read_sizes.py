"""How much one read asks for: much of those who are cheap, little of those who are not."""

import asyncio
import socket
import time

import pytest

from host_broker.net.connection.poller import Poller, event_loop
from host_broker.net.connection.stream import Stream

_SHORT = 16 * 1024
_LONG = 256 * 1024
_TOTAL = 1024 * 1024


class _Reader(asyncio.Protocol):
    """Takes ``cost_s`` for every 16 KiB."""

    def __init__(self, cost_s: float) -> None:
        self.sizes: list[int] = []
        self._cost_s = cost_s
        self._done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.sizes.append(len(data))
        busy_until = time.perf_counter() + self._cost_s * len(data) / _SHORT
        while time.perf_counter() < busy_until:
            pass
        if sum(self.sizes) == _TOTAL:
            self._done.set_result(None)

    async def all_read(self) -> None:
        await asyncio.wait_for(self._done, 60.0)


def _sizes(cost_s: float) -> list[int]:
    poller = Poller()
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _LONG)

    async def read() -> list[int]:
        loop = asyncio.get_running_loop()
        reader = _Reader(cost_s)
        stream = Stream(ours, reader, poller, loop)
        sending = asyncio.ensure_future(loop.sock_sendall(theirs, bytes(_TOTAL)))
        stream.start()
        await reader.all_read()
        await sending
        stream.abort()
        await asyncio.sleep(0)
        return reader.sizes

    loop = event_loop(poller)
    try:
        with theirs:
            return loop.run_until_complete(read())
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("cost_s", "longest"),
    [
        (0.0, _LONG),
        (0.0025, 5 * _SHORT),  # 10 ms are worth four; the clock may be kind to one
        (0.02, _SHORT),
    ],
)
def test_a_read_costs_others_ten_milliseconds_of_waiting(cost_s: float, longest: int) -> None:
    sizes = _sizes(cost_s)
    assert max(sizes) <= longest
    assert sizes[0] <= _SHORT  # nothing is known of it yet
    if not cost_s:
        assert max(sizes) > 4 * _SHORT
