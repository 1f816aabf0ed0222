"""Which protocol a connection speaks, by its first bytes: a table, read from the top.

The rows are the ``first_bytes`` of the registered protocols, and of what is not spoken here, so
that its clients are told so.

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

from collections.abc import Iterable

from host_broker.protocol import ByteSet, EveryByte, FirstBytes, ProtocolSpec, byte_range

MORE = "more"  # bytes are needed
NOBODY = "nobody"  # speaks so, of those known here

_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE", "PATCH", "PRI")
# What no session exists for. A registered protocol of the same name takes the place of its rows.
_FOREIGN: dict[str, tuple[FirstBytes, ...]] = {
    "tls": (FirstBytes((b"\x16\x03", byte_range(1, 4)), rank=0),),
    "http": tuple(FirstBytes((f"{method} ".encode(),), rank=20) for method in _METHODS),
    "mqtt": (
        FirstBytes((b"\x10", byte_range(0, 0x7F), b"\x00\x04MQTT"), rank=50),
        FirstBytes((b"\x10", byte_range(0, 0x7F), b"\x00\x06MQIs"), rank=50),
        FirstBytes(
            (b"\x10", byte_range(0x80, 0xFF), byte_range(1, 0x7F), b"\x00\x04MQTT"), rank=50
        ),
    ),
}


class BesideHttp:
    """The recogniser of a listener where HTTP is spoken: HTTP, a protocol that begins as HTTP does,
    or the listener's own.

    Whatever does not begin like HTTP is the listener's protocol's to judge, or HTTP's.
    """

    def __init__(self, specs: Iterable[ProtocolSpec], protocol: str = "http") -> None:
        """``protocol``: the listener's own."""
        self._protocol = protocol
        within = [
            (first.rank, spec.name, first.pattern)
            for spec in specs
            for first in spec.first_bytes
            if any(_begins(first.pattern, http.pattern) for http in _FOREIGN["http"])
        ]
        rows = [(first.rank, "http", first.pattern) for first in _FOREIGN["http"]]
        self._rows = sorted([*within, *rows], key=lambda row: row[0])
        self.longest = max(len(pattern) for _, _, pattern in self._rows)

    def recognise(self, first: bytes) -> str:
        """Return ``http``, a protocol's name, or ``MORE``."""
        for _, name, pattern in self._rows:
            if all(byte in fits for byte, fits in zip(first, pattern, strict=False)):
                return name if len(first) >= len(pattern) else MORE
        return self._protocol

    def refusal(self, protocol: str, first: bytes) -> bytes:
        """Return no words: both are spoken."""
        return b""


def _begins(pattern: tuple[ByteSet, ...], other: tuple[ByteSet, ...]) -> bool:
    """Whether all that fits a pattern fits another one, too."""
    return len(pattern) >= len(other) and all(
        one <= each for one, each in zip(pattern, other, strict=False)
    )


class Recognition:
    """The table of one broker's protocols. ``longest``: so many bytes always decide."""

    def __init__(self, specs: Iterable[ProtocolSpec]) -> None:
        known = list(specs)
        self.spoken = ", ".join(spec.title for spec in known if spec.first_bytes)
        rows = dict(_FOREIGN) | {spec.name: spec.first_bytes for spec in known}
        table = sorted(
            ((name, first) for name, firsts in rows.items() for first in firsts),
            key=lambda row: row[1].rank,
        )
        self._table: list[tuple[str, tuple[ByteSet, ...]]] = [
            (name, first.pattern) for name, first in table
        ]
        # What one first byte leaves of it: for FMQP's most frequent ones a single row.
        self._rows = [
            [row for row in self._table if first in row[1][0]] for first in sorted(EveryByte)
        ]
        self.longest = max(len(pattern) for _, pattern in self._table)

    def recognise(self, first: bytes) -> str:
        """Return what ``first`` begins: a protocol's name, ``MORE`` or ``NOBODY``.

        The names are those of the registry, and of what no session exists for: ``tls``, ``http``,
        ``mqtt``.
        """
        if not first:
            return MORE
        for name, pattern in self._rows[first[0]]:
            if all(byte in fits for byte, fits in zip(first, pattern, strict=False)):
                return name if len(first) >= len(pattern) else MORE
        return NOBODY

    def refusal(self, protocol: str, first: bytes) -> bytes:
        """Return the words to end with for what is not spoken here, b"" if there are none.

        They are in the client's own protocol. ``first``: what it began with, as far as it is known.
        """
        here = f"This is a MoteMQ broker. It speaks {self.spoken} on this port, and"
        match protocol:
            case "http":
                return _http(
                    f"{here} HTTP only when it keeps a journal (motemq broker --data DIR)."
                )
            case "mqtt":
                return b"\x20\x02\x00\x01"  # CONNACK: unacceptable protocol version
            case "tls":
                return b"\x15\x03\x01\x00\x02\x02\x28"  # a fatal alert: handshake_failure
        return b""


def _http(text: str) -> bytes:
    head = (
        "HTTP/1.1 501 Not Implemented\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(text) + 1}\r\n"
        "Connection: close\r\n\r\n"
    )
    return f"{head}{text}\n".encode()
