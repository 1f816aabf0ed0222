"""A connection that calls another client: what it SENDs is sent there, the response comes back.

LightMQ has no addressee, so the ClientID names it: ``desk>kitchen`` is ``desk``, who calls
``kitchen``. On the bus that is what any other program does: ``lightmq/kitchen/request/TAG``.
"""

from collections.abc import Callable, Sequence

from host_broker.bus.commands import (
    Command,
    Discard,
    Disconnect,
    Publish,
    Send,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Delivery
from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.codec import MAX_SENDRESP, Codec
from host_broker.protocols.lightmq.paths import level, path
from host_broker.protocols.lightmq.role import Role

MARK = ">"


class Caller(Role):
    """Of one connection. LightMQ has no error packet: a call that fails closes it."""

    present = False

    def __init__(
        self,
        connection: ConnectionId,
        called: str,
        codec: Codec,
        max_pending: int,
        connected: Callable[[], bool],
    ) -> None:
        """``connected``: whether the client that is called is there."""
        self._connection = connection
        self._called = called
        self._level = level(called)
        self._codec = codec
        self._max_pending = max_pending
        self._connected = connected
        self._calls: dict[int, bytes] = {}  # ids of SENDs that await the end of their call: reply

    def sent(self, id: int, data: bytes, now: float) -> Sequence[Command]:
        """Ask. An empty request is not delivered (FMQP R18), so nothing is awaited."""
        if not data:
            return [Send(self._codec.sendresp(id, b""))]
        if not self._connected():
            return [Disconnect(f"{self._called!r} is not connected")]
        if id in self._calls:
            return [Disconnect(f"R18: SEND {id} was sent twice and cannot be told apart")]
        if len(self._calls) >= self._max_pending:
            return [Disconnect("lightmq.max_pending: it makes more calls at once")]
        self._calls[id] = b""
        request, reply, done = self._topics(id)
        return [
            Subscribe(reply, 2 * id, quiet=True),
            Subscribe(done, 2 * id + 1, quiet=True),
            Publish(request, data),
        ]

    def responded(self, id: int, data: bytes) -> Sequence[Command]:
        """It was never asked."""
        return [Discard("R17")]

    def deliver(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """Keep a reply until the broker says that the call is done."""
        commands: list[Command] = []
        for _, topic, body in delivery.each():
            for subscription in delivery.subscriptions:
                id, is_done = divmod(subscription, 2)
                if id not in self._calls:
                    continue
                _, reply, done = self._topics(id)
                if topic == reply and not is_done:
                    self._calls[id] = body[:MAX_SENDRESP]
                elif topic == done and is_done:
                    commands += [
                        Unsubscribe(reply, 2 * id),
                        Unsubscribe(done, 2 * id + 1),
                        self._done(id, body),
                    ]
                    if type(commands[-1]) is Disconnect:
                        return commands
                # Anything else was published under a wildcard.
        return commands

    def _done(self, id: int, how: bytes) -> Command:
        reply = self._calls.pop(id)
        if how == b"answered":
            return Send(self._codec.sendresp(id, reply), acknowledges=True)
        return Disconnect(f"{self._called!r} did not answer: {how.decode(errors='replace')}")

    def _topics(self, id: int) -> Sequence[bytes]:
        tag = b"/%d-%d" % (self._connection, id)
        return [path(self._level, end) + tag for end in ("request", "reply", "done")]
