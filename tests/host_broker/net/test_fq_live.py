"""fq over sockets: pairs of connections, competition, a publisher that waits, kill -9."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from host_broker.protocols.fq.codec import (
    PERMANENT,
    TRANSIENT,
    Codec,
    spell_bind,
    spell_greeting,
    spell_login,
    spell_message,
    spell_status_request,
)
from host_broker.protocols.fq.events import (
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Event,
    Heartbeat,
    LoginAccepted,
    MessageRun,
    Status,
)
from tests.host_broker.net.broker_process import END_S, BrokerProcess, broker, until
from tests.host_broker.net.fq_client import submit

_ID = b"0123456789abcdef"
_MAX = 1 << 20


class Client:
    """One client with plain sockets, which reads when it is told to."""

    def __init__(self, running: BrokerProcess, queue: bytes, listener: str = "fq") -> None:
        self._running, self._listener = running, listener
        self.command = running.raw(listener)
        self._codec, self._messages = Codec("command", _MAX), Codec("data", _MAX)
        self._events: list[Event] = []
        self.command.sendall(
            spell_greeting(CommandGreeting()) + spell_login(b"user", queue, b"secret")
        )
        accepted = self.next()
        assert isinstance(accepted, LoginAccepted), accepted
        self.key = accepted.key
        assert self.next() == Heartbeat()
        self.data: socket.socket

    def open_data(self) -> None:
        self.data = self._running.raw(self._listener)
        self.data.sendall(spell_greeting(DataGreeting(self.key)))

    def next(self) -> Event:
        while not self._events:
            data = self.command.recv(65_536)
            assert data, "the broker has hung up"
            self._events += self._codec.receive_data(data)
        return self._events.pop(0)

    def bind(self, exchange: bytes, program: bytes, flags: int = TRANSIENT) -> None:
        self.command.sendall(spell_bind(flags, exchange, program))
        assert isinstance(self.next(), BindAnswer)

    def publish(self, exchange: bytes, route: bytes, payloads: list[bytes]) -> None:
        self.data.sendall(
            b"".join(spell_message(exchange, route, _ID, payload) for payload in payloads)
        )

    def status(self) -> dict[bytes, int]:
        self.command.sendall(spell_status_request())
        status = self.next()
        assert isinstance(status, Status)
        return dict(status.counters)

    def take(self, count: int) -> list[bytes]:
        """Return the payloads of the messages that come, until so many are there."""
        found: list[bytes] = []
        while len(found) < count:
            data = self.data.recv(65_536)
            assert data, "the broker has hung up"
            for event in self._messages.receive_data(data):
                assert isinstance(event, MessageRun)
                found += event.payloads
        return found

    def close(self) -> None:
        self.command.close()
        with contextlib.suppress(AttributeError):
            self.data.close()


def _numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerProcess]:
    with broker(
        *("--listen", "fq://127.0.0.1:0"),
        *("--listen", "auto://127.0.0.1:0"),
        *("--listen", "fmqp://127.0.0.1:0"),
    ) as found:
        yield found


def _pair(running: BrokerProcess, name: bytes, listener: str = "fq") -> tuple[Client, Client]:
    publisher = Client(running, b"p-" + name, listener)
    consumer = Client(running, b"c-" + name, listener)
    for each in (publisher, consumer):
        each.open_data()
    return publisher, consumer


@pytest.mark.parametrize("listener", ["fq", "auto"])
def test_both_listeners(running: BrokerProcess, listener: str) -> None:
    """R1, R2."""
    publisher, consumer = _pair(running, listener.encode(), listener)
    consumer.bind(b"ex-" + listener.encode(), b'prefix:"r"')
    publisher.publish(b"ex-" + listener.encode(), b"r", [b"hello", b"", b"x" * 300_000])
    assert consumer.take(3) == [b"hello", b"", b"x" * 300_000]
    publisher.close()
    consumer.close()


def test_byte_by_byte(running: BrokerProcess) -> None:
    """A20: as it arrives over a slow link."""
    consumer = Client(running, b"slow")
    consumer.open_data()
    consumer.bind(b"ex-slow", b"prefix:")
    command = running.raw("auto")
    for byte in spell_greeting(CommandGreeting()) + spell_login(b"u", b"bytes", b"p"):
        command.sendall(bytes([byte]))
    answer = b""
    while len(answer) < 131 + 2:
        answer += command.recv(4096)
    data = running.raw("auto")
    for byte in spell_greeting(DataGreeting(answer[4:131])) + spell_message(
        b"ex-slow", b"r", _ID, b"one"
    ):
        data.sendall(bytes([byte]))
    assert consumer.take(1) == [b"one"]
    command.close()
    assert data.recv(1) == b""  # A19
    data.close()
    consumer.close()


@pytest.mark.parametrize("count", [2, 16])
def test_competing_consumers(running: BrokerProcess, count: int) -> None:
    """R29, R31: each message once, and each consumer its share."""
    queue = b"compete-%d\0mem:public,block,backlog=1000" % count
    consumers = [Client(running, queue) for _ in range(count)]
    publisher = Client(running, b"p-compete-%d" % count)
    for each in (*consumers, publisher):
        each.open_data()
    exchange = b"ex-compete-%d" % count
    consumers[0].bind(exchange, b"prefix:")
    until(lambda: all(b"msgs_out" in each.status() for each in consumers))
    total = 16_000
    sending = threading.Thread(
        target=publisher.publish, args=(exchange, b"r", _numbered(0, total)), daemon=True
    )
    sending.start()
    found: dict[int, list[bytes]] = {number: [] for number in range(count)}

    def take(number: int) -> None:
        found[number] = consumers[number].take(total // count)

    takers = [threading.Thread(target=take, args=(number,), daemon=True) for number in found]
    for taker in takers:
        taker.start()
    for taker in (*takers, sending):
        taker.join(END_S)
        assert not taker.is_alive()
    assert sorted(int(each) for share in found.values() for each in share) == list(range(total))
    for each in (*consumers, publisher):
        each.close()


def test_a_full_queue_holds_its_publisher_only(running: BrokerProcess) -> None:
    """R33, A25: the others, and its own commands, go on."""
    publisher, consumer = _pair(running, b"other")
    blocked = Client(running, b"p-blocked")
    full = Client(running, b"full\0mem:block,backlog=100")  # has no data connection yet
    blocked.open_data()
    full.bind(b"ex-full", b"prefix:")
    consumer.bind(b"ex-other", b"prefix:")
    total = 20_000
    payloads = [b"%06d" % number + bytes(1000) for number in range(total)]
    sending = threading.Thread(
        target=blocked.publish, args=(b"ex-full", b"r", payloads), daemon=True
    )
    sending.start()
    until(lambda: blocked.status()[b"msgs_in"] >= 100)
    publisher.publish(b"ex-other", b"r", [b"on"])
    assert consumer.take(1) == [b"on"]
    assert sending.is_alive()
    assert blocked.status()[b"msgs_in"] < total
    full.open_data()
    assert full.take(total) == payloads
    sending.join(END_S)
    assert not sending.is_alive()
    assert blocked.status()[b"dropped"] == 0
    for each in (publisher, consumer, blocked, full):
        each.close()


def test_refusals(running: BrokerProcess) -> None:
    """R8: in fqd's words, then the end."""
    sock = running.raw("fq")
    sock.sendall(spell_greeting(CommandGreeting()) + spell_login(b"u", b"q\0disk", b"p"))
    said = b""
    while chunk := sock.recv(4096):
        said += chunk
    (error,) = Codec("command", _MAX).receive_data(said)
    assert error == ErrorText(b"no disk queues: this broker has no data folder (--data DIR)")
    sock.close()


def test_a_disk_queue_survives_kill_9(tmp_path: Path) -> None:
    """R35, R36: with its bindings, and all that was read before what was acknowledged."""
    options = ("--listen", "fq://127.0.0.1:0", "--data", str(tmp_path))
    with broker(*options) as first:
        queue = Client(first, b"kept\0disk:public,permanent,drop,backlog=100000")
        queue.bind(b"ex", b"prefix:", PERMANENT)
        publisher = Client(first, b"p")
        publisher.open_data()
        publisher.publish(b"ex", b"r", _numbered(0, 5000))
        until(lambda: publisher.status()[b"msgs_in"] == 5000)
        submit(first.ports["fq"], "ex", b"5000")
        first.process.kill()
        first.wait()
        for each in (queue, publisher):
            each.close()
    with broker(*options) as second:
        consumer = Client(second, b"kept\0disk:public")
        consumer.open_data()
        assert consumer.take(5001) == _numbered(0, 5001)
        publisher = Client(second, b"p")
        publisher.open_data()
        publisher.publish(b"ex", b"r", [b"again"])
        assert consumer.take(1) == [b"again"]
        for each in (consumer, publisher):
            each.close()
