"""Which protocol a connection speaks, by its first bytes: a table, read from the top.

The first row that the bytes fit decides, once no row above it can still be fitted. So the verdict
depends on the bytes only, not on how they are cut, and it never changes when more come.

What makes it possible: FMQP, whose first byte may be anything, has the length of a body in bytes 2
to 5. The other rows are bytes that as FMQP announce 16 MiB or more (the broker takes 8 at most) or
an empty topic, which is incorrect. A first packet of 64 MiB or more is nobody's: a text has letters
there. What no first byte can decide:

- ``01 00 00`` is a handshake of MicroMsg2 1.0; LightMQ's CONNECT without a payload, which is
  malformed, begins so too.
- ``01 01 00`` and 1 to 254 is MicroMsg2 1.1 with an identity of that length, and would be an FMQP
  packet with reserved flag 0x01 (LSB: a subscription with a body) of 64 KiB or more on a topic of
  one letter. With 0 it is FMQP, though MicroMsg2 1.1 without an identity begins so; with 255
  LightMQ, though MicroMsg2 1.1 with so long an identity does.
- ``10 xx 00 04 "MQTT"`` is MQTT, and would be an FMQP publication with the debug flag and a body of
  282,961 bytes on a topic that begins with "TT".
"""

MORE = "more"  # bytes are needed
NOBODY = "nobody"  # speaks so, of those known here

_Pattern = tuple[frozenset[int], ...]  # for each byte, what it may be


def _between(first: int, last: int) -> frozenset[int]:
    return frozenset(range(first, last + 1))


def _pattern(*parts: bytes | frozenset[int]) -> _Pattern:
    fits: list[frozenset[int]] = []
    for part in parts:
        fits += [part] if isinstance(part, frozenset) else [frozenset([byte]) for byte in part]
    return tuple(fits)


_ANY = _between(0x00, 0xFF)
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PATCH", "PRI")

_TABLE: tuple[tuple[str, _Pattern], ...] = (
    ("tls", _pattern(b"\x16\x03", _between(1, 4))),
    ("fq", _pattern(b"\xcc\x50\xca\xfe")),  # commands
    ("fq", _pattern(b"\xcc\x50\xfa\xce")),  # data
    ("fq", _pattern(b"\xcc\x50\xfe\xed")),  # a peer
    ("fq", _pattern(b"\xcc\x50\xfa\xde")),  # an old one
    *(("http", _pattern(f"{method} ".encode())) for method in _METHODS),
    ("micromsg2", _pattern(b"\x01\x00\x00")),
    ("micromsg2", _pattern(b"\x02\x00\x00")),
    ("micromsg2", _pattern(b"\x01\x01\x00", _between(1, 0xFE))),
    ("lightmq", _pattern(b"\x01", _ANY, _between(1, 0xFF))),  # CONNECT, the good and the bad
    ("lightmq", _pattern(b"\x01\x01\x00\xff")),  # CONNECT with a ClientID of 255 bytes
    ("mqtt", _pattern(b"\x10", _between(0, 0x7F), b"\x00\x04MQTT")),
    ("mqtt", _pattern(b"\x10", _between(0, 0x7F), b"\x00\x06MQIs")),
    ("mqtt", _pattern(b"\x10", _between(0x80, 0xFF), _between(1, 0x7F), b"\x00\x04MQTT")),
    ("fmqp", _pattern(_ANY, _ANY, _between(0, 3))),
)

# What one first byte leaves of it: for FMQP's most frequent ones a single row.
_ROWS = [[row for row in _TABLE if first in row[1][0]] for first in range(256)]

LONGEST = max(len(pattern) for _, pattern in _TABLE)  # bytes; as many always decide


def recognise(first: bytes) -> str:
    """Return what ``first`` begins: a protocol's name, ``MORE`` or ``NOBODY``.

    The names are those of the registry, and of what no session exists for: ``tls``, ``http`` (and
    with it WebSocket, hence UMQ), ``fq``, ``micromsg2``, ``mqtt``.
    """
    if not first:
        return MORE
    for name, pattern in _ROWS[first[0]]:
        if all(byte in fits for byte, fits in zip(first, pattern, strict=False)):
            return name if len(first) >= len(pattern) else MORE
    return NOBODY
