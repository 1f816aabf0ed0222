"""Hostile clients, a process each: ``python -m tests.host_broker.net.attacks NAME PORT``.

Ends by itself and says on stdout, as JSON, what was sent. Loopback only.

Why so long: fifteen attacks of a paragraph each, none of which is an idea of its own.
"""

import contextlib
import json
import random
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator

GIB = 1024 * 1024 * 1024
_CHUNK = 1024 * 1024
_PATIENCE_S = 60.0  # for one send; a broker that stops reading for longer has hung
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST
_RANDOM = random.Random(53)


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)


def _reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    sock.close()


def _packet(flags: int, topic: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">BBI", flags, len(topic), len(body)) + topic + body


def _sync(sock: socket.socket, own: bytes) -> None:
    """Wait until the broker has read all that was sent: it sends back what comes last.

    What a flood was answered meanwhile is read away, so that the broker need not keep it.
    """
    last = _packet(0, own, own)
    sock.sendall(_packet(0x90, own) + last)
    tail = b""
    while not tail.endswith(last):
        chunk = sock.recv(_CHUNK)
        assert chunk, "disconnected"
        tail = (tail + chunk)[-len(last) :]


def _one_connection(port: int, chunk: bytes, total: int) -> Iterator[tuple[str, int]]:
    with _connected(port) as sock:
        sent = 0
        while sent < total:
            sock.sendall(chunk)
            sent += len(chunk)
        yield "bytes", sent
        _sync(sock, b"own")
        yield "still connected", 1


