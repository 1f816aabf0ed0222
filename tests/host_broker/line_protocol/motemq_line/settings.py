"""The section [line] of the settings."""

from dataclasses import dataclass

from host_broker.settings import ranged


@dataclass(frozen=True, slots=True)
class LineSettings:
    """The line protocol."""

    max_line: int = ranged(64 * 1024, least=16, most=1024 * 1024)  # bytes; a longer one is skipped
    max_errors: int = 100  # per connection; so many wrong lines close it
    queue_messages: int = 10_000  # of each queue; whoever puts more waits
    idle_timeout_s: float = ranged(0.0, least=0)  # silence that closes a connection, 0 = never
