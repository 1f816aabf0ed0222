"""MicroMsg2 when lines break, in the clear and by TLS: messages whole, once, or again, marked."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator

import pytest

from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import (
    ErrorFrame,
    ExtensionFrame,
    Handshake,
    MessageFrame,
)
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.windows import spell_ack
from tests.host_broker.net.broker_process import END_S, BrokerProcess, broker
from tests.host_broker.net.certificates import Authority

_HELLO = spell_handshake(Handshake(1, 0, "peer", read_extensions(b"batch-ack:max-count=9;pubsub")))


class _Peer:
    """A client that says bytes, and hears events."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.codec = Codec("client")

    def greet(self) -> "_Peer":
        """Hold the handshake."""
        self.socket.sendall(_HELLO)
        assert [type(each) for each in self.hear(1)] == [Handshake]
        self.socket.sendall(_HELLO)
        return self

    def subscribe(self, destination: str) -> "_Peer":
        """Subscribe, and wait until that is done: an answer to what came behind it is there."""
        said = spell_command_frame("subscribe", [("destination", destination.encode())])
        self.socket.sendall(said + spell_message(1, b"topic/nobody", b"", b"x"))
        heard = self.hear(1)
        while not isinstance(heard[-1], ExtensionFrame):
            heard += self.hear(1)
        self.messages = [each for each in heard if isinstance(each, MessageFrame)]
        return self

    def hear(self, count: int) -> list[object]:
        """Return at least so many events, or those that come before the end."""
        events: list[object] = []
        while len(events) < count:
            data = self.socket.recv(65536)
            if not data:
                break
            events += self.codec.receive_data(data)
        return events

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        """Return properties and payloads of so many messages."""
        while len(self.messages) < count:
            heard = self.hear(1)
            assert heard
            self.messages += [each for each in heard if isinstance(each, MessageFrame)]
        taken, self.messages = self.messages[:count], self.messages[count:]
        return [(each.properties, each.payload) for each in taken]

    def await_ack(self, number: int) -> None:
        """Wait for the ack of this message, or of one after it."""
        acked = 0
        while acked < number:
            *_, last = self.hear(1)
            assert isinstance(last, ExtensionFrame)
            acked = int.from_bytes(last.payload, "big")

    def break_off(self) -> None:
        """End with a reset: no FIN, no word of TLS."""
        raw = self.socket
        linger = struct.pack("ii", 1, 0)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if isinstance(raw, ssl.SSLSocket):
            socket.socket(fileno=raw.detach()).close()
        else:
            raw.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"), "ours")


@pytest.fixture(scope="module")
def running(authority: Authority) -> Iterator[BrokerProcess]:
    cert, key = authority.issue("broker")
    listen = ["micromsg2://127.0.0.1:0", f"micromsg2s://127.0.0.1:0?cert={cert}&key={key}"]
    options = ["--set", "micromsg2.handshake_timeout_s=2"]
    words = [word for each in listen for word in ("--listen", each)]
    with broker(*words, *options) as process:
        yield process


Enter = Callable[[], _Peer]


@pytest.fixture(params=["micromsg2", "micromsg2s"])
def enter(
    request: pytest.FixtureRequest, running: BrokerProcess, authority: Authority
) -> Iterator[Enter]:
    """Connect, plain or by TLS, and say nothing yet."""
    scheme: str = request.param
    with contextlib.ExitStack() as stack:

        def connect() -> _Peer:
            sock = socket.create_connection(("127.0.0.1", running.ports[scheme]), timeout=END_S)
            stack.enter_context(contextlib.closing(sock))
            if scheme == "micromsg2s":
                context = ssl.create_default_context(cafile=str(authority.file))
                sock = context.wrap_socket(sock, server_hostname="127.0.0.1")
                stack.enter_context(contextlib.closing(sock))
            return _Peer(sock)

        yield connect


def _send(number: int, destination: str, body: bytes, *, continued: bool = False) -> bytes:
    return spell_message(number, destination.encode(), b"", body, continued)


def test_byte_by_byte(enter: Enter) -> None:
    """R2, R21: each byte in a write, and by TLS in a record, of its own."""
    reader, writer = enter().greet().subscribe("topic/slowly"), enter()
    said = _HELLO + _HELLO + _send(1, "topic/slowly", b"one") + _send(2, "topic/slowly", b"two")
    for byte in said[: len(_HELLO)]:
        writer.socket.sendall(bytes([byte]))
    assert [type(each) for each in writer.hear(1)] == [Handshake]
    for byte in said[len(_HELLO) :]:
        writer.socket.sendall(bytes([byte]))
    assert reader.take(2) == [(b"", b"one"), (b"", b"two")]
    writer.await_ack(2)


