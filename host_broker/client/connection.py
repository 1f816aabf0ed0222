"""What both clients are: a connection that ends, and an inbox with a bound."""

from collections import deque
from types import TracebackType
from typing import Generic, Self, TypeVar

from host_broker.address import Address
from host_broker.client.errors import ClientError
from host_broker.client.link import Line

_INBOX_BYTES = 64 * 1024 * 1024  # of messages that arrive while we wait for something else
_OVERHEAD_BYTES = 256  # what a small message costs beside its payload

T = TypeVar("T")


class Connection(Generic[T]):
    """A context manager that closes; keeps messages of type ``T`` until they are asked for."""

    def __init__(self, link: Line) -> None:
        self._link = link
        self._inbox: deque[tuple[T, int]] = deque()
        self._inbox_bytes = 0

    def close(self) -> None:
        """Close the connection (FIN); an FMQP broker publishes the wills."""
        self._link.close()

    def abort(self) -> None:
        """Reset the connection (RST), as when a client dies; an FMQP broker publishes the wills."""
        self._link.abort()

    @property
    def address(self) -> Address:
        """Where the broker is."""
        return self._link.address

    @property
    def doubt(self) -> str:
        """How an error text should end: a question if the peer has never said a word, else ""."""
        return self._link.doubt()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _keep(self, message: T, payload_bytes: int) -> None:
        """Put a message into the inbox; a full one ends the connection with ``ClientError``."""
        cost = payload_bytes + _OVERHEAD_BYTES
        self._inbox_bytes += cost
        if self._inbox_bytes > _INBOX_BYTES:
            self.abort()
            raise ClientError(
                f"more than {_INBOX_BYTES >> 20} MiB of messages are unread; the connection was "
                "closed; call receive() more often, or ping and sync on another connection"
            )
        self._inbox.append((message, cost))

    def _next_kept(self) -> T:
        message, cost = self._inbox.popleft()
        self._inbox_bytes -= cost
        return message
