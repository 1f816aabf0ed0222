"""A relay that copies bytes and does nothing else: the limit of one asyncio process.

``python -m benchmarks.broker.relay PORT``. A client's first two bytes are its room and its part:
1 listens, and is answered ``ok``; 0 talks, and every read of it goes to all who listen in its room.
"""

import asyncio
import socket
import sys
from typing import cast


class _Peer(asyncio.Protocol):
    def __init__(self, rooms: dict[int, list[asyncio.Transport]]) -> None:
        self._rooms = rooms
        self._listeners: list[asyncio.Transport] | None = None
        self._talkers: set[_Peer] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport.set_write_buffer_limits(4 * 1024 * 1024, 1024 * 1024)

    def data_received(self, data: bytes) -> None:
        if self._listeners is None:
            room = self._rooms.setdefault(data[0], [])
            if data[1]:
                room.append(self._transport)
                self._transport.write(b"ok")
            self._listeners = room
            data = data[2:]
        if data:
            for listener in self._listeners:
                listener.write(data)
                if listener.get_write_buffer_size() > 4 * 1024 * 1024:
                    peer = cast(_Peer, listener.get_protocol())
                    peer._talkers.add(self)
                    self._transport.pause_reading()

    def resume_writing(self) -> None:
        talkers, self._talkers = self._talkers, set()
        for talker in talkers:
            if not talker._transport.is_closing():
                talker._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._listeners is not None and self._transport in self._listeners:
            self._listeners.remove(self._transport)
        self.resume_writing()


async def _serve(port: int) -> None:
    rooms: dict[int, list[asyncio.Transport]] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Peer(rooms), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
