"""Every setting of the broker, with its default: one frozen value, made once at start.

A key on the command line or in the TOML file is ``section.field``, e.g. ``lightmq.dialect``.
Only the edge reads files and flags; the core is handed a ``Settings``.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class FmqpSettings:
    """FMQP (protocols/fmqp/NOTES.md: A1, A2, A4 to A6, A8, A10, A11, A15 to A17)."""

    bit_order: Literal["msb", "lsb"] = "msb"  # where flag 0 is: 0x80 or 0x01
    strict_reserved: bool = False  # a packet with a reserved flag is incorrect
    collapse_inner: bool = False  # a//b is a/b
    ascii_topics: bool = False  # a topic that is not ASCII is none
    wildcard_matches_service: bool = True  # a first level * equals $
    feedback_payload: Literal["count", "event"] = "count"
    feedback_cache_empty: Literal["keep", "drop"] = "keep"  # feedback that nobody is left
    empty_clears_cache: bool = True  # an empty publication with the cache flag clears its topic
    signals: Literal["loopback", "on", "off"] = "loopback"  # whose $/signals/stop, terminate count
    max_body: int = 1024 * 1024  # bytes, up to 8 MiB; a larger one is skipped, not buffered
    hard_body_limit: int = 64 * 1024 * 1024  # bytes; a length above it closes the connection
    max_wills: int = 16  # per connection
    # Bytes of what all connections have begun to send and not yet ended, and of their last wills.
    max_held_bytes: int = 256 * 1024 * 1024
    idle_timeout_s: float = 0.0  # silence that ends a connection, 0 = never; any packet is life
    max_subscriptions: int = 10_000  # per connection
    max_cached: int = 100_000  # retained topics, all together
    max_steps_per_s: int = 2_000_000  # per connection, through the index; more disconnects it
    max_discards_per_s: int = 50_000  # packets per connection; one that sends more is let rest
    max_cached_bytes: int = 128 * 1024 * 1024  # their memory: topics, bodies, index

    def __post_init__(self) -> None:
        # So that one fits a journal record (16 MiB) with the rest of its read.
        most = 8 * 1024 * 1024
        if not 0 < self.max_body <= most:
            raise ValueError(f"fmqp.max_body is {self.max_body}, it can be 1 to {most} bytes")


@dataclass(frozen=True, slots=True)
class LightmqSettings:
    """LightMQ (protocols/lightmq/NOTES.md: A1, A10, A17, and what an admission is)."""

    dialect: Literal["spec", "gbaranski"] = "spec"
    duplicate_client: Literal["reject", "takeover"] = "reject"
    connect_timeout_s: float = 10.0  # from open to CONNECT
    ping_interval_s: float = 15.0  # silence after which the server sends PING; 0 = never
    ping_timeout_s: float = 10.0  # from PING to PONG, else the connection is closed
    max_pending: int = 64  # SENDs to one client whose SENDRESP is still recognised; and from it
    request_timeout_s: float = 30.0  # for a client to answer a request; then it is "unanswered"
    answer_timeout_s: float = 4.0  # for a responder to answer a SEND; then SENDRESP is empty
    calls: bool = True  # a ClientID NAME>ID is NAME, who calls ID
    carried_bytes: int = 1018  # of FMQP in a SEND of lightmq+fmqp; 6 less than a client's buffer
    # Who may connect, by ClientID: "" by it alone, "sha256:HEX" with a token; none: everybody.
    clients: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NetSettings:
    """Sockets and buffers."""

    max_connections: int = 10_000
    busy_poll_us: int = 0  # look for messages that long before sleeping, while that pays off
    outbox_high_bytes: int = 4 * 1024 * 1024  # pause those who publish to a receiver above it
    outbox_low_bytes: int = 1024 * 1024  # resume below it
    stalled_receiver_s: float = 30.0  # a receiver above the high mark this long is disconnected
    # What is done about a receiver above the high mark; ?slow= of a listener wins. With the two
    # that drop, a receiver may sleep for ever.
    slow_consumer: Literal["pause", "drop-oldest", "drop-newest", "disconnect"] = "pause"
    drain_s: float = 10.0  # at a stop: for messages to be taken, and once more for last wills
    keepalive_idle_s: float = 15.0  # TCP: silence after which the peer is probed
    keepalive_interval_s: float = 5.0  # TCP: between probes; three unanswered ones are the end
    user_timeout_s: float = 30.0  # TCP: bytes unacknowledged this long are the end
    tls_cert: str = ""  # PEM files, for listeners that name none
    tls_key: str = ""
    tls_client_ca: str = ""  # if given, clients need a certificate of it
    tls_handshake_s: float = 10.0
    # auto://: from open to enough bytes to know the protocol. Our MicroPython client says something
    # after 20 s of silence by itself.
    first_bytes_s: float = 30.0
    max_unrecognised: int = 1000  # auto://, per listener: then the oldest of them is disconnected


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The journal (docs/journal.md)."""

    partitions: int = 2
    segment_bytes: int = 64 * 1024 * 1024
    flush_s: float = 0.05
    fsync: bool = False
    max_pending_bytes: int = 64 * 1024 * 1024  # publishers are paused above it
    # Closed segments go when they are older, or when all are more; 0 = never.
    max_age_s: float = 7 * 24 * 3600.0
    max_bytes: int = 16 * 1024 * 1024 * 1024
    trim_read: bool = False  # also when all consumer groups have read them


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """HTTP (docs/journal.md, Reading from elsewhere)."""

    token: str = ""  # sha256: and 64 hexadecimal digits; empty: only who is on this machine

    def __post_init__(self) -> None:
        if self.token and not re.fullmatch("sha256:[0-9a-fA-F]{64}", self.token):
            raise ValueError(
                "http.token must be sha256: and the 64 hexadecimal digits of the token's SHA-256 "
                "(printf %s TOKEN | sha256sum), never the token itself"
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it; ``Settings()`` is the default broker."""

    fmqp: FmqpSettings = field(default_factory=FmqpSettings)
    lightmq: LightmqSettings = field(default_factory=LightmqSettings)
    net: NetSettings = field(default_factory=NetSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
