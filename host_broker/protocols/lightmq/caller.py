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
from host_broker.bus.publication import unpack
from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.codec import MAX_SENDRESP, Codec
from host_broker.protocols.lightmq.paths import level, path
from host_broker.protocols.lightmq.use import Use

MARK = ">"


class Caller(Use):
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
            return [Disconnect("it makes more calls at once than lightmq.max_pending")]
        self._calls[id] = b""
        request, reply, done = self._topics(id)
        return [Subscribe(reply, quiet=True), Subscribe(done, quiet=True), Publish(request, data)]

    def responded(self, id: int, data: bytes) -> Sequence[Command]:
        """It was never asked."""
        return [Discard("R17")]

    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        """Keep a reply until the broker says that the call is done."""
        commands: list[Command] = []
        for _, topic, body in unpack(run):
            tag = topic.rpartition(b"/")[2]
            connection, _, number = tag.partition(b"-")
            id = int(number) if number.isdigit() and len(number) <= 5 else -1
            if connection != b"%d" % self._connection or id not in self._calls:
                continue  # somebody published under a wildcard
            _, reply, done = self._topics(id)
            if topic == reply:
                self._calls[id] = body[:MAX_SENDRESP]
            elif topic == done:
                commands += [Unsubscribe(reply), Unsubscribe(done), self._done(id, body)]
                if type(commands[-1]) is Disconnect:
                    break
        return commands

    def _done(self, id: int, how: bytes) -> Command:
        reply = self._calls.pop(id)
        if how == b"answered":
            return Send(self._codec.sendresp(id, reply))
        return Disconnect(f"{self._called!r} did not answer: {how.decode(errors='replace')}")

    def _topics(self, id: int) -> Sequence[bytes]:
        tag = b"/%d-%d" % (self._connection, id)
        return [path(self._level, end) + tag for end in ("request", "reply", "done")]
