"""Raw client sockets: connected, introduced and subscribed when they are handed out."""

import contextlib
import socket
from collections.abc import Iterator

from benchmarks.broker.peers import Peer, PeerFailed
from benchmarks.broker.workloads import Traffic

STALL_S = 10.0  # without a byte for this long, what is missing counts as lost


def publisher(peer: Peer, port: int, room: int = 0) -> socket.socket:
    """Return a connected client that may publish."""
    return _introduced(peer, port, [(peer.wire.hello(room), peer.wire.greeting)])


def subscriber(peer: Peer, port: int, topics: tuple[str, ...], room: int = 0) -> socket.socket:
    """Return a client whose subscriptions are active."""
    words = [(peer.wire.hello(room), peer.wire.greeting)] if peer.wire.greeting else []
    return _introduced(peer, port, [*words, peer.wire.subscribe(topics, room)])


@contextlib.contextmanager
def clients(
    peer: Peer, port: int, traffic: Traffic
) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Open a workload's subscribers, then its publishers; all of them do not block."""
    with contextlib.ExitStack() as stack:
        subscribers, publishers = [], []
        for number, topics in enumerate(traffic.subscribers):
            client = subscriber(peer, port, topics, number % traffic.rooms)
            subscribers.append(stack.enter_context(client))
        for number in range(len(traffic.publishers)):
            client = publisher(peer, port, number % traffic.rooms)
            publishers.append(stack.enter_context(client))
        for client in [*subscribers, *publishers]:
            client.setblocking(False)
        yield publishers, subscribers


def _introduced(peer: Peer, port: int, words: list[tuple[bytes, bytes]]) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), STALL_S)
    try:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for said, answer in words:
            client.sendall(said)
            _hear(peer, client, answer)
    except BaseException:
        client.close()
        raise
    return client


def _hear(peer: Peer, client: socket.socket, answer: bytes) -> None:
    heard = b""
    while answer and not heard.endswith(answer):
        try:
            data = client.recv(4096)
        except TimeoutError:
            raise PeerFailed(f"{peer.name} did not answer a client within {STALL_S:g} s") from None
        if not data:
            raise PeerFailed(f"{peer.name} hung up on a client that introduced itself")
        heard += data
