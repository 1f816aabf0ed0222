"""The stored form of a publication: encoding 1 of docs/journal.md.

``flags(1) topic_length(1) body_length(4, big-endian) topic body``. The bus carries it, the journal
keeps it, and it is byte for byte an FMQP publication packet, so that FMQP pays nothing for it.
"""

from collections.abc import Iterator
from struct import Struct

HEADER = Struct(">BBI")
WILL = 0x08
RETAINED = 0x04
FEEDBACK = 0x20
MAX_TOPIC = 255
SERVICE = b"$"  # the first level of the broker's own topics


def is_service(topic: bytes) -> bool:
    """Whether a topic belongs to the broker: its first level is literally ``$`` (FMQP A15)."""
    return topic == b"$" or topic.startswith(b"$/")


def pack(flags: int, topic: bytes, body: bytes) -> bytes:
    """Spell one publication. ``topic`` is normal and at most 255 bytes."""
    return HEADER.pack(flags, len(topic), len(body)) + topic + body


def unpack(run: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Read (flags, topic, body) of every publication of a run; a run holds whole ones only."""
    position = 0
    while position < len(run):
        flags, topic_length, body_length = HEADER.unpack_from(run, position)
        body = position + 6 + topic_length
        position = body + body_length
        yield flags, run[body - topic_length : body], run[body:position]


def unpack_one(packet: bytes) -> tuple[int, bytes, bytes]:
    """Read the only publication of a packet; ValueError if it is not exactly one."""
    if len(packet) >= HEADER.size:
        flags, topic_length, body_length = HEADER.unpack_from(packet)
        body = HEADER.size + topic_length
        if len(packet) == body + body_length:
            return flags, packet[HEADER.size : body], packet[body:]
    raise ValueError(f"{len(packet)} bytes are not one publication")
