"""The FMQP client: publish, subscribe, receive; synchronous, everything with a deadline."""

import secrets
import struct
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType

from host_broker.address import Address
from host_broker.client.errors import ClientError, Timeout, callers_mistakes
from host_broker.client.link import Link, deadline_of
from host_broker.protocols.fmqp.codec import Codec, encode_publication, encode_subscription
from host_broker.protocols.fmqp.events import FEEDBACK, Publication, Publications
from host_broker.wire.violation import Violation

_LARGEST_BODY = 64 * 1024 * 1024  # bytes; larger ones are skipped, as the protocol allows
_INBOX_BYTES = 64 * 1024 * 1024  # of messages that arrive while we wait for an echo
_MESSAGE_OVERHEAD = 256  # what a small message costs beside its body
_ECHO = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Message:
    """A publication. ``flags`` as on the wire; ``received_ns`` on the clock of monotonic_ns()."""

    topic: str
    payload: bytes
    flags: int
    feedback: bool
    received_ns: int


class FmqpClient:
    """A connection to an FMQP broker. Made by ``connect``; a context manager that closes.

    FMQP acknowledges nothing: a return from ``publish`` or ``subscribe`` means the bytes were taken
    by the kernel. ``sync`` returns when the broker has processed them all. Not for several threads.
    Every method raises ``ConnectionLost`` when the connection has ended, and ``BadArgument`` for a
    topic that FMQP cannot carry.
    """

    def __init__(self, address: Address, timeout_s: float) -> None:
        """Connect. ``timeout_s`` bounds this and whatever has no timeout of its own."""
        self._timeout_s = timeout_s
        self._link = Link(address, timeout_s)
        self._codec = Codec("client", _LARGEST_BODY, (1 << 32) - 1)
        self._inbox: deque[Message] = deque()
        self._inbox_bytes = 0
        self._echo_topic = f"motemq/echo/{secrets.token_hex(8)}"
        self._echo_subscribed = False
        self._echo_count = 0
        self._echoed = 0  # the latest echo that came back

    def publish(
        self, topic: str, payload: bytes, *, cache: bool = False, will: bool = False
    ) -> None:
        """Publish. ``cache``: the broker keeps it for later subscribers (an empty payload
        clears it). ``will``: the broker publishes it when this connection has ended, however."""
        with callers_mistakes():
            packet = encode_publication(topic, payload, cache=cache, will=will)
        self._send(packet)

    def subscribe(self, topic: str, *, feedback: bool = False, debug: bool = False) -> None:
        """Subscribe; a level ``*`` is any level. ``feedback``: be told who listens to the topic
        instead of what is said. ``debug``: without being counted in the feedback of others."""
        with callers_mistakes():
            packet = encode_subscription(topic, feedback=feedback, debug=debug)
        self._send(packet)

    def unsubscribe(self, topic: str, *, feedback: bool = False) -> None:
        """Remove exactly this subscription."""
        with callers_mistakes():
            packet = encode_subscription(topic, unsubscribe=True, feedback=feedback)
        self._send(packet)

    def receive(self, timeout_s: float) -> Message | None:
        """Return the next message, None if none comes within ``timeout_s``; 0 does not wait."""
        deadline = deadline_of(timeout_s)
        while not self._inbox:
            if not self._read(deadline):
                return None
        message = self._inbox.popleft()
        self._inbox_bytes -= len(message.payload) + _MESSAGE_OVERHEAD
        return message

    def ping(self, timeout_s: float) -> float:
        """Return the seconds from publishing a message to getting it back from the broker.

        FMQP has no ping: the message goes to a topic that only this client subscribes to, below
        ``motemq/echo/``. Raises ``Timeout``.
        """
        deadline = deadline_of(timeout_s)
        if not self._echo_subscribed:
            self._echo_subscribed = True
            self.subscribe(self._echo_topic, debug=True)
            self._echo(deadline)  # the measured one must not wait for the subscription
        return self._echo(deadline)

    def sync(self, timeout_s: float | None = None) -> None:
        """Return when the broker has processed everything this connection sent before.

        Raises ``Timeout`` after ``timeout_s`` (default: that of ``connect``).
        """
        self.ping(self._timeout_s if timeout_s is None else timeout_s)

    def close(self) -> None:
        """Close the connection (FIN); the broker publishes the wills."""
        self._link.close()

    def abort(self) -> None:
        """Reset the connection (RST), as when a client dies; the broker publishes the wills."""
        self._link.abort()

    def __enter__(self) -> "FmqpClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _send(self, data: bytes) -> None:
        self._link.send(data, deadline_of(self._timeout_s))

    def _echo(self, deadline: float) -> float:
        self._echo_count += 1
        packet = encode_publication(self._echo_topic, _ECHO.pack(self._echo_count))
        started = time.perf_counter()
        self._link.send(packet, deadline)
        while self._echoed < self._echo_count:
            if not self._read(deadline):
                raise Timeout(f"{self._link.address} did not echo a message before the deadline")
        return time.perf_counter() - started

    def _read(self, deadline: float) -> bool:
        data = self._link.read(deadline)
        if data is None:
            return False
        received_ns = time.monotonic_ns()
        for event in self._codec.receive_data(data):
            if isinstance(event, Publications):
                for publication in event.each():
                    self._take(publication, received_ns)
            elif isinstance(event, Publication):
                self._take(event, received_ns)
            elif isinstance(event, Violation) and event.fatal:
                raise self._link.broken(f"the broker broke FMQP ({event.rule}: {event.reason})")
            # R4: what else is incorrect, e.g. a subscription from a broker, is discarded.
        return True

    def _take(self, publication: Publication, received_ns: int) -> None:
        topic = publication.topic.decode()
        feedback = bool(publication.flags & FEEDBACK)
        if topic == self._echo_topic and not feedback:
            if len(publication.body) == _ECHO.size:
                (self._echoed,) = _ECHO.unpack(publication.body)
            return
        self._inbox_bytes += len(publication.body) + _MESSAGE_OVERHEAD
        if self._inbox_bytes > _INBOX_BYTES:
            self._link.abort()
            raise ClientError(
                f"more than {_INBOX_BYTES >> 20} MiB of messages are unread; the connection was "
                "closed; call receive() more often, or ping and sync on another connection"
            )
        self._inbox.append(
            Message(topic, publication.body, publication.flags, feedback, received_ns)
        )
