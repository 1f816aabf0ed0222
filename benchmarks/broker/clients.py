"""Raw client sockets: connected, introduced and subscribed when they are handed out."""

import contextlib
import socket
import ssl
from collections.abc import Iterator

from benchmarks.broker.peers import Peer, PeerFailed, Running
from benchmarks.broker.workloads import Traffic

STALL_S = 10.0  # without a byte for this long, what is missing counts as lost
# What a publisher may have under way in its kernel. Without a limit that grows to megabytes, and
# those of eight publishers keep mosquitto busy for 15 s when all is sent. Nobody is slower with it.
_SEND_BUFFER_BYTES = 128 * 1024
# One cipher for all, so that nobody wins by another choice. TLS 1.2, because Python 3.11 cannot
# choose those of 1.3; a record costs the same.
_CIPHER = "ECDHE-ECDSA-AES128-GCM-SHA256"
# What a socket that does not block says when it would.
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


def publisher(peer: Peer, broker: Running, room: int = 0) -> socket.socket:
    """Return a connected client that may publish."""
    client = _introduced(peer, broker, [(peer.wire.hello(room), peer.wire.greeting)])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
    return client


def subscriber(
    peer: Peer, broker: Running, topics: tuple[str, ...], room: int = 0
) -> socket.socket:
    """Return a client whose subscriptions are active."""
    wire = peer.hearing
    words = [(wire.hello(room), wire.greeting)] if wire.greeting else []
    return _introduced(peer, broker, [*words, wire.subscribe(topics, room)])


@contextlib.contextmanager
def clients(
    peer: Peer, broker: Running, traffic: Traffic
) -> Iterator[tuple[list[socket.socket], list[socket.socket]]]:
    """Open a workload's subscribers, then its publishers; all of them do not block."""
    with contextlib.ExitStack() as stack:
        subscribers, publishers = [], []
        for number, topics in enumerate(traffic.subscribers):
            client = subscriber(peer, broker, topics, number % traffic.rooms)
            subscribers.append(stack.enter_context(client))
        for number in range(len(traffic.publishers)):
            client = publisher(peer, broker, number % traffic.rooms)
            publishers.append(stack.enter_context(client))
        for client in [*subscribers, *publishers]:
            client.setblocking(False)
        yield publishers, subscribers


def _introduced(peer: Peer, broker: Running, words: list[tuple[bytes, bytes]]) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", broker.port), STALL_S)
    try:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if broker.certificate is not None:
            _hear(peer, client, peer.wire.before_tls)
            client = _tls(broker).wrap_socket(client, server_hostname="127.0.0.1")
        for said, answer in words:
            say(peer, client, said, answer)
    except ConnectionError as error:
        client.close()
        raise PeerFailed(f"{peer.name} hung up on a client: {error}") from error
    except BaseException:
        client.close()
        raise
    return client


def say(peer: Peer, client: socket.socket, words: bytes, answer: bytes) -> None:
    """Send words and wait until what is heard ends with the answer. Raises ``PeerFailed``."""
    client.sendall(words)
    _hear(peer, client, answer)


def _tls(broker: Running) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=broker.certificate)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHER)
    return context


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
