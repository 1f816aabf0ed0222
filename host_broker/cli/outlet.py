"""Where ``motemq pub`` puts its messages: an FMQP topic, or a LightMQ client's ``up``."""

import time
from typing import Protocol

import click

from host_broker.cli.failure import OutOfTime
from host_broker.cli.interest import Interest
from host_broker.client import FmqpClient, LightmqClient


class Outlet(Protocol):
    """Takes messages one by one; raises ``ClientError``s."""

    def send(self, payload: bytes) -> None:
        """Publish."""

    def watch(self, until: float = 0.0) -> None:
        """Listen to the broker until then (monotonic()), once in any case."""

    def finish(self) -> None:
        """Return when the broker has processed everything sent before."""


class FmqpOutlet:
    """Publishes under one topic; with ``wanted`` only while somebody subscribes to it."""

    def __init__(
        self,
        client: FmqpClient,
        topic: str,
        *,
        retain: bool,
        will: bool,
        wanted: bool,
        wait_s: float | None,
    ) -> None:
        """``wait_s``: the longest wait for a subscriber; then ``OutOfTime`` is raised."""
        self._client = client
        self._topic = topic
        self._retain = retain
        self._will = will
        self._wait_s = wait_s
        self._interest = Interest(client, topic) if wanted else None

    def send(self, payload: bytes) -> None:
        if self._interest is not None:
            until = None if self._wait_s is None else time.monotonic() + self._wait_s
            if not self._interest.wait(until, self._say_waiting):
                raise OutOfTime(f"nobody subscribed to {self._topic} within {self._wait_s:g} s")
        self._client.publish(self._topic, payload, cache=self._retain, will=self._will)

    def watch(self, until: float = 0.0) -> None:
        while True:
            remaining_s = max(0.0, until - time.monotonic())
            if self._interest is None:
                self._client.receive(remaining_s)  # nothing is subscribed to, nothing is lost
            else:
                self._interest.take(remaining_s)
            if time.monotonic() >= until:
                return

    def finish(self) -> None:
        self._client.sync()

    def _say_waiting(self) -> None:
        click.echo(f"pub: nobody subscribes to {self._topic} yet; waiting", err=True)


class LightmqOutlet:
    """SENDs; each message has been taken when its response is there."""

    def __init__(self, client: LightmqClient, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def send(self, payload: bytes) -> None:
        self._client.send(payload, self._timeout_s)

    def watch(self, until: float = 0.0) -> None:
        while True:
            # The broker's PINGs are answered in here; a SEND to us is not ours to answer.
            self._client.receive(max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                return

    def finish(self) -> None:
        """Nothing to wait for."""
