"""Publishers of every kind that note what a broker acknowledges, through every fall of it.

Every publication is told apart from all others, so that afterwards the journal can be asked for
each that was acknowledged. They speak raw bytes: what a library does after a loss must not hide
one.
"""

import contextlib
import http.client
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from benchmarks.broker.wires import FMQP

_ANSWER_S = 20.0
_AGAIN_S = 0.01  # until the broker is back
_REST_S = 0.002  # between two units: the journal is read by Python afterwards
_COUNTER = struct.Struct(">Q")
_PACKETS = "application/x-fmqp"
_PER_BATCH = 50
_MICROMSG2_WINDOW = 32

Publication = tuple[str, bytes]  # topic, payload


class Publisher(ABC):
    """Publishes until ``stop``, at whatever broker is at the port at the time."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.acknowledged: set[Publication] = set()
        self.failure: Exception | None = None  # what no fall of a broker explains
        self._port = port
        self._count = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the end."""
        self._stop.set()
        self._thread.join(2 * _ANSWER_S)
        if self._thread.is_alive():
            raise RuntimeError(f"{self.name} did not end")

    @abstractmethod
    def _converse(self) -> None:
        """Publish over one connection; ends with an ``OSError`` when the broker falls."""

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                self._converse()
            except (OSError, http.client.HTTPException):
                time.sleep(_AGAIN_S)
            except Exception as error:
                self.failure = error
                return

    def _next(self) -> bytes:
        """Return a payload that nobody has used."""
        self._count += 1
        return self.name.encode() + _COUNTER.pack(self._count)

    def _subscribe(self, client: socket.socket, reader: "_Packets", topics: list[str]) -> None:
        """Subscribe, and read what is kept of the topics."""
        ready = f"kill/ready/{self.name}"
        words = [_subscription(topic) for topic in (ready, *topics)]
        client.sendall(b"".join(words) + FMQP.publication(ready, b"!", 0))
        while reader.next()[0] != ready:
            pass

    @contextlib.contextmanager
    def _connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_S) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield client


class FmqpPublisher(Publisher):
    """Twenty messages and an echo, four times under way."""

    def _converse(self) -> None:
        topic, echo = f"kill/fmqp/{self.name}", f"kill/echo/{self.name}"
        with self._connected() as client, _Packets(client) as reader:
            self._subscribe(client, reader, [echo])
            waiting: deque[list[Publication]] = deque()
            while not self._stop.is_set() or waiting:
                if not self._stop.is_set() and len(waiting) < 4:
                    unit = [(topic, self._next()) for _ in range(20)]
                    waiting.append(unit)
                    unit.append((echo, self._next()))
                    client.sendall(b"".join(FMQP.publication(*each, 0) for each in unit))
                    time.sleep(_REST_S)
                    continue
                packet = reader.next()
                unit = waiting.popleft()
                if packet != unit[-1]:
                    raise ValueError(f"{packet} is no answer to {unit[-1]}")
                self.acknowledged.update(unit)


class RetainedPublisher(Publisher):
    """Retained messages to a few topics that it subscribes to itself.

    ``sent``: of each topic the last payload; ``kept``: the last that was acknowledged.
    """

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.sent: dict[str, bytes] = {}
        self.kept: dict[str, bytes] = {}

    def _converse(self) -> None:
        topics = [f"kill/kept/{self.name}/{number}" for number in range(10)]
        with self._connected() as client, _Packets(client) as reader:
            self._subscribe(client, reader, topics)
            while not self._stop.is_set():
                told = []
                for topic in topics:
                    payload = self.sent[topic] = self._next()
                    assert FMQP.retained is not None  # noqa: S101 - for mypy
                    client.sendall(FMQP.retained(topic, payload))
                    told.append((topic, payload))
                for each in told:
                    packet = reader.next()
                    if packet != each:
                        raise ValueError(f"{packet} is no answer to {each}")
                    self.acknowledged.add(each)
                    self.kept[each[0]] = each[1]
                time.sleep(_REST_S)


