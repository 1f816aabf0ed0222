"""A whole broker on a desk: simulated time, no socket, every byte that leaves is kept."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

from host_broker.broker import Broker
from host_broker.bus.publication import unpack
from host_broker.outputs import Close, Outputs, Record
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from host_broker.settings import FmqpSettings, LightmqSettings, Settings

Message = tuple[int, str, bytes]  # flags, topic, body


def packets(data: bytes) -> list[Message]:
    """Read whole stored publications."""
    return [(flags, topic.decode(), body) for flags, topic, body in unpack(bytes(data))]


class Desk:
    """Runs a broker as its edge would, and remembers what the edge would have done."""

    def __init__(
        self,
        fmqp: dict[str, Any] | None = None,
        lightmq: dict[str, Any] | None = None,
        random_u16: Any = None,
    ) -> None:
        self.broker = Broker(
            replace(
                Settings(),
                fmqp=FmqpSettings(**(fmqp or {})),
                lightmq=LightmqSettings(**(lightmq or {})),
            ),
            random_u16,
        )
        self.now = 1000.0
        self.sent: defaultdict[int, bytearray] = defaultdict(bytearray)
        self.records: list[Record] = []
        self.closes: list[Close] = []
        self._next = 1

    def open(self, protocol: str = "fmqp", loopback: bool = True) -> int:
        connection = self._next
        self._next += 1
        self.done(self.broker.opened(connection, protocol, self.now, loopback))
        return connection

    def lightmq(self, client_id: str) -> int:
        """Open a LightMQ connection and say CONNECT."""
        connection = self.open("lightmq")
        raw = client_id.encode()
        payload = bytes([len(raw)]) + raw
        self.send(connection, b"\x01" + len(payload).to_bytes(2, "big") + payload)
        return connection

    def send(self, connection: int, data: bytes) -> Outputs:
        return self.done(self.broker.received(connection, data, self.now))

    def pub(self, connection: int, topic: str, body: bytes, **flags: bool) -> Outputs:
        return self.send(connection, encode_publication(topic, body, **flags))

    def sub(self, connection: int, topic: str, **flags: bool) -> Outputs:
        return self.send(connection, encode_subscription(topic, **flags))

    def close(self, connection: int) -> Outputs:
        return self.done(self.broker.closed(connection, self.now))

    def advance(self, seconds: float) -> None:
        """Let time pass as the edge does: tick at every deadline on the way."""
        until = self.now + seconds
        while (deadline := self.broker.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.done(self.broker.tick(self.now))
        self.now = until

    def done(self, outputs: Outputs) -> Outputs:
        self.records += outputs.records
        for connection, buffers in outputs.sends.items():
            assert buffers, "an empty list of buffers"
            for buffer in buffers:
                self.sent[connection] += buffer
        self.closes += outputs.closes
        return outputs

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
