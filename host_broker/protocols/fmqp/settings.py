"""The section [fmqp] of the settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from host_broker.settings import ranged


@dataclass(frozen=True, slots=True)
class FmqpSettings:
    """FMQP (protocols/fmqp/NOTES.md: A1, A2, A4 to A6, A8, A10, A11, A15 to A17)."""

    RENAMED: ClassVar[Mapping[str, str]] = {
        "max_body": "bus.max_body",
        "max_subscriptions": "bus.max_subscriptions",
        "max_cached": "bus.max_retained",
        "max_cached_bytes": "bus.max_retained_bytes",
        "max_held_bytes": "bus.max_held_bytes",
        "max_steps_per_s": "bus.max_steps_per_s",
        "max_discards_per_s": "bus.max_discards_per_s",
        "wildcard_matches_service": "bus.wildcard_matches_service",
    }

    bit_order: Literal["msb", "lsb"] = "msb"  # where flag 0 is: 0x80 or 0x01
    strict_reserved: bool = False  # a packet with a reserved flag is incorrect
    collapse_inner: bool = False  # a//b is a/b
    ascii_topics: bool = False  # a topic that is not ASCII is none
    feedback_payload: Literal["count", "event"] = "count"
    feedback_cache_empty: Literal["keep", "drop"] = "keep"  # feedback that nobody is left
    empty_clears_cache: bool = True  # an empty publication with the cache flag clears its topic
    # Whose $/signals/stop and terminate count: whom the ACL lets (nobody without one), or, without
    # an ACL, also everybody on this machine or everybody; off: nobody's.
    signals: Literal["acl", "loopback", "on", "off"] = "acl"
    # Bytes; a length above it closes the connection.
    hard_body_limit: int = ranged(64 * 1024 * 1024, most=(1 << 32) - 1)
    max_wills: int = ranged(16, least=0)  # per connection
    # Silence that ends a connection, 0 = never; any packet is life.
    idle_timeout_s: float = ranged(0.0, least=0)
