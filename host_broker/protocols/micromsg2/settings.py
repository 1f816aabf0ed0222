"""The section [micromsg2] of the settings."""

from dataclasses import dataclass

from host_broker.protocols.micromsg2.extensions import MAX_WINDOW
from host_broker.settings import ranged


@dataclass(frozen=True, slots=True)
class MicroMsg2Settings:
    """MicroMsg2 (protocols/micromsg2/NOTES.md: A1, A8)."""

    handshake_timeout_s: float = 10.0  # from open to the client's last word
    # Messages to a client that it has not acknowledged, if it agrees on batch-ack; or fewer.
    window: int = ranged(1000, most=MAX_WINDOW)
    # A client that acknowledges nothing so long is disconnected, and what it had of queues goes to
    # others; 0 = never.
    ack_timeout_s: float = ranged(60.0, least=0)
    # Of topics, for one client, beyond its window; more disconnects it.
    max_backlog_bytes: int = 16 * 1024 * 1024
    # From a quarter of that on the client is behind, down to a sixteenth: publishers wait, or what
    # else net.slow_consumer says.
    legacy_ext_flag4: bool = False  # frames with flag 4 are EXTENSION, not ERROR
