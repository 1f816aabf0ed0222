"""Which of the messages that come ``motemq sub`` prints, and when it has enough."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from host_broker.bus.topic_filter import TopicFilter
from host_broker.cli.message_format import Format
from host_broker.cli.standard_output import put
from host_broker.client import ECHO_TOPICS, Client, Message, Subscribing, Timeout

_FOREVER_S = 3600.0  # one wait; there is always another
SERVICE_TOPICS = "$/"  # the broker's own


@dataclass(slots=True)
class Wanted:
    """What to print and until when; lives through reconnections.

    ``count`` messages at most; ``end`` on the clock of monotonic(). ``retained_only``: what is
    kept, and no more; ``no_retained``: the rest; ``remove_retained``: clear it when printed.
    ``everything``: nobody asked for a topic, so not for the broker's own and clients' echoes.
    """

    count: int | None
    end: float | None
    retained_only: bool
    no_retained: bool
    remove_retained: bool
    everything: bool
    unwanted: TopicFilter
    format: Format
    answer_within_s: float
    printed: int = 0

    def print_from(
        self, client: Client, subscription: Subscribing, subscribed: Callable[[], None]
    ) -> None:
        """Print until it is enough; ``subscribed`` is called whenever the subscription becomes
        active. Raises ``ClientError``."""
        removed = False
        answer_by = time.monotonic() + self.answer_within_s
        never_active = True
        while self._more():
            was_active = subscription.active
            wait_s = self._wait_s()
            if never_active:
                wait_s = min(wait_s, max(0.0, answer_by - time.monotonic()))
            message = subscription.receive(wait_s)
            if subscription.active and not was_active:
                never_active = False
                subscribed()
                if self.retained_only:
                    break
            elif message is None and never_active and time.monotonic() >= answer_by:
                raise Timeout(
                    f"the broker did not answer within {self.answer_within_s:g} s of subscribing"
                    f"{client.doubt}"
                )
            if message is None or not self._wants(message, client.topic_prefix):
                continue
            if message.answer is not None:
                client.respond(message)
            self._print(message)
            # The broker's own topics are not ours to clear.
            service = message.topic.startswith(SERVICE_TOPICS)
            if message.kept and self.remove_retained and not service:
                client.publish(message.topic, b"", retain=True)
                removed = True
        if removed:
            client.sync()
        if client.trouble is not None and not self._complete():
            raise client.trouble

    def _wants(self, message: Message, prefix: str) -> bool:
        if message.kept and self.no_retained:
            return False
        if self.retained_only and not message.kept:
            return False
        on_bus = message.topic.removeprefix(prefix)
        if self.everything and on_bus.startswith((SERVICE_TOPICS, ECHO_TOPICS)):
            return False
        return not self.unwanted.matches(message.topic)

    def _complete(self) -> bool:
        return self.count is not None and self.printed >= self.count

    def _more(self) -> bool:
        if self._complete():
            return False
        return self.end is None or time.monotonic() < self.end

    def _wait_s(self) -> float:
        return _FOREVER_S if self.end is None else max(0.0, self.end - time.monotonic())

    def _print(self, message: Message) -> None:
        put(self.format(message))
        self.printed += 1
