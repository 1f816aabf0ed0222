"""One publisher and one subscriber of acknowledged messages: rates, and how long an ack takes.

The publisher has a window of messages under way and sends as soon as acks make room; the
subscriber acknowledges what it has heard, once a read. Every message must be heard.
"""

import contextlib
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.acks.wires import AckedWire
from benchmarks.broker.clients import STALL_S
from benchmarks.broker.metering import Measured, Meter
from benchmarks.broker.peers import PeerFailed, Running

_LAST = 65535
_READ_BYTES = 256 * 1024
_WARM_UP_S = 0.3
_AGAIN_S = 0.02  # until a message is published again that nobody has heard


@dataclass(frozen=True, slots=True)
class Exchange:
    """What was measured. ``acks_ms``: of single messages, sorted; empty with a larger window."""

    measured: Measured
    acks_ms: list[float]

    @property
    def disturbed(self) -> bool:
        """Whether the figures say more about others."""
        return self.measured.disturbed

    @property
    def p99_ms(self) -> float:
        """Of the time from a message to its ack."""
        return self.acks_ms[int((len(self.acks_ms) - 1) * 0.99)]


def measure(
    wire: AckedWire, broker: Running, window: int, size: int, duration_s: float
) -> Exchange:
    """Publish messages of ``size`` bytes. Raises ``PeerFailed``."""
    payload = b"x" * size
    frames = [wire.publication(number, payload) for number in range(1, _LAST + 1)]
    sent_bytes = len(frames[0])
    blob = memoryview(b"".join(frames))
    delivery = wire.delivery_bytes(size)
    with contextlib.ExitStack() as stack:
        subscriber = stack.enter_context(_client(wire, broker, "hears", window))
        _say(subscriber, *wire.subscribe)
        publisher = stack.enter_context(_client(wire, broker, "says", window))
        poll = stack.enter_context(contextlib.closing(select.epoll()))
        sent = acked = heard = wait_until_heard(wire, publisher, subscriber, size)
        for each in (publisher, subscriber):
            each.setblocking(False)
            poll.register(each.fileno(), select.EPOLLIN)
        heard_rest = acked_rest = b""
        times: deque[float] = deque()
        acks_ms: list[float] = []
        meter, began = Meter(broker.pid), 0
        warm = time.perf_counter() + min(_WARM_UP_S, duration_s)
        end = warm + duration_s
        is_warm = False
        while True:
            now = time.perf_counter()
            if not is_warm and now >= warm:
                is_warm, meter, began = True, Meter(broker.pid), heard
                acks_ms.clear()
            if now < end:
                room = window - (sent - acked)
                at = sent % _LAST
                room = min(room, _LAST - at)
                if room > 0:
                    # Never blocks: a window of these is far less than a socket's buffer.
                    publisher.sendall(blob[at * sent_bytes : (at + room) * sent_bytes])
                    sent += room
                    if window == 1:
                        times.append(now)
            elif acked == sent == heard:
                break
            ready = poll.poll(STALL_S)
            if not ready:
                raise PeerFailed(f"{wire.name}: {sent} sent, {acked} acked, {heard} heard")
            for fd, _ in ready:
                if fd == subscriber.fileno():
                    data = heard_rest + _read(subscriber)
                    count = len(data) // delivery
                    heard_rest = data[count * delivery :]
                    if count:
                        heard += count
                        subscriber.sendall(wire.acks(data, count, delivery))
                else:
                    data = acked_rest + _read(publisher)
                    count, taken = wire.acked(data, acked % _LAST + 1)
                    acked_rest = data[taken:]
                    acked += count
                    if times and count:
                        acks_ms.append((time.perf_counter() - times.popleft()) * 1e3)
        return Exchange(meter.stop(heard - began), sorted(acks_ms))


def wait_until_heard(
    wire: AckedWire, publisher: socket.socket, subscriber: socket.socket, size: int
) -> int:
    """Publish until the subscriber hears it; returns how many messages that took.

    MicroMsg2 has no word for a subscription that is active, and a broker reads one connection after
    the other. All are acknowledged, and all that the subscriber hears of them it has heard.
    """
    sent, unread = 0, b""
    until = time.monotonic() + STALL_S
    while True:
        if time.monotonic() > until:
            raise PeerFailed(f"{wire.name}: a subscriber hears nothing, {sent} sent")
        sent += 1
        publisher.sendall(wire.publication(sent, b"%0*d" % (size, sent % 10**size)))
        while not wire.acked(unread, sent)[0]:
            unread += _exactly(publisher, 1)
        unread = unread[wire.acked(unread, sent)[1] :]
        if select.select([subscriber], [], [], _AGAIN_S)[0]:
            break
    delivery = wire.delivery_bytes(size)
    data = _exactly(subscriber, delivery)
    heard = (sent - int(data[-size:])) % 10**size + 1
    data += _exactly(subscriber, (heard - 1) * delivery)
    subscriber.sendall(wire.acks(data, heard, delivery))
    return sent


@contextlib.contextmanager
def _client(wire: AckedWire, broker: Running, name: str, window: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=STALL_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for words, answer in wire.hello(name, window):
            _say(client, words, answer)
        yield client


def _say(client: socket.socket, words: bytes, answer: int) -> None:
    client.sendall(words)
    _exactly(client, answer)


def _exactly(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = client.recv(count - len(data))
        if not more:
            raise PeerFailed("the broker hung up")
        data += more
    return data


def _read(client: socket.socket) -> bytes:
    data = client.recv(_READ_BYTES)
    if not data:
        raise PeerFailed("the broker hung up")
    return data
