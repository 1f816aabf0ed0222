"""Lanes by themselves, and real sockets."""

import os
import select
import socket

from host_broker.net._lanes import Lanes

MAX_BODY = 10_000
WAIT_S = 0.05


class Desk:
    """Lanes, and sockets that they know the other ends of."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.lanes = Lanes(self.epoll.fileno(), MAX_BODY)
        self.ours: dict[int, socket.socket] = {}
        self.peers: dict[int, socket.socket] = {}

    def open(self, wanted_fd: int = 0) -> int:
        """Return our end's file number."""
        ours, peer = socket.socketpair()
        if wanted_fd:
            os.dup2(ours.fileno(), wanted_fd)
            ours.close()
            ours = socket.socket(fileno=wanted_fd)
        ours.setblocking(False)
        peer.settimeout(10)
        self.epoll.register(ours, select.EPOLLIN)
        self.ours[ours.fileno()], self.peers[ours.fileno()] = ours, peer
        return ours.fileno()

    def close(self) -> None:
        for each in (*self.ours.values(), *self.peers.values()):
            each.close()
        self.epoll.close()


def handed(desk: Desk) -> bytes | None:
    return desk.lanes.data


def silent(peer: socket.socket) -> bool:
    """Whether nothing was sent to it, or everything is read."""
    return not select.select([peer], [], [], 0)[0]
