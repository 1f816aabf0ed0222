"""Another protocol inside LightMQ: SENDs carry its bytes in order, SENDRESP says they were taken.

The peer's session within sees a connection as any other; it ends when the LightMQ connection does,
so whoever stops answering PINGs has its last wills published. The protocol's messages must look
like the stored form (``bus.publication``), as FMQP's do: that is how their ends are found.
"""

from collections.abc import Iterable, Sequence

from host_broker.bus.commands import Command, Disconnect, Send
from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import HEADER
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.role import Role
from host_broker.protocols.lightmq.shared import Shared


class Tunnel(Role):
    """Of one connection: SENDs of ``lightmq.tunnel_bytes``; longer messages take several.

    ``present``: others are told of the client.
    """

    def __init__(self, inner: Session, codec: Codec, shared: Shared, present: bool) -> None:
        self.present = present
        self._inner = inner
        self._codec = codec
        self._most = shared.settings.tunnel_bytes
        self._responds = shared.settings.send_responses
        self._id = shared.random_u16()

    def sent(self, id: int, data: bytes, now: float) -> Sequence[Command]:
        """Read on in the tunnelled protocol; respond when all of it has taken effect."""
        commands = self._wrapped(self._inner.received(data, now))
        if self._responds and not (commands and type(commands[-1]) is Disconnect):
            commands.append(Send(self._codec.sendresp(id, b"")))
        self.deadline = self._inner.deadline
        return commands

    def responded(self, id: int, data: bytes) -> Sequence[Command]:
        """It has taken a SEND, which TCP would have told us anyway."""
        return NOTHING

    def deliver(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """SEND the publications, whole if they fit."""
        if self._inner.verbatim:
            return [Send(self._spelled(delivery.run))]
        commands = self._wrapped(self._inner.deliver(delivery, now))
        self.deadline = self._inner.deadline
        return commands

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """Say so in the tunnelled protocol."""
        return self._wrapped(self._inner.refused(action, topic))

    def tick(self, now: float) -> Sequence[Command]:
        """Do what the tunnelled session wanted to do now."""
        commands = self._wrapped(self._inner.tick(now))
        self.deadline = self._inner.deadline
        return commands

    def ended(self, now: float) -> Sequence[Command]:
        """End the session within: its wills come true."""
        self.deadline = None
        return self._inner.closed(now)

    def _wrapped(self, commands: Iterable[Command]) -> list[Command]:
        return [
            Send(self._spelled(bytes(each.data)), each.acknowledges) if type(each) is Send else each
            for each in commands
        ]

    def _spelled(self, run: bytes) -> bytes:
        """As many whole packets in a SEND as fit; one that fits none has several to itself."""
        most = self._most
        frames = []
        start = position = 0
        while position < len(run):
            _, topic_length, body_length = HEADER.unpack_from(run, position)
            end = position + HEADER.size + topic_length + body_length
            if end - start > most and position > start:
                frames.append(self._send(run[start:position]))
                start = position
            if end - start > most:
                frames += [
                    self._send(run[at : min(at + most, end)]) for at in range(start, end, most)
                ]
                start = end
            position = end
        if start < len(run):
            frames.append(self._send(run[start:]))
        return b"".join(frames)

    def _send(self, data: bytes) -> bytes:
        self._id = (self._id + 1) & 0xFFFF
        return self._codec.send(self._id, data)
