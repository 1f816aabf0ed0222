"""Measure one broker once: one publisher, one subscriber, one topic, everything delivered."""

import socket
import threading
import time

from benchmarks.peers import Peer

_TIMEOUT_S = 60.0
_WRITE_BYTES = 64 * 1024


def _client(peer: Peer, port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), _TIMEOUT_S)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _say(client, peer.hello, peer.greeting)
    return client


def _say(client: socket.socket, words: bytes, answer: bytes) -> None:
    client.sendall(words)
    heard = b""
    while answer and not heard.endswith(answer):
        heard += _more(client, 4096)


def _more(client: socket.socket, size: int) -> bytes:
    data = client.recv(size)
    if not data:
        raise ConnectionError("the broker closed the connection")
    return data


def messages_per_second(peer: Peer, port: int, payload_bytes: int, count: int) -> float:
    """Publish ``count`` messages as fast as the broker takes them; return the delivered rate.

    Counts from the first byte sent to the last byte received by the subscriber. Raises
    ``OSError`` if the broker closes or stalls for 60 s, so that a dropped message is no result.
    """
    payload = b"x" * payload_bytes
    # A one-message round trip first: the subscription is then known to be active everywhere.
    subscriber, publisher = _client(peer, port), _client(peer, port)
    with subscriber, publisher:
        _say(subscriber, peer.subscribe, peer.subscribed)
        _until_delivered(peer, publisher, subscriber, payload)
        publication = peer.publication(payload)
        per_write = max(1, _WRITE_BYTES // len(publication))
        writes = count // per_write
        sender = threading.Thread(
            target=_publish, args=(publisher, publication * per_write, writes)
        )
        expected = writes * per_write * len(peer.delivery(payload))
        started = time.perf_counter()
        sender.start()
        _receive(subscriber, expected)
        elapsed = time.perf_counter() - started
        sender.join(_TIMEOUT_S)
    return writes * per_write / elapsed


def _until_delivered(
    peer: Peer, publisher: socket.socket, subscriber: socket.socket, payload: bytes
) -> None:
    publisher.sendall(peer.publication(payload))
    subscriber.settimeout(0.2)
    got = 0
    size = len(peer.delivery(payload))
    sent = 1
    while got < size * sent:
        try:
            got += len(_more(subscriber, 4096))
        except TimeoutError:
            # Sent before the subscription was active: once more, and expect one delivery less.
            publisher.sendall(peer.publication(payload))
    subscriber.settimeout(_TIMEOUT_S)


def _publish(publisher: socket.socket, block: bytes, writes: int) -> None:
    for _ in range(writes):
        publisher.sendall(block)


def _receive(subscriber: socket.socket, expected: int) -> None:
    buffer = bytearray(256 * 1024)
    while expected > 0:
        got = subscriber.recv_into(buffer)
        if not got:
            raise ConnectionError("the broker closed the subscriber's connection")
        expected -= got
