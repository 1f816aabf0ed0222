"""The FMQP client: publish, subscribe, receive; synchronous, everything with a deadline."""

import secrets
import struct
import time
from dataclasses import dataclass

from host_broker.client.connection import Connection
from host_broker.client.errors import Timeout, callers_mistakes
from host_broker.client.link import Line, deadline_of
from host_broker.protocols.fmqp.codec import Codec
from host_broker.protocols.fmqp.events import FEEDBACK, Publication, Publications
from host_broker.protocols.fmqp.spelling import encode_publication, encode_subscription
from host_broker.wire.violation import Violation

_LARGEST_BODY = 64 * 1024 * 1024  # bytes; larger ones are skipped, as the protocol allows
_ECHO = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Message:
    """A publication. ``flags`` as on the wire; ``received_ns`` on the clock of monotonic_ns()."""

    topic: str
    payload: bytes
    flags: int
    feedback: bool
    received_ns: int


class FmqpClient(Connection[Message]):
    """A connection to an FMQP broker. Made by ``connect``; a context manager that closes.

    FMQP acknowledges nothing: a return from ``publish`` or ``subscribe`` means the bytes were taken
    by the kernel. ``sync`` returns when the broker has processed them all. Not for several threads.
    Every method raises ``ConnectionLost`` when the connection has ended, and ``BadArgument`` for a
    topic that FMQP cannot carry.
    """

    def __init__(self, link: Line, timeout_s: float) -> None:
        """Speak over ``link``; ``timeout_s`` bounds whatever has no timeout of its own."""
        super().__init__(link)
        self._timeout_s = timeout_s
        self._codec = Codec("client", _LARGEST_BODY, (1 << 32) - 1)
        self._echo_topic = f"motemq/echo/{secrets.token_hex(8)}"
        self._echo_subscribed = False
        self._echo_count = 0
        self._echoed = 0  # the latest echo that came back
        # FMQP has no greeting, and an auto:// listener must know what it is before it waits for us
        # for ever. An empty publication is the least there is; nobody is sent it.
        self._send(encode_publication(self._echo_topic, b""))

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
        return self._next_kept()

    def ping(self, timeout_s: float) -> float:
        """Return the seconds from publishing a message to getting it back from the broker.

        FMQP has no ping: the message goes to a topic that only this client subscribes to, below
        ``motemq/echo/``. Raises ``Timeout``.
        """
        deadline = deadline_of(timeout_s)
        if not self._echo_subscribed:
            self._await_echo(self.checkpoint(), deadline)  # what is measured must not wait for it
        started = time.perf_counter()
        self._await_echo(self.checkpoint(), deadline)
        return time.perf_counter() - started

    def checkpoint(self) -> int:
        """Send a message to ourselves and do not wait: ``reached`` becomes the returned number
        (or more) when the broker has processed everything this connection sent before.

        It comes back while this client reads, i.e. in ``receive``, ``ping`` and ``sync``.
        """
        if not self._echo_subscribed:
            self._echo_subscribed = True
            self.subscribe(self._echo_topic, debug=True)
        self._echo_count += 1
        self._send(encode_publication(self._echo_topic, _ECHO.pack(self._echo_count)))
        return self._echo_count

    @property
    def reached(self) -> int:
        """The latest checkpoint that came back; 0 before the first."""
        return self._echoed

    def sync(self, timeout_s: float | None = None) -> None:
        """Return when the broker has processed everything this connection sent before.

        Raises ``Timeout`` after ``timeout_s`` (default: that of ``connect``).
        """
        self.ping(self._timeout_s if timeout_s is None else timeout_s)

    def _send(self, data: bytes) -> None:
        self._link.send(data, deadline_of(self._timeout_s))

    def _await_echo(self, number: int, deadline: float) -> None:
        while self._echoed < number:
            if not self._read(deadline):
                raise Timeout(
                    f"{self._link.address} did not echo a message before the deadline"
                    f"{self._link.doubt()}"
                )

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
        message = Message(topic, publication.body, publication.flags, feedback, received_ns)
        self._keep(message, len(publication.body))
