"""Every setting of the broker, with its default: one frozen value, made once at start.

A key on the command line or in the TOML file is ``section.field``, e.g. ``net.drain_s``. A
protocol's section is a dataclass in the protocol's folder, named by its ``ProtocolSpec``. Only the
edge reads files and flags; the core is handed a ``Settings``. A section's ``LIVE`` names those
fields that may change while the broker runs; all others need a restart. Its ``RENAMED`` has what
fields of earlier versions are called now, as whole keys.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar, cast

S = TypeVar("S")

# What is done about a receiver that takes too little of what is published to topics.
SlowPolicy = Literal["pause", "drop-oldest", "drop-newest", "disconnect"]

# A run of up to so much and one message more must fit a journal record, which is at most 16 MiB +
# 64 KiB (docs/journal.md).
LARGEST_BODY = 8 * 1024 * 1024


def live_names(section: type[Any]) -> frozenset[str]:
    """Return the names of a section's settings that may change while the broker runs."""
    names: frozenset[str] = getattr(section, "LIVE", frozenset())
    return names


def ranged(default: Any, *, least: float | None = None, most: float = math.inf) -> Any:
    """Return a dataclass field of ``least`` to ``most``; without ``least`` of more than 0."""
    metadata: dict[str, float] = {"most": most}
    if least is not None:
        metadata["least"] = least
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class BusSettings:
    """Limits that concern every protocol."""

    max_body: int = ranged(1024 * 1024, most=LARGEST_BODY)  # bytes of one publication
    max_subscriptions: int = 10_000  # per connection
    max_retained: int = ranged(100_000, least=0)  # retained topics, all together
    max_retained_bytes: int = 128 * 1024 * 1024  # their memory: topics, bodies, index
    # Bytes of what all connections have begun to send and not yet ended, and of their last wills.
    max_held_bytes: int = 256 * 1024 * 1024
    max_steps_per_s: int = 2_000_000  # per connection, through the index; more disconnects it
    max_discards_per_s: int = 50_000  # packets per connection; one that sends more is let rest
    max_queues: int = 10_000
    max_queue_messages: int = 100_000  # of each queue
    max_queue_bytes: int = 64 * 1024 * 1024  # of each queue: bodies, topics, properties
    wildcard_matches_service: bool = True  # a first level * equals $
    # Of the latest publications, where there is no journal, for protocols that look back; 0 = none.
    history_bytes: int = ranged(8 * 1024 * 1024, least=0)

    def __post_init__(self) -> None:
        if not 0 < self.max_body <= LARGEST_BODY:
            raise ValueError(
                f"bus.max_body is {self.max_body}, it can be 1 to {LARGEST_BODY} bytes"
            )


