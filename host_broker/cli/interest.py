"""Whether anybody wants what we publish: feedback, kept up to date."""

import math
import time
from collections.abc import Callable

from host_broker.client import Client


class Interest:
    """Who subscribes to a topic, by any equivalent name.

    A subscriber of ``a/*`` is announced under ``a/*``, so the answer is a set of names: the topic
    is wanted while one of them is. The set is as large as the broker's own. On a new connection it
    is asked anew.
    """

    def __init__(self, client: Client, topic: str) -> None:
        """Ask to be told. Raises ``BadArgument``."""
        self._wanted_as: set[str] = set()
        self._feedback = client.begin_subscribing(topic, feedback=True)
        self._was_active = False

    def wait(self, until: float | None, waiting: Callable[[], None]) -> bool:
        """Return True as soon as somebody subscribes, False at ``until`` (monotonic(), or never).

        ``waiting`` is called if nobody is there yet, once for each connection.
        """
        while self._take(0.0) or not self._feedback.active:
            if not self._feedback.active:
                self._take(0.1)  # what is known is told before that
        if self._wanted_as:
            return True
        waiting()
        while not self._wanted_as:
            was_active = self._was_active
            remaining_s = math.inf if until is None else until - time.monotonic()
            if remaining_s <= 0:
                return False
            self._take(min(3600.0, remaining_s))
            if self._was_active and not was_active and not self._wanted_as:
                waiting()  # on a new connection, too
        return True

    def _take(self, timeout_s: float) -> bool:
        """Take one message if one comes in time. Raises ``ClientError``."""
        message = self._feedback.receive(timeout_s)
        active = self._feedback.active
        if self._was_active and not active:
            self._wanted_as.clear()
        self._was_active = active
        if message is not None:
            # Empty says that nobody is left; only some brokers' count says how many are.
            if message.payload:
                self._wanted_as.add(message.topic)
            else:
                self._wanted_as.discard(message.topic)
        return message is not None
