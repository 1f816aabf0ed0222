"""How a peer is understood where the text leaves a choice: flags (A1, A2), topics (A8, A10)."""

import functools
from collections.abc import Sequence
from typing import Literal

from host_broker.protocols.fmqp.topics import PlainTopics

BitOrder = Literal["msb", "lsb"]

_RESERVED = 0x03
REFUSED = -1  # a flags byte that makes the packet incorrect
# The same flags with flag 0 in the other place, by byte; 0 is 0 in both orders.
REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class Dialect:
    """What all connections of one listener are read by.

    ``bit_order``: whether flag 0 is 0x80 or 0x01 on the wire. ``strict_reserved``: a packet with
    a reserved flag is incorrect. ``topics``: which topics are topics.
    """

    __slots__ = ("flags", "topics")

    def __init__(
        self,
        topics: PlainTopics | None = None,
        bit_order: BitOrder = "msb",
        strict_reserved: bool = False,
    ) -> None:
        self.topics = topics if topics is not None else PlainTopics()
        # By the byte on the wire: the flags as this package names them, or REFUSED.
        self.flags = _flags(bit_order, strict_reserved)


@functools.cache
def _flags(bit_order: BitOrder, strict_reserved: bool) -> tuple[int, ...]:
    order: Sequence[int] = REVERSED if bit_order == "lsb" else range(256)
    return tuple(REFUSED if strict_reserved and flags & _RESERVED else flags for flags in order)