def zeros(port: int) -> Iterator[tuple[str, int]]:
    """1 GiB of zeros: 179 million packets with an empty topic."""
    return _one_connection(port, bytes(6 * (_CHUNK // 6)), GIB)


def empties(port: int) -> Iterator[tuple[str, int]]:
    """1 GiB of publications without a body."""
    packet = _packet(0, b"t" * 10)
    return _one_connection(port, packet * (_CHUNK // len(packet)), GIB)


def garbage(port: int) -> Iterator[tuple[str, int]]:
    """1 GiB of random bytes. Most lengths in them are such that the broker hangs up (A11), so it
    takes many connections: a new one whenever the last was reset."""
    noise = _RANDOM.randbytes(8 * _CHUNK)
    sent = connections = 0
    while sent < GIB:
        place = _RANDOM.randrange(7 * _CHUNK)
        with _connected(port) as sock, contextlib.suppress(ConnectionError):
            connections += 1
            while sent < GIB:
                sent += sock.send(memoryview(noise)[place : place + _CHUNK])
    yield "bytes", sent
    yield "connections", connections


def framed_garbage(port: int) -> Iterator[tuple[str, int]]:
    """1 GiB of random packets whose lengths are believable and whose topics are none."""
    packets = bytearray()
    while len(packets) < 8 * _CHUNK:
        topic = _RANDOM.randbytes(_RANDOM.randrange(255)) + b"\xff"
        body = _RANDOM.randbytes(_RANDOM.randrange(8192))
        packets += _packet(_RANDOM.randrange(256), topic, body)
    return _one_connection(port, bytes(packets), GIB)


def incorrect(port: int) -> Iterator[tuple[str, int]]:
    """Eight connections that send the shortest incorrect packets, no two neighbours equal, as
    fast as they are read, for five seconds."""
    noise = b"".join(_packet(flags % 256, b"") for flags in range(0, 7 * 40_000, 7))
    sockets = [_connected(port) for _ in range(8)]
    for sock in sockets:
        sock.setblocking(False)
        # What the kernel keeps for the broker is still there when we are gone.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
    sent = [0] * len(sockets)
    end = time.monotonic() + 5.0
    while time.monotonic() < end:
        for index, sock in enumerate(sockets):
            with contextlib.suppress(BlockingIOError):
                sent[index] += sock.send(memoryview(noise)[sent[index] % len(noise) :])
        time.sleep(0.002)  # as many as the kernel takes; spinning would only heat the other core
    for sock in sockets:
        sock.send(b"")  # raises if the broker has hung up
        sock.close()
    yield "bytes", sum(sent)
    yield "packets", sum(sent) // 6


def subscriptions(port: int) -> Iterator[tuple[str, int]]:
    """100 000 subscriptions to topics of 255 bytes, by ten connections; then as many by one."""
    with contextlib.ExitStack() as stack:
        for first in range(0, 100_000, 10_000):
            sock = stack.enter_context(_connected(port))
            _subscribe(sock, first, 9_999)
        greedy = stack.enter_context(_connected(port))
        _subscribe(greedy, 1_000_000, 100_000)
        yield "subscriptions", 200_000 - 10


def _subscribe(sock: socket.socket, first: int, count: int) -> None:
    own = b"own%d" % first
    _sync(sock, own)
    topics = (b"%07d" % number + b"t" * 248 for number in range(first, first + count))
    said = b"".join(_packet(0x80, topic) for topic in topics)
    for start in range(0, len(said), _CHUNK):
        sock.sendall(said[start : start + _CHUNK])
    _sync(sock, own)


def drip(port: int) -> Iterator[tuple[str, int]]:
    """300 connections, each of which begins a packet of 64 KiB and sends a byte a second."""
    sockets = [_connected(port) for _ in range(300)]
    start = struct.pack(">BBI", 0, 255, 65536)
    for step in range(8):  # the whole header, and two bytes more
        byte = start[step : step + 1] or b"x"
        for sock in sockets:
            sock.sendall(byte)
        time.sleep(1.0)  # the attack's own pace: nothing is waited for
    for sock in sockets:
        _reset(sock)
    yield "bytes", 8 * len(sockets)


def hoard(port: int) -> Iterator[tuple[str, int]]:
    """1 GiB for the broker to keep: 600 connections with a megabyte that lacks its last byte, and
    30 with 16 last wills of a megabyte, which reset when all is said."""
    body = bytes(_CHUNK - 1)
    unfinished = _packet(0, b"hoard", body + b"x")[:-1]
    will = _packet(0x08, b"hoard", body)
    sockets = [_connected(port) for _ in range(630)]
    for number, sock in enumerate(sockets):
        sock.sendall(unfinished if number < 600 else will * 16)
    for sock in sockets[600:]:
        _sync(sock, b"own")
    for sock in sockets:
        _reset(sock)
    yield "bytes", 600 * len(unfinished) + 30 * 16 * len(will)


def deaf(port: int) -> Iterator[tuple[str, int]]:
    """Twenty connections that subscribe to what they publish, never read, and go on for 3 s."""
    body = _RANDOM.randbytes(1000)
    return _deaf(
        port,
        [_packet(0x80, b"deaf%d" % n) for n in range(20)],
        [_packet(0, b"deaf%d" % n, body) for n in range(20)],
    )


def deaf_boards(port: int) -> Iterator[tuple[str, int]]:
    """Twenty LightMQ connections that send PING and never read PONG, for 3 s."""
    names = (b"board%02d" % n for n in range(20))
    return _deaf(
        port, [b"\x01\x00\x08\x07" + name for name in names], [b"\x03\x00\x02\x00\x07"] * 20
    )


def _deaf(port: int, first: list[bytes], then: list[bytes]) -> Iterator[tuple[str, int]]:
    sockets = [_connected(port) for _ in first]
    for sock, data in zip(sockets, first, strict=True):
        sock.sendall(data)
        sock.setblocking(False)
    floods = [data * (_CHUNK // len(data)) for data in then]
    sent = [0] * len(sockets)
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        for index, sock in enumerate(sockets):
            with contextlib.suppress(BlockingIOError):
                place = sent[index] % len(floods[index])
                sent[index] += sock.send(memoryview(floods[index])[place:])
        time.sleep(0.002)
    for sock in sockets:
        _reset(sock)
    yield "bytes", sum(sent)


def churn(port: int) -> Iterator[tuple[str, int]]:
    """10 000 connections opened and dropped: half with FIN, half with RST."""
    for number in range(10_000):
        sock = _connected(port)
        if number % 2:
            sock.close()
        else:
            _reset(sock)
    yield "connections", 10_000


def half_open(port: int) -> Iterator[tuple[str, int]]:
    """10 000 connections that say half of something, close their half or not, and reset."""
    pieces = [
        b"\x00",
        _packet(0x80, b"half/open")[:-1],
        _packet(0x80, b"half/open"),
        _packet(0x08, b"half/will", b"never whole")[:-1],
        _packet(0, b"half", bytes(100_000))[:60_000],
        _RANDOM.randbytes(3000),
        bytes(5000),
    ]
    for number in range(10_000):
        sock = _connected(port)
        with contextlib.suppress(ConnectionError):
            sock.sendall(pieces[number % len(pieces)])
            if number % 3 == 0:
                sock.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            _reset(sock)
    yield "connections", 10_000


def silent(port: int) -> Iterator[tuple[str, int]]:
    """10 000 connections that never say a word; the broker keeps net.max_unrecognised of them."""
    sockets = [_connected(port) for _ in range(10_000)]
    kept = len(sockets)
    with select.epoll() as poll:
        for sock in sockets:
            poll.register(sock, select.EPOLLIN)
        while kept > 1000:
            ended = poll.poll(_PATIENCE_S, len(sockets))
            assert ended, f"{kept} are kept"
            for fd, _ in ended:
                poll.unregister(fd)
            kept -= len(ended)
    for sock in sockets:
        _reset(sock)
    yield "connections", 10_000
    yield "kept", kept


def unknown(port: int) -> Iterator[tuple[str, int]]:
    """10 000 connections that begin as no protocol does, or as one that is not spoken here."""
    beginnings = [
        b"\xff" * 64,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"GET / HTTP/1.1\r\n\r\n" + bytes(200_000),
        b"AMQP\x00\x00\x09\x01",
        bytes.fromhex("16030102000100"),
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x3c\x00\x00",
    ]
    for number in range(10_000):
        sock = _connected(port)
        with contextlib.suppress(ConnectionError):
            sock.sendall(beginnings[number % len(beginnings)])
            if number % 2:
                while sock.recv(_CHUNK):
                    pass
        with contextlib.suppress(OSError):
            _reset(sock)
    yield "connections", 10_000


def drip_first(port: int) -> Iterator[tuple[str, int]]:
    """500 connections that send a byte a second of what could still become anything."""
    sockets = [_connected(port) for _ in range(500)]
    start = bytes.fromhex("1080010004") + b"MQT"  # one more, and it would be MQTT
    for byte in start:
        for sock in sockets:
            sock.sendall(bytes([byte]))
        time.sleep(1.0)  # the attack's own pace: nothing is waited for
    for sock in sockets:
        _reset(sock)
    yield "bytes", len(start) * len(sockets)


ATTACKS = {
    attack.__name__: attack
    for attack in (
        zeros,
        empties,
        garbage,
        framed_garbage,
        incorrect,
        subscriptions,
        drip,
        hoard,
        deaf,
        deaf_boards,
        churn,
        half_open,
        silent,
        unknown,
        drip_first,
    )
}

LIGHTMQ = {"deaf_boards"}
AUTO = {"silent", "unknown", "drip_first"}  # at a port for all; the others speak FMQP

if __name__ == "__main__":
    began = time.monotonic()
    told: dict[str, float] = dict(ATTACKS[sys.argv[1]](int(sys.argv[2])))
    told["seconds"] = round(time.monotonic() - began, 2)
    sys.stdout.write(json.dumps(told) + "\n")
