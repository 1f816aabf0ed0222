"""What a disk queue takes and gives: at a broker that runs, and at its store alone."""

import contextlib
import random
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import PeerFailed, Running
from host_broker.bus.publication import pack
from host_broker.bus.queue import spell_place
from host_broker.net.storage.message_store import MessageStore

EXCHANGE, QUEUE = b"bench", b"disk"
ROUTES = random.Random(16).choices([b"rack.%02d.temperature" % rack for rack in range(16)], k=1000)
_COMMANDS, _DATA = b"\xcc\x50\xca\xfe", b"\xcc\x50\xfa\xce"
_SHORT, _LONG, _TWO = Struct(">H"), Struct(">I"), Struct(">HH")
_STALL_S = 30.0
_READ_BYTES = 256 * 1024
_SENT_AT_ONCE = 64 * 1024


def _text(text: bytes) -> bytes:
    return _SHORT.pack(len(text)) + text


def _exactly(peer: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        read = peer.recv(count - len(got))
        if not read:
            raise PeerFailed(f"the broker hung up after {got!r}")
        got += read
    return got


class Client:
    """A client of fq: its command connection, and its data connection when it is wanted."""

    def __init__(self, port: int, queue: bytes) -> None:
        self._port = port
        self._command = socket.create_connection(("127.0.0.1", port), timeout=_STALL_S)
        self.data: socket.socket | None = None
        words = [b"\xaa\xaa\0\0", _text(b"bench"), _text(queue), _text(b"")]
        self._command.sendall(_COMMANDS + b"".join(words))
        code, length = _TWO.unpack(_exactly(self._command, 4))
        said = _exactly(self._command, length)
        if code != 0xAA00:
            raise PeerFailed(f"fq: {said.decode(errors='replace')}")
        self._key = said
        _exactly(self._command, 2)  # a heartbeat that was not asked for

    def open(self) -> socket.socket:
        """Have the data connection."""
        if self.data is None:
            self.data = socket.create_connection(("127.0.0.1", self._port), timeout=_STALL_S)
            self.data.sendall(_DATA + _text(self._key))
        return self.data

    def bind(self, exchange: bytes, program: bytes) -> None:
        """Bind."""
        self._command.sendall(b"\xb1\x70\0\0" + _text(exchange) + _text(program))
        _, route = Struct(">HI").unpack(_exactly(self._command, 6))
        if route == 0xFFFFFFFF:
            raise PeerFailed(f"fq: the program {program!r} was refused")

    def close(self) -> None:
        """Close both."""
        self._command.close()
        if self.data is not None:
            self.data.close()


def _message(number: int, payload: bytes) -> bytes:
    route = ROUTES[number % len(ROUTES)]
    head = bytes([len(EXCHANGE)]) + EXCHANGE + bytes([len(route)]) + route
    return head + number.to_bytes(16, "big") + _LONG.pack(len(payload)) + payload


def _delivery_bytes(size: int) -> int:
    """Return the length of a message as the broker sends it: with sender and two hops."""
    return len(_message(0, b"x" * size)) + 1 + len(b"bench") + 1 + 2 * 4


@contextlib.contextmanager
def _clients(port: int, count: int) -> Iterator[tuple[Client, Client]]:
    queue = QUEUE + b"\0disk:private,drop,permanent,backlog=%d" % (2 * count)
    with (
        contextlib.closing(Client(port, queue)) as consumer,
        contextlib.closing(Client(port, b"sender\0mem:private,drop")) as sender,
    ):
        consumer.bind(EXCHANGE, b'prefix:"rack."')
        yield consumer, sender


def at_once(broker: Running, count: int, size: int) -> Measured:
    """Publish so many messages as fast as they are taken, and hear them all. ``PeerFailed``."""
    payload = b"x" * size
    blob = memoryview(b"".join([_message(number, payload) for number in range(count)]))
    wanted = count * _delivery_bytes(size)
    with _clients(broker.port, count) as (consumer, sender):
        source, sink = sender.open(), consumer.open()
        source.setblocking(False)
        meter = Meter(broker.pid)
        sent = heard = 0
        while heard < wanted:
            writers = [source] if sent < len(blob) else []
            readable, writable, _ = select.select([sink], writers, [], _STALL_S)
            if not readable and not writable:
                raise PeerFailed(f"fq: {heard} of {wanted} bytes came, then nothing more")
            if writable:
                with contextlib.suppress(BlockingIOError):
                    sent += source.send(blob[sent : sent + _SENT_AT_ONCE])
            if readable:
                read = len(sink.recv(_READ_BYTES))
                if not read:
                    raise PeerFailed("fq: the broker hung up")
                heard += read
        return meter.stop(count)


def one_by_one(broker: Running, count: int, size: int) -> Measured:
    """Publish each message when the one before it was heard: each is a commit. ``PeerFailed``."""
    payload = b"x" * size
    length = _delivery_bytes(size)
    with _clients(broker.port, count) as (consumer, sender):
        source, sink = sender.open(), consumer.open()
        meter = Meter(broker.pid)
        for number in range(count):
            source.sendall(_message(number, payload))
            _exactly(sink, length)
        return meter.stop(count)


def store_alone(folder: Path, count: int, size: int, commit: int, *, sync: bool) -> float:
    """Return messages a second that are put into the store's file, ``commit`` in each change, and
    forgotten again; ``sync``: each change is on the disk before the next."""
    store = MessageStore(folder / "alone.sqlite")
    packet = pack(0, EXCHANGE + b"/" + ROUTES[0], b"x" * size)
    try:
        began = time.perf_counter()
        for first in range(1, count + 1, commit):
            numbers = range(first, min(first + commit, count + 1))
            keys = [spell_place(b"fq/" + QUEUE, number) for number in numbers]
            store.write({}, dict.fromkeys(keys, (packet, b"")))
            if sync:
                store.sync()
            store.write({}, dict.fromkeys(keys, None))
            if sync:
                store.sync()
        return count / (time.perf_counter() - began)
    finally:
        store.close()
