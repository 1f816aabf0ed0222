"""What was acknowledged to a publisher is in its queue after the broker's end, however it ends."""

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from host_broker.protocols.micromsg2.codec import (
    Codec,
    spell_command_frame,
    spell_extension,
    spell_handshake,
    spell_message,
)
from host_broker.protocols.micromsg2.events import ExtensionFrame, Handshake, MessageFrame
from host_broker.protocols.micromsg2.grammar import read_extensions
from host_broker.protocols.micromsg2.windows import read_ack, spell_ack
from tests.host_broker.net.broker_process import END_S, BrokerProcess, broker, motemq

_EXTENSIONS = read_extensions(b"batch-ack:max-count=1000;pubsub")


class _Peer:
    """A client with a plain socket, which acknowledges when it is told to."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=END_S)
        self._codec = Codec("client")
        hello = spell_handshake(Handshake(1, 0, "peer", _EXTENSIONS))
        self.socket.sendall(hello)
        assert [type(each) for each in self._hear()] == [Handshake]
        self.socket.sendall(hello)
        self._sequence = 0
        self.numbers: list[int] = []

    def _hear(self) -> list[object]:
        events: list[object] = []
        while not events:
            data = self.socket.recv(65536)
            assert data, "the broker has hung up"
            events += self._codec.receive_data(data)
        return events

    def put(self, queue: bytes, bodies: list[bytes], properties: bytes = b"") -> None:
        """Send messages and wait until all of them are acknowledged."""
        frames = []
        for body in bodies:
            self._sequence += 1
            frames.append(spell_message(self._sequence, queue, properties, body))
        self.socket.sendall(b"".join(frames))
        acked = 0
        while acked != self._sequence:
            *_, last = self._hear()
            assert isinstance(last, ExtensionFrame)
            acked = int(str(read_ack(last.payload)))

    def take(self, queue: bytes, count: int) -> list[tuple[bytes, bytes]]:
        """Consume a queue; returns properties and payloads of the first messages that come. Their
        numbers in the queue, which are the last of the properties, are in ``numbers``."""
        self.socket.sendall(spell_command_frame("subscribe", [("destination", queue)]))
        found: list[tuple[bytes, bytes]] = []
        while len(found) < count:
            for event in self._hear():
                assert isinstance(event, MessageFrame)
                properties, _, number = event.properties.rpartition(b"queue-number:N")
                found.append((properties.removesuffix(b";"), event.payload))
                self.numbers.append(int(number))
        return found

    def acknowledge(self, number: int) -> None:
        """Say that all up to this number are done with, and wait until the broker knows."""
        self.socket.sendall(spell_extension(1, spell_ack(number)))
        self.put(b"other", [b"x"])

    def is_silent(self) -> bool:
        """Whether nothing comes before the answer to what is said now."""
        self._sequence += 1
        self.socket.sendall(spell_message(self._sequence, b"other", b"", b"x"))
        return [type(each) for each in self._hear()] == [ExtensionFrame]


@contextlib.contextmanager
def _started(data: Path, *options: str) -> Iterator[BrokerProcess]:
    listen = ["--listen", "micromsg2://127.0.0.1:0", "--data", str(data)]
    with broker(*listen, *options) as process:
        yield process


Enter = Callable[[BrokerProcess], _Peer]


@pytest.fixture
def enter() -> Iterator[Enter]:
    """Connect a client, which hangs up at the end of the test."""
    with contextlib.ExitStack() as stack:

        def connect(running: BrokerProcess) -> _Peer:
            peer = _Peer(running.ports["micromsg2"])
            stack.callback(peer.socket.close)
            return peer

        yield connect


def _end(running: BrokerProcess, how: str) -> None:
    if how == "kill":
        running.process.kill()
        running.process.wait(END_S)
    else:
        assert running.end() == (0, "")


@pytest.mark.parametrize(
    ("how", "ack"), [("kill", "written"), ("stop", "written"), ("kill", "synced")]
)
def test_queues_outlive_the_broker(tmp_path: Path, how: str, ack: str, enter: Enter) -> None:
    """R36, R29: in order, with their properties; what was acknowledged by the consumer does not
    come again, what it may have had comes with the mark, and new messages come behind."""
    options = ("--set", f"journal.ack={ack}")
    jobs = [b"%d" % number for number in range(300)]
    with _started(tmp_path, *options) as first:
        publisher = enter(first)
        publisher.put(b"jobs", jobs[:200], b"level:N5;unit:TK")
        publisher.put(b"idle", [b"", b"waits"])
        _end(first, how)
    with _started(tmp_path, *options) as second:
        publisher, consumer = enter(second), enter(second)
        publisher.put(b"jobs", jobs[200:], b"level:N5;unit:TK")
        assert consumer.take(b"jobs", 300) == [(b"level:N5;unit:TK", job) for job in jobs]
        assert consumer.numbers == list(range(1, 301))
        consumer.acknowledge(120)
        _end(second, how)
    with _started(tmp_path, *options) as third:
        consumer, idler = enter(third), enter(third)
        marked = b"level:N5;unit:TK;redelivered:N1"
        assert consumer.take(b"jobs", 180) == [(marked, job) for job in jobs[120:]]
        assert consumer.numbers == list(range(121, 301))
        consumer.acknowledge(180)
        assert idler.take(b"idle", 2) == [(b"", b""), (b"", b"waits")]
        _end(third, how)
    with _started(tmp_path, *options) as last:
        consumer = enter(last)
        consumer.put(b"jobs", [b"new"])
        assert consumer.take(b"jobs", 1) == [(b"", b"new")]
        assert consumer.is_silent()


def test_a_backup_has_what_waits(tmp_path: Path, enter: Enter) -> None:
    """R36: a broker that begins with it has the queue as it was at that moment."""
    with _started(tmp_path / "data", "--listen", "http://127.0.0.1:0") as first:
        peer = enter(first)
        peer.put(b"jobs", [b"1", b"2"], b"n:N1")
        url = f"http://127.0.0.1:{first.ports['http']}"
        for words in (
            ["backup", str(tmp_path / "backup"), "--from", url],
            ["restore", str(tmp_path / "backup"), str(tmp_path / "restored")],
        ):
            subprocess.run(motemq(*words), check=True, capture_output=True, timeout=END_S)
        peer.put(b"jobs", [b"3"])
    with _started(tmp_path / "restored") as second:
        assert enter(second).take(b"jobs", 2) == [(b"n:N1", b"1"), (b"n:N1", b"2")]


def test_without_data_a_queue_is_in_memory(enter: Enter) -> None:
    """R36: an ack says then that the broker has it, and no more."""
    with broker("--listen", "micromsg2://127.0.0.1:0") as first:
        enter(first).put(b"jobs", [b"1"])
        _end(first, "kill")
    with broker("--listen", "micromsg2://127.0.0.1:0") as second:
        peer = enter(second)
        peer.put(b"jobs", [b"2"])
        assert peer.take(b"jobs", 1) == [(b"", b"2")]
