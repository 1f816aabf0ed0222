"""Subscriptions of which one knows when they became active, and what was kept until then."""

import secrets
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from host_broker.client import FmqpClient, Message, Timeout
from host_broker.protocols.fmqp.events import CACHE, WILL

ECHO_TOPICS = "motemq/echo/"  # what clients tell themselves, to see that the broker is there
_COUNT = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Heard:
    """One message, as a person wants to know it.

    ``cache`` and ``will`` are the flags as published, which FMQP forwards; ``kept`` says that the
    broker kept it when the subscription became active; ``feedback`` that it tells who listens.
    ``received_ns`` is on the clock of monotonic_ns().
    """

    topic: str
    payload: bytes
    received_ns: int
    cache: bool = False
    will: bool = False
    feedback: bool = False
    kept: bool = False

    @property
    def count(self) -> int | None:
        """The number a broker says: subscribers (feedback, A4) or a ``$/info/…`` value (R40, R42).

        None for everything else, and for feedback of brokers that do not count.
        """
        if self.feedback and not self.payload:
            return 0
        counts = self.feedback or self.topic.startswith("$/info/")
        if counts and len(self.payload) == _COUNT.size:
            (number,) = _COUNT.unpack(self.payload)
            return int(number)
        return None


class Listening:
    """Subscriptions to several topics.

    FMQP does not say whether a message was kept or is new, but a broker sends what it keeps before
    anything else (R21). So a message to ourselves, published right after the subscriptions, parts
    the two: what comes before it with the cache flag is what the broker keeps now.
    """

    def __init__(
        self,
        client: FmqpClient,
        topics: Iterable[str],
        *,
        feedback: bool = False,
        debug: bool = False,
        answer_within_s: float,
    ) -> None:
        """Subscribe. ``debug``: publishers that listen to feedback are not told. Raises
        ``BadArgument`` for what is no topic, ``ConnectionLost``."""
        self.active = False
        self._client = client
        self._answer_within_s = answer_within_s
        self._answer_by = time.monotonic() + answer_within_s
        self._marker = f"{ECHO_TOPICS}{secrets.token_hex(8)}"
        for topic in topics:
            client.subscribe(topic, feedback=feedback, debug=debug)
        client.subscribe(self._marker, debug=True)
        client.publish(self._marker, b"\x01")

    def next(self, timeout_s: float) -> Heard | None:
        """Return the next message; None after ``timeout_s``, and when ``active`` becomes true.

        Raises ``Timeout`` if the broker does not answer, ``ConnectionLost``.
        """
        if not self.active:
            timeout_s = min(timeout_s, max(0.0, self._answer_by - time.monotonic()))
        message = self._client.receive(timeout_s)
        if message is None:
            if not self.active and time.monotonic() >= self._answer_by:
                raise Timeout(
                    f"the broker did not answer within {self._answer_within_s:g} s of subscribing"
                    f"{self._client.doubt}"
                )
            return None
        if message.topic == self._marker and not message.feedback:
            self.active = True
            self._client.unsubscribe(self._marker)
            return None
        return self._heard(message)

    def _heard(self, message: Message) -> Heard:
        cache = bool(message.flags & CACHE)
        return Heard(
            message.topic,
            message.payload,
            message.received_ns,
            cache=cache,
            will=bool(message.flags & WILL),
            feedback=message.feedback,
            # Feedback is always kept (R46), its flags do not say so.
            kept=not self.active and (cache or message.feedback),
        )