@dataclass(frozen=True, slots=True)
class NetSettings:
    """Sockets and buffers."""

    LIVE: ClassVar[frozenset[str]] = frozenset(
        (
            *("max_connections", "outbox_high_bytes", "outbox_low_bytes", "drain_s"),
            *("keepalive_idle_s", "keepalive_interval_s", "user_timeout_s"),
            *("tls_cert", "tls_key", "tls_client_ca", "tls_handshake_s"),
            *("first_bytes_s", "max_unrecognised", "max_buffered_bytes"),
        )
    )

    max_connections: int = 10_000
    outbox_high_bytes: int = 4 * 1024 * 1024  # pause those who publish to a receiver above it
    outbox_low_bytes: int = 1024 * 1024  # resume below it
    stalled_receiver_s: float = 30.0  # a receiver above the high mark this long is disconnected
    # What is done about a receiver above the high mark; ?slow= of a listener wins. With the two
    # that drop, a receiver may sleep for ever.
    slow_consumer: SlowPolicy = "pause"
    drain_s: float = 10.0  # at a stop: for messages to be taken, and once more for last wills
    keepalive_idle_s: float = 15.0  # TCP: silence after which the peer is probed
    keepalive_interval_s: float = 5.0  # TCP: between probes; three unanswered ones are the end
    user_timeout_s: float = 30.0  # TCP: bytes unacknowledged this long are the end
    tls_cert: str = ""  # PEM files, for listeners that name none
    tls_key: str = ""
    tls_client_ca: str = ""  # if given, clients need a certificate of it
    tls_handshake_s: float = 10.0
    # From open to enough bytes to know the protocol; of HTTP and TLS to the first whole head. Our
    # MicroPython client says something after 20 s of silence by itself.
    first_bytes_s: float = 30.0
    max_unrecognised: int = 1000  # of all listeners: then the oldest of them is disconnected
    # Memory of what is yet to be sent, of all connections together, and of TLS handshakes.
    max_buffered_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """The journal (docs/journal.md)."""

    LIVE: ClassVar[frozenset[str]] = frozenset(
        ("flush_s", "max_pending_bytes", "max_age_s", "max_bytes", "trim_read")
    )
    RENAMED: ClassVar[Mapping[str, str]] = {"fsync": "journal.ack=synced"}

    partitions: int = ranged(2, most=10_000)
    segment_bytes: int = 64 * 1024 * 1024
    flush_s: float = 0.05
    # Where a publication is before it is acknowledged (docs/reliability.md).
    ack: Literal["memory", "written", "synced"] = "written"
    max_pending_bytes: int = 64 * 1024 * 1024  # publishers are paused above it
    # Of each partition, the newest stays in memory when it is written; 0 = as the kernel likes.
    cached_bytes: int = ranged(16 * 1024 * 1024, least=0)
    # Closed segments go when they are older, or when all are more; 0 = never.
    max_age_s: float = ranged(7 * 24 * 3600.0, least=0)
    max_bytes: int = ranged(16 * 1024 * 1024 * 1024, least=0)
    trim_read: bool = False  # also when all consumer groups have read them


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """HTTP (docs/http.md) and the dashboard (docs/dashboard.md)."""

    LIVE: ClassVar[frozenset[str]] = frozenset(
        (
            *("token", "hosts", "rig"),
            *("max_sessions", "max_sessions_of_one", "session_s", "session_longest_s"),
        )
    )

    token: str = ""  # sha256: and 64 hexadecimal digits; empty: only who is on this machine
    hosts: str = ""  # names, with commas between them, that lead here and are ours
    rig: str = ""  # a folder of runs of the rig that the dashboard shows; empty: none
    max_sessions: int = (
        1000  # of people who have logged in with a browser; one more ends the oldest
    )
    max_sessions_of_one: int = 20  # of each user; one more ends one of the user's
    session_s: float = 12 * 3600.0  # without a request; then it is over
    session_longest_s: float = 7 * 24 * 3600.0  # then it is over, used or not

    def __post_init__(self) -> None:
        if self.token and not re.fullmatch("sha256:[0-9a-fA-F]{64}", self.token):
            raise ValueError(
                "http.token must be sha256: and the 64 hexadecimal digits of the token's SHA-256 "
                "(printf %s TOKEN | sha256sum), never the token itself"
            )


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may do what (docs/security.md)."""

    LIVE: ClassVar[frozenset[str]] = frozenset(
        ("failed_logins", "login_backoff_s", "max_pending_logins")
    )

    users: str = ""  # a file: who there is, made by `motemq users`; without, nobody needs to log in
    rules: str = ""  # a file: who may do what; without, users may nothing
    failed_logins: int = 5  # of one address and name; then the next one has to wait
    login_backoff_s: float = 60.0  # the longest wait
    max_pending_logins: int = 100  # passwords that wait to be hashed; more are refused


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it; ``Settings()`` is the default broker.

    ``protocols``: the sections of protocols by name; one that is missing has its defaults.
    """

    bus: BusSettings = field(default_factory=BusSettings)
    net: NetSettings = field(default_factory=NetSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    protocols: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **sections: Any) -> "Settings":
        """Return settings with these sections, a protocol's by its name."""
        own = {name: sections.pop(name) for name in OWN_SECTIONS if name in sections}
        return cls(**own, protocols=sections)

    def section(self, name: str, kind: type[S]) -> S:
        """Return a protocol's section, of the dataclass ``kind``."""
        return cast(S, self.protocols[name]) if name in self.protocols else kind()


OWN_SECTIONS = ("bus", "net", "journal", "http", "access")
