"""A whole broker on a desk: simulated time, no socket, every byte that leaves is kept."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from host_broker.access.access import Peer
from host_broker.broker import Broker
from host_broker.bus.publication import unpack
from host_broker.outputs import Buffer, Close, ExtraOutputs, Failure, Outputs, Record
from host_broker.protocols.fmqp.settings import FmqpSettings
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from host_broker.protocols.lightmq.settings import LightmqSettings
from host_broker.questions import Question
from host_broker.settings import BusSettings, Settings, SlowPolicy

Message = tuple[int, str, bytes]  # flags, topic, body


def packets(data: bytes) -> list[Message]:
    """Read whole stored publications."""
    return [(flags, topic.decode(), body) for flags, topic, body in unpack(bytes(data))]


@dataclass
class Done:
    """What an edge has done: ``Outputs``, with the buffers by who was sent them."""

    outputs: Outputs
    sends: dict[int, list[Buffer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for forward in self.outputs.forwards:
            assert forward.buffers, "an empty list of buffers"
            for receiver in forward.receivers:
                self.sends.setdefault(receiver, []).extend(forward.buffers)

    def __getattr__(self, name: str) -> Any:
        if name in Outputs.__slots__:
            return getattr(self.outputs, name)
        return getattr(self.outputs.extra or ExtraOutputs(), name)

    @property
    def rest_s(self) -> float:
        return max(self.rests.values(), default=0.0)


class Desk:
    """Runs a broker as its edge would, and remembers what the edge would have done.

    ``sections``: settings of other protocols, by section. ``slow``: connections that do not drain,
    so that what is paced waits. ``hung_up``: those whose peers have gone, unread as long as they
    are held.
    """

    def __init__(
        self,
        fmqp: dict[str, Any] | None = None,
        lightmq: dict[str, Any] | None = None,
        random_u16: Any = None,
        bus: dict[str, Any] | None = None,
        sections: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        self.broker = Broker(
            Settings.of(
                bus=BusSettings(**(bus or {})),
                # Whose signals count is a matter of few tests, what they do of many.
                fmqp=FmqpSettings(**({"signals": "loopback"} | (fmqp or {}))),
                lightmq=LightmqSettings(**(lightmq or {})),
                **(sections or {}),
            ),
            random_u16,
            **more,
        )
        self.now = 1000.0
        self.sent: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.records: list[Record] = []
        self.closes: list[Close] = []
        self.slow: set[int] = set()
        self.hung_up: set[int] = set()
        self.slow_policy: SlowPolicy = "pause"  # of those that are opened from now on
        self.held: set[tuple[int, str]] = set()
        self.behind: dict[int, bool | None] = {}
        self.left: set[int] = set()  # they are sent nothing more
        self.failures_expected = False  # otherwise a session that raises fails the test
        self.failures: list[Failure] = []
        self.questions: list[tuple[int, Question]] = []  # nobody has answered
        self._next = 1

    @property
    def discarded(self) -> Counter[str]:
        """What was discarded, of all protocols together."""
        return sum(self.broker.stats.discarded.values(), Counter())

    def open(self, protocol: str = "fmqp", loopback: bool = True, peer: Peer | None = None) -> int:
        connection = self._next
        self._next += 1
        self.broker.opened(
            connection, protocol, self.now, loopback, peer=peer, slow=self.slow_policy
        )
        self.done()
        return connection

    def lightmq(self, client_id: str) -> int:
        """Open a LightMQ connection and say CONNECT."""
        connection = self.open("lightmq")
        raw = client_id.encode()
        payload = bytes([len(raw)]) + raw
        self.send(connection, b"\x01" + len(payload).to_bytes(2, "big") + payload)
        return connection

    def send(self, connection: int, data: bytes) -> Done:
        self.broker.received(connection, data, self.now)
        return self.done()

    def pub(self, connection: int, topic: str, body: bytes, **flags: bool) -> Done:
        return self.send(connection, encode_publication(topic, body, **flags))

    def sub(self, connection: int, topic: str, **flags: bool) -> Done:
        return self.send(connection, encode_subscription(topic, **flags))

    def close(self, connection: int) -> Done:
        self.broker.closed(connection, self.now)
        self.left.add(connection)
        return self.done()

    def advance(self, seconds: float) -> None:
        """Let time pass as the edge does: tick at every deadline on the way."""
        until = self.now + seconds
        while (deadline := self.broker.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.broker.tick(self.now, self.is_held, self.hung_up.__contains__)
            self.done()
        self.now = until

    def is_held(self, connection: int) -> bool:
        """Whether a connection is not read because a queue is full."""
        return (connection, "queue") in self.held

    def done(self, _: None = None) -> Done:
        """Do what the broker wants done."""
        done = Done(self.broker.take())
        self.records += done.records
        self.questions += done.questions
        for failure in done.failures:
            if not self.failures_expected:
                raise failure.error
            self.failures.append(failure)
        for connection in self.left.intersection(done.sends):
            del done.sends[connection]
        for connection, buffers in done.sends.items():
            for buffer in buffers:
                self.sent[connection] += buffer
        self.closes += done.closes
        self.left.update(close.connection for close in done.closes)
        self.held.update(done.holds)
        self.held.difference_update(done.releases)
        self.behind.update(done.behind)
        for connection in done.paced:
            if connection not in self.slow:
                self.broker.proceed(connection, self.now)
                more = self.done()
                for receiver, buffers in more.sends.items():
                    done.sends.setdefault(receiver, []).extend(buffers)
        return done

    def got(self, connection: int) -> bytes:
        """Take what was sent to a connection since the last time."""
        return bytes(self.sent.pop(connection, b""))

    def messages(self, connection: int) -> list[Message]:
        """Take the FMQP publications sent to a connection since the last time."""
        return packets(self.got(connection))

    def journal(self) -> list[tuple[int, int, str, list[Message]]]:
        """Take the records since the last time, decoded: connection, protocol, client, messages."""
        records, self.records = self.records, []
        decoded = []
        for record in records:
            found = packets(bytes(record.body))
            assert len(found) == record.count
            decoded.append((record.connection, record.protocol, record.client, found))
        return decoded
