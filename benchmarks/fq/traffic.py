"""One publisher, and consumers of one queue: how fast all of what is published is consumed.

Payloads have 16 to 112 bytes. So many messages may be under way
that a queue of the default backlog drops none; every byte must come.
"""

import contextlib
import random
import select
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import PeerFailed, Running
from benchmarks.fq_disk.measure import Client

EXCHANGE = b"bench"
UNDER_WAY = 8_000  # messages, half of a queue's default backlog
_MESSAGES = 16_384  # of the block that is sent again and again
_ROUTES = (1, 16, 2_000)
_SIZES = (16, 112, 40, 88, 64)
_STALL_S = 30.0
_READ_BYTES = 256 * 1024
_SENT_AT_ONCE = 32 * 1024
_WARM_UP_S = 0.3
_LONG = Struct(">I")
_PING = b"PING\r\n"  # nats-server's, some two seconds after a client came
_ORIGIN_BYTES = 1 + len(b"bench") + 1 + 2 * 4  # sender and hops, of what is delivered


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured. ``bindings`` of the queue, of which one wants the messages; ``routes``: so
    many, at random, which are 1, 16 or 2,000."""

    name: str
    consumers: int = 1
    bindings: int = 1
    routes: int = 16


def fq_traffic(broker: Running, load: Load, duration_s: float) -> Measured:
    """Measure a broker that speaks fq, fqd or ours. Raises ``PeerFailed``."""
    with contextlib.ExitStack() as stack:
        queue = b"bench\0mem:public,drop"
        consumers = [
            stack.enter_context(contextlib.closing(Client(broker.port, queue)))
            for _ in range(load.consumers)
        ]
        for number in range(1, load.bindings):
            consumers[0].bind(EXCHANGE, b'prefix:"other.%d."' % number)
        consumers[0].bind(EXCHANGE, b'prefix:"rack."')
        sender = stack.enter_context(contextlib.closing(Client(broker.port, b"sender")))
        return _measure(
            broker, sender.open(), [each.open() for each in consumers], _FQ[load.routes], duration_s
        )


def nats_traffic(broker: Running, load: Load, duration_s: float) -> Measured:
    """Measure nats-server with a queue group. Raises ``PeerFailed``."""
    with contextlib.ExitStack() as stack:

        def client(words: bytes) -> socket.socket:
            raw = socket.create_connection(("127.0.0.1", broker.port), timeout=_STALL_S)
            stack.enter_context(contextlib.closing(raw))
            raw.sendall(b'CONNECT {"verbose":false}\r\n' + words + b"PING\r\n")
            said = b""
            while not said.endswith(b"PONG\r\n"):
                more = raw.recv(_READ_BYTES)
                if not more:
                    raise PeerFailed(f"nats-server hung up after {said!r}")
                said += more
            return raw

        consumers = [client(b"SUB bench.rack.> bench 100\r\n") for _ in range(load.consumers)]
        return _measure(broker, client(b""), consumers, _NATS[load.routes], duration_s)


@dataclass(frozen=True, slots=True)
class _Block:
    """Messages back to back, and how many bytes they are when they are delivered."""

    data: bytes
    delivered_bytes: int


def _block(message: Callable[[int, int, bytes], tuple[bytes, int]], routes: int) -> _Block:
    chance = random.Random(routes)
    spelled = [
        message(number, chance.randrange(routes), b"x" * _SIZES[number % 5])
        for number in range(_MESSAGES)
    ]
    return _Block(b"".join(words for words, _ in spelled), sum(size for _, size in spelled))


def _fq_message(number: int, rack: int, payload: bytes) -> tuple[bytes, int]:
    route = b"rack.%04d.temperature" % rack
    head = bytes([len(EXCHANGE)]) + EXCHANGE + bytes([len(route)]) + route
    words = head + number.to_bytes(16, "big") + _LONG.pack(len(payload)) + payload
    return words, len(words) + _ORIGIN_BYTES


def _nats_message(number: int, rack: int, payload: bytes) -> tuple[bytes, int]:
    subject = b"bench.rack.%04d.temperature" % rack
    rest = b" %d\r\n%s\r\n" % (len(payload), payload)
    return b"PUB " + subject + rest, len(b"MSG " + subject + b" 100" + rest)


_FQ = {routes: _block(_fq_message, routes) for routes in _ROUTES}
_NATS = {routes: _block(_nats_message, routes) for routes in _ROUTES}


def _measure(
    broker: Running,
    sender: socket.socket,
    consumers: Sequence[socket.socket],
    block: _Block,
    duration_s: float,
) -> Measured:
    with contextlib.closing(select.epoll()) as poll:
        by_fd = {each.fileno(): each for each in consumers}
        for each in (sender, *consumers):
            each.setblocking(False)
        for fd in by_fd:
            poll.register(fd, select.EPOLLIN)
        poll.register(sender.fileno(), 0)
        blob, length = memoryview(block.data), len(block.data)
        per_byte = block.delivered_bytes / length
        most = UNDER_WAY * block.delivered_bytes / _MESSAGES
        sent = at = heard = began = 0  # sent and at in bytes of the block, heard in those delivered
        meter = Meter(broker.pid)
        warm = time.perf_counter() + min(_WARM_UP_S, duration_s)
        end = warm + duration_s
        is_warm = wants_to_write = False
        tails: dict[int, bytes] = {}  # of each consumer's last read
        while True:
            now = time.perf_counter()
            if not is_warm and now >= warm:
                is_warm, meter, began = True, Meter(broker.pid), heard
            # Only whole blocks have a known length when they are delivered.
            if now >= end and at == 0:
                if heard == sent // length * block.delivered_bytes:
                    break
            elif not wants_to_write and sent * per_byte - heard < most:
                try:
                    count = sender.send(blob[at : at + _SENT_AT_ONCE])
                except BlockingIOError:
                    wants_to_write = True
                    poll.modify(sender.fileno(), select.EPOLLOUT)
                else:
                    sent += count
                    at = (at + count) % length
            may_send = not wants_to_write and sent * per_byte - heard < most
            may_send = may_send and not (now >= end and at == 0)
            ready = poll.poll(0 if may_send else _STALL_S)
            if not ready and not may_send:
                raise PeerFailed(f"{sent * per_byte - heard:,.0f} bytes of messages did not come")
            for fd, _ in ready:
                if fd in by_fd:
                    data = by_fd[fd].recv(_READ_BYTES)
                    if not data:
                        raise PeerFailed("the broker hung up")
                    heard += len(data)
                    looked = tails.get(fd, b"") + data
                    heard -= len(_PING) * looked.count(_PING)  # no payload has one
                    tails[fd] = looked[1 - len(_PING) :]
                else:
                    wants_to_write = False
                    poll.modify(fd, 0)
        return meter.stop(round((heard - began) * _MESSAGES / block.delivered_bytes))
