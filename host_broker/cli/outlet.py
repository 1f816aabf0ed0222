"""Where ``motemq pub`` puts its messages: an FMQP topic, or a LightMQ client's ``up``."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from host_broker.cli.failure import OutOfTime
from host_broker.cli.interest import Interest
from host_broker.client import FmqpClient, LightmqClient


class Outlet(Protocol):
    """Takes messages one by one; everything raises ``ClientError``s."""

    def send(self, payload: bytes) -> bool:
        """Publish; return whether it is known already that the broker processed it."""

    def watch(self, until: float) -> None:
        """Listen to the broker until then (monotonic()), once in any case."""

    def mark(self) -> int:
        """Return a number that ``reached`` shows when everything sent before is processed."""

    @property
    def reached(self) -> int:
        """The latest mark that was reached, as far as listening has shown."""

    def finish(self) -> None:
        """Return when the broker has processed everything sent before."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes when the connection ends."""

    topic: str
    payload: bytes
    retain: bool


@dataclass(frozen=True, slots=True)
class FmqpManner:
    """How messages are published under ``topic``. ``wait_s``: the longest wait for a subscriber
    if they must be ``wanted``; ``will``: each is a will itself; ``last_will`` comes beside them."""

    topic: str
    retain: bool = False
    will: bool = False
    last_will: Will | None = None
    wanted: bool = False
    wait_s: float | None = None


class FmqpOutlet:
    """Publishes under one topic; if that is the manner, only while somebody subscribes to it."""

    def __init__(self, client: FmqpClient, manner: FmqpManner, say: Callable[[str], None]) -> None:
        """Leave the last will with the broker. Raises ``BadArgument`` for a wrong topic."""
        self._client = client
        self._manner = manner
        self._say = say
        if manner.last_will is not None:
            last = manner.last_will
            client.publish(last.topic, last.payload, cache=last.retain, will=True)
        self._interest = Interest(client, manner.topic) if manner.wanted else None

    def send(self, payload: bytes) -> bool:
        manner = self._manner
        if self._interest is not None:
            until = None if manner.wait_s is None else time.monotonic() + manner.wait_s
            if not self._interest.wait(until, self._say_waiting):
                raise OutOfTime(f"nobody subscribed to {manner.topic} within {manner.wait_s:g} s")
        self._client.publish(manner.topic, payload, cache=manner.retain, will=manner.will)
        return False

    def watch(self, until: float) -> None:
        while True:
            remaining_s = max(0.0, until - time.monotonic())
            if self._interest is None:
                self._client.receive(remaining_s)  # nothing is subscribed to, nothing is lost
            else:
                self._interest.take(remaining_s)
            if time.monotonic() >= until:
                return

    def mark(self) -> int:
        return self._client.checkpoint()

    @property
    def reached(self) -> int:
        return self._client.reached

    def finish(self) -> None:
        self._client.sync()

    def close(self) -> None:
        self._client.close()

    def _say_waiting(self) -> None:
        self._say(f"nobody subscribes to {self._manner.topic} yet; waiting")


class LightmqOutlet:
    """SENDs; each message has been taken when its response is there."""

    def __init__(self, client: LightmqClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def send(self, payload: bytes) -> bool:
        self._client.send(payload, self._timeout_s)
        return True

    def watch(self, until: float) -> None:
        while True:
            # The broker's PINGs are answered in here; a SEND to us is not ours to answer.
            self._client.receive(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                return

    def mark(self) -> int:
        return 0

    @property
    def reached(self) -> int:
        return 0

    def finish(self) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        self._client.close()
