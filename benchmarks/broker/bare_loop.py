"""The least that a CPython process between two sockets can do: wait, read, write.

``python -m benchmarks.broker.bare_loop PORT``; clients introduce themselves as the relay's do. It
serves one who talks and one who listens, and no table of clients, buffer or byte is looked at:
whatever a CPython broker does for a message comes on top of this.
"""

import contextlib
import gc
import select
import socket
import sys

_READ_BYTES = 16 * 1024


def main(port: int) -> None:
    """Serve pairs of clients on a loopback port, one after the other, until killed."""
    gc.disable()
    with socket.create_server(("127.0.0.1", port)) as listening:
        while True:
            talker, listener = _pair(listening)
            with talker, listener, contextlib.suppress(ConnectionError):
                _copy(talker, listener)


def _pair(listening: socket.socket) -> tuple[socket.socket, socket.socket]:
    """Accept clients until there is one of each kind."""
    parts: dict[int, socket.socket] = {}
    while len(parts) < 2:
        client, _ = listening.accept()
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who = client.recv(2)
        if len(who) < 2:  # somebody who only looked whether the port is open
            client.close()
            continue
        parts[who[1]] = client
        if who[1]:
            client.sendall(b"ok")
    return parts[0], parts[1]


def _copy(talker: socket.socket, listener: socket.socket) -> None:
    waiting = select.epoll()
    waiting.register(talker, select.EPOLLIN)
    wait, read, write = waiting.poll, talker.recv, listener.sendall
    with waiting:
        while wait() and (data := read(_READ_BYTES)):
            write(data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
