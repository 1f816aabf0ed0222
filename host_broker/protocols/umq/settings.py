"""The section [umq] of the settings."""

from dataclasses import dataclass
from typing import Literal

from host_broker.settings import LARGEST_BODY, ranged


@dataclass(frozen=True, slots=True)
class UmqSettings:
    """UMQ (protocols/umq/NOTES.md: A2, A4, A9, A11, A14, A15, A23, and limits)."""

    handshake_timeout_s: float = 10.0  # from open to the hello
    # Silence after which the broker sends a WebSocket ping; 0 = never.
    ping_interval_s: float = ranged(20.0, least=0)
    ping_timeout_s: float = 10.0  # from a ping to its pong, else the connection is closed
    max_text: int = ranged(2 * 1024 * 1024, least=1024)  # bytes of a text message
    max_attachment: int = ranged(1024 * 1024, most=LARGEST_BODY)  # bytes of a binary message
    max_attachments: int = 64  # announced by a client, and yet to come
    max_calls: int = 256  # of a client that are not answered yet
    call_timeout_s: float = 10.0  # for a client to answer a call or a ping
    max_subscriptions: int = 1000  # topic ids of a client
    max_attributes: int = 32  # of a client
    max_attribute_bytes: int = 4096  # of an attribute: its name, its value, its attachments
    # Of updates for a client that does not take them; then the oldest are dropped.
    max_waiting_updates: int = 10_000
    max_waiting_bytes: int = 4 * 1024 * 1024
    max_page: int = 1000  # entries of an answer: clients, topics, publications …
    max_answer_bytes: int = ranged(4 * 1024 * 1024, least=1024)  # of one; then there is "more"
    lenient_case: bool = False  # lower-case digits are digits
    max_id_digits: int = ranged(13, most=64)  # of an id
    strict_attachments: bool = False  # a binary message that nobody has announced ends it
    lenient_attachments: bool = False  # attachments of what may have none are dropped
    rpc_error: Literal["E", "!"] = "E"  # how a call fails that was refused
    unknown_callback_fatal: bool = False  # a callback of nobody ends it
    subprotocol: str = ""  # of the WebSocket; clients that offer it are told so