class LightmqPublisher(Publisher):
    """Eight SENDs under way."""

    def _converse(self) -> None:
        with self._connected() as client, client.makefile("rb") as reader:
            name = self.name.encode()
            client.sendall(_lightmq(1, bytes([len(name)]) + name))
            if _frame(reader) != (2, b"\0"):
                raise OSError("not accepted yet: the broker still knows the former connection")
            waiting: deque[tuple[bytes, Publication]] = deque()
            while not self._stop.is_set() or waiting:
                if not self._stop.is_set() and len(waiting) < 8:
                    payload = self._next()
                    id = (self._count & 0xFFFF).to_bytes(2, "big")
                    waiting.append((id, (f"lightmq/{self.name}/up", payload)))
                    client.sendall(_lightmq(5, id + b"\0" + payload))
                    continue
                opcode, data = _frame(reader)
                id, publication = waiting.popleft()
                if (opcode, data[:2]) != (6, id):
                    raise ValueError(f"{opcode} {data.hex()} is no SENDRESP to {id.hex()}")
                self.acknowledged.add(publication)
                time.sleep(_REST_S / 4)


class MicroMsg2Publisher(Publisher):
    """SENDs to a topic and to a queue in turn, up to 32 without an ack, by batch-ack."""

    def _converse(self) -> None:
        destinations = (f"kill/micromsg2/{self.name}", f"kill/queue/{self.name}")
        with self._connected() as client, client.makefile("rb") as reader:
            _shake_hands(client, reader, self.name)
            waiting: deque[tuple[int, Publication]] = deque()
            sequence = 0
            while not self._stop.is_set() or waiting:
                if not self._stop.is_set() and len(waiting) < _MICROMSG2_WINDOW:
                    frames = b""
                    for _ in range(8):
                        sequence = sequence % 65535 + 1
                        to_queue = sequence % 2
                        payload = self._next()
                        waiting.append((sequence, (destinations[to_queue], payload)))
                        destination = destinations[to_queue]
                        frames += _send(sequence, destination, payload, topic=not to_queue)
                    client.sendall(frames)
                    time.sleep(_REST_S)
                    continue
                flags, index, length = _exactly(reader, 3)
                number = int.from_bytes(_exactly(reader, length), "big")
                if (flags, index, length) != (2, 1, 2):
                    raise ValueError(f"a frame of flags {flags} and index {index} is no ack")
                while True:
                    acknowledged, publication = waiting.popleft()
                    self.acknowledged.add(publication)
                    if acknowledged == number:
                        break


class QueueConsumer(Publisher):
    """Takes what MicroMsg2 publishers put into their queues, and acknowledges it.

    ``heard``: all that came, once or more.
    """

    def __init__(self, port: int, name: str, queues: Sequence[str]) -> None:
        super().__init__(port, name)
        self.heard: set[Publication] = set()
        self.queues = queues

    def drain(self, wanted: set[Publication], deadline_s: float) -> set[Publication]:
        """Wait until all of it was heard; returns what was not by then."""
        ends = time.monotonic() + deadline_s
        while not wanted <= self.heard and time.monotonic() < ends and self.failure is None:
            time.sleep(_AGAIN_S)
        return wanted - self.heard

    def _converse(self) -> None:
        with self._connected() as client, client.makefile("rb") as reader:
            client.settimeout(_ANSWER_S / 20)  # so that it sees its end
            _shake_hands(client, reader, self.name, ";pubsub")
            for queue in self.queues:
                text = f"subscribe;destination={queue.replace('/', '%2F')}".encode()
                client.sendall(bytes([1, len(text)]) + text)
            while not self._stop.is_set():
                flags, *sequence, length = _exactly(reader, 4)
                queue = _exactly(reader, length).decode()
                _exactly(reader, int.from_bytes(_exactly(reader, 2), "big"))
                payload = _exactly(reader, _exactly(reader, 1)[0])
                if flags or queue not in self.queues:
                    raise ValueError(f"a frame of flags {flags} to {queue!r} is no message of ours")
                self.heard.add((queue, payload))
                client.sendall(bytes([2, 1, 2, *sequence]))


