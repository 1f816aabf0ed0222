"""What a person is told of lost connections."""

from collections.abc import Callable

from host_broker.client import ClientError


class Outages:
    """Says why a connection is tried again: each reason once per outage, so that a broker that is
    away for a night fills no log. Given to ``connect`` as its ``watcher``."""

    def __init__(
        self, say: Callable[[str], None], restored: Callable[[], None] | None = None
    ) -> None:
        """``restored`` is called when an outage that was told is over."""
        self._say = say
        self._restored = restored
        self._said: set[str] = set()

    def __call__(self, trouble: ClientError | None) -> None:
        if trouble is None:
            if self._said and self._restored is not None:
                self._restored()
            self._said.clear()
        elif (reason := str(trouble)) not in self._said:
            self._said.add(reason)
            self._say(f"trying again: {reason}")
