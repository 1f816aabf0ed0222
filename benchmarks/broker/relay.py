"""A relay that copies bytes and does nothing else: the limit of one CPython process.

``python -m benchmarks.broker.relay PORT [CERTIFICATE KEY | FILE]``; with a certificate it speaks
TLS, with a file it also has a thread that appends to it what was relayed, which is the least that
any journal does. A client's first two bytes are its room and its part: 1 listens, and is answered
``ok``; 0 talks, and all bytes of it go to all who listen in its room.

No event loop but epoll, one buffer per room, and one write per listener and turn. Writes block: the
load generator reads always. With asyncio it was slower.
"""

import contextlib
import os
import queue
import select
import socket
import ssl
import sys
import threading

# Sent when half full, so a read may always return 256 KiB.
_ROOM_BYTES = 512 * 1024
_BACKLOG = 1024
_MOST_WAITING = 32  # buffers that are not yet in the file


class _File:
    """Appends to a file, in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._handed_over: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._room = threading.Semaphore(_MOST_WAITING)
        threading.Thread(target=self._work, daemon=True).start()

    def add(self, data: memoryview) -> None:
        """Have a copy of this written; waits while too much is not."""
        self._room.acquire()
        self._handed_over.put(bytes(data))

    def clear(self) -> None:
        """Forget what was written: the next measurement needs the disk."""
        os.ftruncate(self._fd, 0)

    def _work(self) -> None:
        while True:
            data = memoryview(self._handed_over.get())
            while data:
                data = data[os.write(self._fd, data) :]
            self._room.release()


class _Room:
    def __init__(self, file: _File | None) -> None:
        self.listeners: list[socket.socket] = []
        self.buffer = memoryview(bytearray(_ROOM_BYTES))
        self.filled = 0
        self._file = file

    def flush(self) -> None:
        data, self.filled = self.buffer[: self.filled], 0
        for listener in self.listeners:
            with contextlib.suppress(ConnectionError):  # its reads will tell that it is gone
                listener.sendall(data)
        if self._file is not None:
            self._file.add(data)


def _introduced(
    listening: socket.socket,
    context: ssl.SSLContext | None,
    rooms: dict[int, _Room],
    file: _File | None,
) -> tuple[socket.socket, _Room] | None:
    client, _ = listening.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    who = b""
    with contextlib.suppress(OSError):
        if context is not None:
            client = context.wrap_socket(client, server_side=True)
        who = client.recv(2)
    if len(who) < 2:  # somebody who only looked whether the port is open
        client.close()
        return None
    room = rooms.setdefault(who[0], _Room(file))
    if who[1]:
        room.listeners.append(client)
        client.sendall(b"ok")
    return client, room


def _take(client: socket.socket, room: _Room) -> bool:
    """Read what is there; False when the client has gone."""
    while True:
        try:
            size = client.recv_into(room.buffer[room.filled :])
        except ConnectionError:
            return False
        if not size:
            return False
        room.filled += size
        if room.filled > _ROOM_BYTES // 2:
            room.flush()
        # TLS: bytes that were decrypted already, of which epoll knows nothing.
        if not (isinstance(client, ssl.SSLSocket) and client.pending()):
            return True


def _serve(listening: socket.socket, context: ssl.SSLContext | None, file: _File | None) -> None:
    rooms: dict[int, _Room] = {}
    clients: dict[int, tuple[socket.socket, _Room]] = {}
    poll = select.epoll()
    poll.register(listening, select.EPOLLIN)
    while True:
        dirty = set()
        for fd, _ in poll.poll():
            if fd not in clients:
                if (introduced := _introduced(listening, context, rooms, file)) is not None:
                    clients[introduced[0].fileno()] = introduced
                    poll.register(introduced[0], select.EPOLLIN)
                continue
            client, room = clients[fd]
            dirty.add(room)
            if not _take(client, room):
                if client in room.listeners:
                    room.listeners.remove(client)
                poll.unregister(fd)
                del clients[fd]
                client.close()
        for room in dirty:
            room.flush()
        if file is not None and not clients:
            file.clear()


def main(port: int, certificate: tuple[str, str] | None, path: str | None) -> None:
    """Serve on a loopback port until killed."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    with socket.create_server(("127.0.0.1", port), backlog=_BACKLOG) as listening:
        _serve(listening, context, None if path is None else _File(path))


if __name__ == "__main__":
    files = (sys.argv[2], sys.argv[3]) if len(sys.argv) > 3 else None
    main(int(sys.argv[1]), files, sys.argv[2] if len(sys.argv) == 3 else None)