class HttpPublisher(Publisher):
    """One POST after the other."""

    def _converse(self) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_S)
        topic = f"kill/http/{self.name}"
        with contextlib.closing(client):
            while not self._stop.is_set():
                payload = self._next()
                client.request("POST", f"/publish/{topic}", payload)
                answer = client.getresponse()
                answer.read()
                if answer.status == 200:
                    self.acknowledged.add((topic, payload))
                time.sleep(_REST_S)


class NumberedPublisher(Publisher):
    """Batches with a number, each repeated until it is acknowledged.

    ``batches``: by number, what is in it.
    """

    def __init__(self, port: int, name: str) -> None:
        super().__init__(port, name)
        self.batches: dict[int, list[Publication]] = {}
        self._number = 0
        self._is_acknowledged = True

    def _converse(self) -> None:
        client = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_S)
        with contextlib.closing(client):
            while not self._stop.is_set():
                if self._is_acknowledged:
                    self._number += 1
                    self._is_acknowledged = False
                    self.batches[self._number] = [
                        (f"kill/numbered/{self.name}", self._next()) for _ in range(_PER_BATCH)
                    ]
                batch = self.batches[self._number]
                body = b"".join(FMQP.publication(*each, 0) for each in batch)
                headers = {
                    "Content-Type": _PACKETS,
                    "Publisher": self.name,
                    "Publisher-Number": f"{self._number}.0",
                }
                client.request("POST", "/publish", body, headers)
                answer = client.getresponse()
                answer.read()
                if answer.status == 200:
                    self._is_acknowledged = True
                    self.acknowledged.update(batch)
                time.sleep(_REST_S)


class _Packets:
    """Reads FMQP publications from a socket."""

    def __init__(self, client: socket.socket) -> None:
        self._file = client.makefile("rb")

    def __enter__(self) -> "_Packets":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def next(self) -> Publication:
        head = _exactly(self._file, 6)
        rest = _exactly(self._file, head[1] + int.from_bytes(head[2:], "big"))
        return rest[: head[1]].decode(), rest[head[1] :]


def _subscription(topic: str) -> bytes:
    raw = topic.encode()
    return bytes([0x80, len(raw), 0, 0, 0, 0]) + raw


def _lightmq(opcode: int, payload: bytes) -> bytes:
    return bytes([opcode]) + len(payload).to_bytes(2, "big") + payload


def _shake_hands(client: socket.socket, reader: BinaryIO, identity: str, more: str = "") -> None:
    """Hold the handshake of MicroMsg2, as a client that requires batch-ack, and ``more``."""
    name, required = identity.encode(), f"batch-ack:max-count={_MICROMSG2_WINDOW}{more}".encode()
    lists = len(required).to_bytes(2, "big") + required + bytes(2)
    said = bytes([1, 0, 0, len(name)]) + name + lists  # twice: the answer changes nothing
    client.sendall(said)
    _exactly(reader, _exactly(reader, 4)[3])  # version, flags, length of the identity
    for _ in range(2):
        _exactly(reader, int.from_bytes(_exactly(reader, 2), "big"))
    client.sendall(said)


def _send(sequence: int, destination: str, payload: bytes, *, topic: bool) -> bytes:
    raw = (f"topic/{destination}" if topic else destination).encode()
    head = b"\0" + sequence.to_bytes(2, "big") + bytes([len(raw)]) + raw
    return head + bytes(2) + bytes([len(payload)]) + payload


def _frame(file: BinaryIO) -> tuple[int, bytes]:
    head = _exactly(file, 3)
    return head[0], _exactly(file, int.from_bytes(head[1:], "big"))


def _exactly(file: BinaryIO, count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        raise ConnectionError("the broker hung up")
    return data


def read_kept(port: int, topics: Sequence[str]) -> dict[str, bytes]:
    """Return what a broker has retained of these topics."""
    ready = "kill/ready/reader"
    kept: dict[str, bytes] = {}
    with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S) as client:
        words = [_subscription(topic) for topic in (*topics, ready)]
        client.sendall(b"".join(words) + FMQP.publication(ready, b"!", 0))
        with _Packets(client) as reader:
            while (packet := reader.next())[0] != ready:
                kept[packet[0]] = packet[1]
    return kept
