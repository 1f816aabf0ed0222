"""Connections from which nothing comes are found step by step, however many there are."""

import asyncio
from typing import cast

from host_broker.net.connection.connection import Connection
from host_broker.net.connection.idle_timeout import _AT_ONCE, IdleTimeout
from host_broker.outputs import Close

_COUNT = 10_000
_WITHIN_S = 30.0


class Peer:
    """What is looked at of a connection; counts the looks at all."""

    on_hold = False
    looks = 0

    def __init__(self, number: int, protocol: str = "fmqp") -> None:
        self.id = number
        self.protocol = protocol
        self._heard = False

    @property
    def heard(self) -> bool:
        Peer.looks += 1
        return self._heard

    @heard.setter
    def heard(self, value: bool) -> None:
        self._heard = value


def test_a_crowd_is_looked_at_in_steps() -> None:
    """Each of the silent is closed once; who speaks, leaves or speaks something else is not."""
    peers = {number: Peer(number) for number in range(_COUNT)}
    peers[7].protocol = "lightmq"
    closed: list[Close] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()
        connections = cast(dict[int, Connection], peers)
        IdleTimeout(connections, "fmqp", 0.004, closed.append).start(loop)
        most = 0
        async with asyncio.timeout(_WITHIN_S):
            while len(closed) < _COUNT - 3:
                before = Peer.looks
                await asyncio.sleep(0)
                most = max(most, Peer.looks - before)
                peers[_COUNT - 1].heard = True
                if Peer.looks > _COUNT // 2:
                    peers.pop(_COUNT - 2, None)  # while it is about to be looked at
        return most

    assert asyncio.run(main()) <= _AT_ONCE
    assert Peer.looks > 3 * _COUNT
    assert [each.connection for each in closed] == [n for n in range(_COUNT - 2) if n != 7]
