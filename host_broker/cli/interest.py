"""Whether anybody wants what we publish: FMQP's feedback, kept up to date."""

import time
from collections.abc import Callable

from host_broker.client import FmqpClient


class Interest:
    """Who subscribes to a topic, by any equivalent name.

    A subscriber of ``a/*`` is announced under ``a/*`` (R49), so the answer is a set of names:
    the topic is wanted while one of them is. The set is as large as the broker's own.
    """

    def __init__(self, client: FmqpClient, topic: str) -> None:
        """Ask to be told. Raises ``BadArgument``."""
        self._client = client
        self._wanted_as: set[str] = set()
        client.subscribe(topic, feedback=True)

    def wait(self, until: float | None, waiting: Callable[[], None]) -> bool:
        """Return True as soon as somebody subscribes, False at ``until`` (monotonic(), or never).

        ``waiting`` is called once if nobody is there yet.
        """
        while self.take(0.0):
            pass  # all that has come, the last word counts
        if self._wanted_as:
            return True
        waiting()
        while not self._wanted_as:
            remaining_s = 3600.0 if until is None else until - time.monotonic()
            if remaining_s <= 0:
                return False
            self.take(remaining_s)
        return True

    def take(self, timeout_s: float) -> bool:
        """Take one message if one comes in time. Raises ``ConnectionLost``."""
        message = self._client.receive(timeout_s)
        if message is not None and message.feedback:
            # A4: empty says that nobody is left; only a MoteMQ broker's count says how many are.
            if message.payload:
                self._wanted_as.add(message.topic)
            else:
                self._wanted_as.discard(message.topic)
        return message is not None
