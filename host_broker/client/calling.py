"""Ask a LightMQ client that is connected to a broker, over LightMQ or FMQP, and get its response.

Over LightMQ we are a client whose SENDs are for another. Over FMQP the same is three topics:
``lightmq/ID/request/TAG`` asks, ``lightmq/ID/reply/TAG`` is the response if it has data, and
``lightmq/ID/done/TAG`` says how it ended.
"""

import secrets
import time
from types import TracebackType
from typing import Literal, Protocol, Self

from host_broker.address import CARRIED, Address, parse_address
from host_broker.client.carried import CarriedLine
from host_broker.client.errors import (
    BadArgument,
    ClientError,
    ConnectionLost,
    NotThere,
    Refused,
    Timeout,
)
from host_broker.client.fmqp import FmqpClient
from host_broker.client.lightmq import LightmqClient
from host_broker.client.link import Link, deadline_of
from host_broker.protocols.lightmq.codec import MAX_CLIENT_ID, MAX_SEND
from host_broker.protocols.lightmq.dialects import Refusal
from host_broker.protocols.lightmq.paths import level, path


class _Way(Protocol):
    def ask(self, data: bytes, deadline: float) -> bytes:
        """Return the response."""

    def wait(self, until: float) -> None:
        """Answer the broker's PINGs until then."""

    def close(self) -> None:
        """Close the connection."""


class Call:
    """A connection for calls of one client; a context manager that closes. Not for threads."""

    def __init__(
        self,
        url: str,
        called: str,
        *,
        timeout_s: float = 5.0,
        dialect: Literal["spec", "gbaranski"] = "spec",
    ) -> None:
        """Connect to the broker at ``url`` (as for ``connect``) to call the client ``called``.

        ``timeout_s`` bounds connecting. Raises ``NotThere``, and what ``connect`` raises.
        """
        address = parse_address(url)
        size = len(called.encode("utf-8", "surrogateescape"))
        if not 0 < size <= MAX_CLIENT_ID:
            raise BadArgument(f"a client id is 1 to {MAX_CLIENT_ID} bytes of UTF-8, this is {size}")
        self._way: _Way = (
            _Lightmq(address, called, timeout_s, dialect)
            if address.protocol == "lightmq"
            else _Fmqp(address, called, timeout_s, dialect)
        )

    def ask(self, data: bytes, timeout_s: float) -> bytes:
        """SEND ``data`` (1 to 65463 bytes) to the client and return its response, maybe empty.

        Raises ``Timeout`` if none comes in time, ``NotThere``, ``ConnectionLost``; ``BadArgument``
        for data that cannot be sent.
        """
        if not 0 < len(data) <= MAX_SEND:
            raise BadArgument(f"a call carries 1 to {MAX_SEND} bytes, not {len(data)}")
        return self._way.ask(data, deadline_of(timeout_s))

    def wait(self, until: float = 0.0) -> None:
        """Stay connected until then (monotonic()): the broker's PINGs want answers."""
        self._way.wait(until)

    def close(self) -> None:
        """Close the connection."""
        self._way.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Lightmq:
    def __init__(
        self,
        address: Address,
        called: str,
        timeout_s: float,
        dialect: Literal["spec", "gbaranski"],
    ) -> None:
        self._called = called
        try:
            self._client = LightmqClient(address, timeout_s, dialect, calls=called)
        except Refused as error:
            if error.code != Refusal.UNAVAILABLE.value:
                raise
            raise NotThere(
                f"{address}: no client '{called}' takes calls there now; is it connected?"
            ) from error

    def ask(self, data: bytes, deadline: float) -> bytes:
        try:
            return self._client.send(data, max(0.0, deadline - time.monotonic()))
        except ConnectionLost as error:
            # The broker closes a call that fails: LightMQ has no error packet.
            raise NotThere(
                f"{self._client.address} closed the call; '{self._called}' has gone or did not "
                "answer, or the broker is stopping"
            ) from error

    def wait(self, until: float) -> None:
        while True:
            self._client.receive(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                return

    def close(self) -> None:
        self._client.close()


class _Fmqp:
    def __init__(
        self,
        address: Address,
        called: str,
        timeout_s: float,
        dialect: Literal["spec", "gbaranski"],
    ) -> None:
        self._called = called
        self._level = level(called)
        line = (
            CarriedLine(LightmqClient(address, timeout_s, dialect))
            if address.protocol == CARRIED
            else Link(address, timeout_s)
        )
        client = self._client = FmqpClient(line, timeout_s)
        # Whoever takes requests is interest in them, and interest is told by feedback (R45).
        self._interest = self._topic("request/*")
        self._there = False
        try:
            client.subscribe(self._interest, feedback=True)
            client.sync()
            self.wait(0.0)
            self._require_there()
        except BaseException:
            client.close()
            raise

    def ask(self, data: bytes, deadline: float) -> bytes:
        tag = secrets.token_hex(8)
        request, reply, done = (self._topic(f"{end}/{tag}") for end in ("request", "reply", "done"))
        self._require_there()
        for topic in (reply, done):
            self._client.subscribe(topic, debug=True)
        try:
            self._client.publish(request, data)
            answer = b""
            while (message := self._next(deadline)) is not None:
                topic, payload = message
                if topic == reply:
                    answer = payload
                elif topic == done:
                    return self._judged(payload, answer)
            raise Timeout(f"'{self._called}' did not answer in time")
        finally:
            self._forget(reply, done)

    def wait(self, until: float) -> None:
        while self._next(until) is not None:
            continue

    def close(self) -> None:
        self._client.close()

    def _judged(self, how: bytes, answer: bytes) -> bytes:
        if how == b"answered":
            return answer
        if how == b"unanswered":
            raise Timeout(f"'{self._called}' did not answer in the time that the broker allows")
        raise NotThere(f"'{self._called}' went before it had answered")

    def _next(self, deadline: float) -> tuple[str, bytes] | None:
        """Return the next publication; what tells who is there is noted."""
        while True:
            message = self._client.receive(max(0.0, deadline - time.monotonic()))
            if message is None:
                return None
            if not message.feedback:
                return message.topic, message.payload
            if message.topic == self._interest:
                self._there = bool(message.payload)

    def _require_there(self) -> None:
        if not self._there:
            where = self._client.address
            raise NotThere(
                f"{where}: no client '{self._called}' takes calls there now; is it connected?"
            )

    def _forget(self, *topics: str) -> None:
        try:
            for topic in topics:
                self._client.unsubscribe(topic)
        except ClientError:
            return  # the connection is lost; that was told, or the next call tells

    def _topic(self, end: str) -> str:
        return path(self._level, end).decode()
