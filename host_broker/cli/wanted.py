"""Which of the messages that come ``motemq sub`` prints, and when it has enough."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from host_broker.cli.listening import Heard, Listening
from host_broker.cli.message_format import Format
from host_broker.cli.standard_output import put
from host_broker.cli.topic_filter import TopicFilter
from host_broker.client import FmqpClient, LightmqClient

_FOREVER_S = 3600.0  # one wait; there is always another


@dataclass(slots=True)
class Wanted:
    """What to print and until when; lives through reconnections.

    ``count`` messages at most; ``end`` on the clock of monotonic(). ``retained_only``: what is
    kept, and no more; ``no_retained``: the rest; ``remove_retained``: clear it when printed.
    """

    count: int | None
    end: float | None
    retained_only: bool
    no_retained: bool
    remove_retained: bool
    unwanted: TopicFilter
    format: Format
    printed: int = 0

    def of_fmqp(
        self, client: FmqpClient, listening: Listening, subscribed: Callable[[], None]
    ) -> None:
        """Print; ``subscribed`` is called once, when the subscription is active. Raises
        ``ClientError``."""
        removed = False
        while self._more():
            was_active = listening.active
            heard = listening.next(self._wait_s())
            if listening.active and not was_active:
                subscribed()
                if self.retained_only:
                    break
            if heard is None or (heard.kept and self.no_retained):
                continue
            if (heard.kept or not self.retained_only) and not self.unwanted.matches(heard.topic):
                self._print(heard)
                # The broker's own topics are not ours to clear.
                if heard.kept and self.remove_retained and not heard.topic.startswith("$/"):
                    client.publish(heard.topic, b"", cache=True)
                    removed = True
        if removed:
            client.sync()

    def of_lightmq(self, client: LightmqClient, subscribed: Callable[[], None]) -> None:
        """The same for what a LightMQ broker sends us; each message gets an empty response."""
        subscribed()
        while self._more():
            request = client.receive(self._wait_s())
            if request is not None:
                client.respond(request, b"")
                self._print(Heard("down", request.data, request.received_ns))

    def _more(self) -> bool:
        if self.count is not None and self.printed >= self.count:
            return False
        return self.end is None or time.monotonic() < self.end

    def _wait_s(self) -> float:
        return _FOREVER_S if self.end is None else max(0.0, self.end - time.monotonic())

    def _print(self, heard: Heard) -> None:
        put(self.format(heard))
        self.printed += 1
