"""What really arrives at the broker's other end: a subscriber of its own, in a thread."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from host_broker.client import Client, ClientError, connect

_SLICE_S = 0.1
_ALIVE_S = 1.0  # so often it says a word, as brokers may close what is silent
_KEPT = 20_000
_CONNECT_S = 10.0
_JOIN_S = 5.0
_QUIET_S = 0.3  # in which nothing may come twice


@dataclass(frozen=True, slots=True)
class Seen:
    """One message as it arrived: topic, text, the host's monotonic clock in ns, and the bytes."""

    topic: str
    text: str
    at_ns: int
    payload: bytes = b""


def connect_fmqp(address: str) -> Client:
    """Connect to the broker at HOST:PORT. Raises ``ClientError``."""
    return connect(f"fmqp://{address}", timeout_s=_CONNECT_S)


class Observer:
    """Subscribed when the ``with`` block begins, and collecting until it ends.

    ``address`` is the broker's FMQP listener, HOST:PORT. Keeps the first 20 000 messages.
    """

    def __init__(self, address: str, topic: str) -> None:
        self._client = connect_fmqp(address)
        self._seen: list[Seen] = []
        self._news = threading.Condition()
        self._failure: ClientError | None = None
        self._stop = threading.Event()
        self._client.subscribe(topic)
        self._client.sync()  # the subscription is active when this returns
        self._thread = threading.Thread(target=self._collect, name="observer", daemon=True)

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(_JOIN_S)
        self._client.close()

    def seen(self) -> list[Seen]:
        """Return what has arrived so far, in order."""
        with self._news:
            return list(self._seen)

    def wait_for(self, condition: Callable[[list[Seen]], bool], timeout_s: float) -> bool:
        """Wait until ``condition`` holds for what has arrived; False if it does not in time.

        Raises ``ClientError`` when the observer's own connection fails.
        """
        until = time.monotonic() + timeout_s
        with self._news:
            while not condition(self._seen):
                if self._failure is not None:
                    raise self._failure
                if not self._news.wait(max(0.0, until - time.monotonic())):
                    return condition(self._seen)
            return True

    def settle(self, count: int, within_s: float) -> list[Seen]:
        """Wait for ``count`` messages, then a moment for one too many; return what has arrived."""
        if self.wait_for(lambda seen: len(seen) >= count, within_s):
            self.wait_for(lambda seen: len(seen) > count, _QUIET_S)
        return self.seen()

    def _collect(self) -> None:
        said = time.monotonic()
        try:
            while not self._stop.is_set():
                if time.monotonic() > said + _ALIVE_S:
                    said = time.monotonic()
                    self._client.publish("observer", b"")  # reaches nobody
                message = self._client.receive(_SLICE_S)
                if message is not None:
                    text = message.payload.decode(errors="backslashreplace")
                    self._keep(Seen(message.topic, text, message.received_ns, message.payload))
        except ClientError as error:
            with self._news:
                self._failure = error
                self._news.notify_all()

    def _keep(self, seen: Seen) -> None:
        with self._news:
            if len(self._seen) < _KEPT:
                self._seen.append(seen)
            self._news.notify_all()
