"""A FragmentClient whose window is full, by both drivers; over a stream in memory.

The last argument is the driver: sync or aio. A file of its own, as it is much for a small heap.
"""

# First: to compile it takes more in one piece than a small heap has once it is in use.
import umotemq.micromsg2  # noqa: F401

# isort: split
from checks import Memory, check, equal, run
from drivers import Driver, to_end
from micromsg2_peer import answers

from umotemq.fragments import FragmentClient

_SOON_MS = 3000


@check
def a_message_beyond_the_window_waits():
    async def main():
        stream = Memory()
        heard = []
        stream.answer = answers(stream, heard)
        client = FragmentClient(stream, name=b"n", window=3, keepalive_ms=60000, message_size=0)
        async with Driver(client) as link:
            await link.connect(_SOON_MS)
            for n in range(40):
                await link.publish(b"m", b"%d" % n)
            await link.until(lambda: client._pong == client._ping, _SOON_MS)
        found = [(each[1], int(each[3])) for each in heard if each[2:3] == (b"topic/m",)]
        equal(found, [(2 + n, n) for n in range(40)])

    to_end(main())


run()
