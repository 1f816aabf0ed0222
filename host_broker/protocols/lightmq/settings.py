"""The section [lightmq] of the settings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from host_broker.settings import ranged

_TOKEN = re.compile(r"|sha256:[0-9a-f]{64}")


def _clients_fault(value: object) -> str:
    """Return what is allowed, if ``value`` is no table of clients."""
    if not isinstance(value, dict):
        return "a table in the --config file: [lightmq.clients], then NAME = TOKEN"
    for name, token in value.items():
        if not (name and isinstance(token, str) and _TOKEN.fullmatch(token)):
            return f'"" or "sha256:" and 64 hexadecimal digits for each client; see {name!r}'
    return ""


@dataclass(frozen=True, slots=True)
class LightmqSettings:
    """LightMQ (protocols/lightmq/NOTES.md: A1, A10, A17, and what an admission is)."""

    LIVE: ClassVar[frozenset[str]] = frozenset(("clients",))
    RENAMED: ClassVar[Mapping[str, str]] = {"carried_bytes": "lightmq.tunnel_bytes"}

    dialect: Literal["spec", "gbaranski"] = "spec"
    duplicate_client: Literal["reject", "takeover"] = "reject"
    connect_timeout_s: float = 10.0  # from open to CONNECT
    # Silence after which the server sends PING; 0 = never.
    ping_interval_s: float = ranged(15.0, least=0)
    ping_timeout_s: float = 10.0  # from PING to PONG, else the connection is closed
    max_pending: int = 64  # SENDs to one client whose SENDRESP is still recognised; and from it
    request_timeout_s: float = 30.0  # for a client to answer a request; then it is "unanswered"
    # SENDRESP for a client's SENDs; the Go program's client stops reading at the first one.
    send_responses: bool = True
    answer_timeout_s: float = 4.0  # for a responder to answer a SEND; then SENDRESP is empty
    calls: bool = True  # a ClientID NAME>ID is NAME, who calls ID
    # Of FMQP in a SEND of lightmq+fmqp; 6 less than a client's buffer.
    tunnel_bytes: int = ranged(1018, most=65463)
    # Who may connect, by ClientID: "" by it alone, "sha256:HEX" with a token; none: everybody.
    clients: Mapping[str, str] = field(default_factory=dict, metadata={"fault": _clients_fault})
