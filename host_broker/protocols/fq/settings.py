"""The section [fq] of the settings."""

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from typing import Literal

from host_broker.settings import LARGEST_BODY, ranged

LEAST_PAYLOAD = 131_072  # bytes, which every fq takes (A7)


@dataclass(frozen=True, slots=True)
class FqSettings:
    """fq (protocols/fq/NOTES.md: A3, A7, A10, A16, A17)."""

    handshake_timeout_s: float = 10.0  # from open to the end of the login, or to the key
    # Bytes of a message; a longer one is read, dropped and counted in size_dropped.
    max_payload: int = ranged(1024 * 1024, least=LEAST_PAYLOAD, most=LARGEST_BODY)
    max_program: int = ranged(65_535, most=65_535)  # bytes of a binding's program; fqd takes 127
    # This broker's name among its peers, an IPv4 address; "": one is made of the host's name.
    node_id: str = ""
    # The format of messages that come by a peer's connection; fqd reads them as "plain".
    peer_publish: Literal["peer", "plain"] = "peer"
    npm_quirk: bool = True  # the two bytes 0000 behind a request for the status mean nothing
    http_zero_hops: bool = False  # messages of /submit have no hops, as those of fqd; npm's client
    # cannot read that.

    def __post_init__(self) -> None:
        if self.node_id:
            try:
                IPv4Address(self.node_id)
            except AddressValueError as error:
                raise ValueError(
                    f"fq.node_id is {self.node_id!r}; it must be an IPv4 address: {error}"
                ) from error