@pytest.mark.parametrize("rest", ["half a frame", "fragments"])
def test_a_publisher_breaks_off(enter: Enter, rest: str) -> None:
    """R19: what was whole is published, of the rest nothing."""
    topic = f"topic/cut/{rest.replace(' ', '-')}"
    reader, writer = enter().greet().subscribe(topic), enter().greet()
    whole = b"".join(_send(number, topic, b"%d" % number) for number in range(1, 4))
    last = _send(4, topic, b"never whole" * 20)[:-1]
    if rest == "fragments":
        last = _send(4, topic, b"begun", continued=True)
    writer.socket.sendall(whole + last)
    writer.await_ack(3)
    writer.break_off()
    enter().greet().socket.sendall(_send(1, topic, b"after"))
    assert [body for _, body in reader.take(4)] == [b"1", b"2", b"3", b"after"]


def test_a_consumer_breaks_off(enter: Enter, request: pytest.FixtureRequest) -> None:
    """R36: what it had comes again, in order and marked, to the next one; what it had acknowledged
    does not."""
    queue = f"broken/{request.node.callspec.id}"
    writer, first = enter().greet(), enter().greet()
    writer.socket.sendall(b"".join(_send(number, queue, b"%d" % number) for number in range(1, 8)))
    writer.await_ack(7)
    first.subscribe(queue)
    assert [body for _, body in first.take(7)] == [b"%d" % number for number in range(1, 8)]
    first.socket.sendall(spell_extension(1, spell_ack(3)) + _send(2, "topic/nobody", b"x"))
    assert first.hear(1) == [ExtensionFrame(1, b"\0\2")]
    first.break_off()
    second = enter().greet().subscribe(queue)
    marked = [(b"redelivered:N1;queue-number:N%d" % n, b"%d" % n) for n in range(4, 8)]
    assert second.take(4) == marked


def test_a_consumer_breaks_off_while_a_full_queue_has_it_wait() -> None:
    """R36: nobody reads that it has gone; what it had comes again when its time for acks is up."""
    listen = ("--listen", "micromsg2://127.0.0.1:0")
    limits = ("--set", "bus.max_queue_messages=2", "--set", "micromsg2.ack_timeout_s=1")
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(broker(*listen, *limits))

        def enter() -> _Peer:
            address = ("127.0.0.1", running.ports["micromsg2"])
            sock = stack.enter_context(socket.create_connection(address, timeout=END_S))
            return _Peer(sock).greet()

        writer, first = enter(), enter()
        writer.socket.sendall(_send(1, "raw", b"a job") + _send(2, "done", b"1"))
        writer.await_ack(2)
        assert first.subscribe("raw").take(1) == [(b"queue-number:N1", b"a job")]
        first.socket.sendall(_send(2, "done", b"2"))
        first.await_ack(2)
        first.break_off()
        second = enter().subscribe("raw")
        assert second.take(1) == [(b"redelivered:N1;queue-number:N1", b"a job")]
        # Its acks may be unread, but it is there, and in no circle.
        second.socket.sendall(_send(2, "done", b"3"))
        second.await_ack(2)
        third = enter().subscribe("done")
        assert [body for _, body in third.take(3)] == [b"1", b"2", b"3"]


def test_garbage_is_answered(enter: Enter) -> None:
    """A25, A26: ERROR, which arrives before the end."""
    for garbage in (b"\xff" * 100, b"\x03\x01", b"\x01\3;;;"):
        peer = enter().greet()
        peer.socket.sendall(garbage)
        error, *rest = peer.hear(2)
        assert isinstance(error, ErrorFrame)
        assert rest == []


def test_silence_is_ended(enter: Enter) -> None:
    """R9: before the handshake, and in the middle of it."""
    silent, half = enter(), enter()
    half.socket.sendall(_HELLO)
    assert [type(each) for each in half.hear(1)] == [Handshake]
    half.socket.sendall(_HELLO[:-1])
    for peer in (silent, half):
        assert peer.hear(2) == [ErrorFrame("no complete handshake within 2 s")]


def test_a_burst_beyond_what_one_record_holds(enter: Enter) -> None:
    """R18, R20: 3 MiB in one write, from frames of a few bytes to one of a MiB."""
    reader, writer = enter().greet().subscribe("topic/burst"), enter().greet()
    sizes = [1, 255, 256, 16_384, 16_385, 65_536, 300_000, 1024 * 1024]
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    frames = [_send(number, "topic/burst", body) for number, body in enumerate(bodies, 1)]
    reader.socket.settimeout(END_S)
    writer.socket.sendall(b"".join(frames))
    assert [body for _, body in reader.take(8)] == bodies
    writer.await_ack(8)
