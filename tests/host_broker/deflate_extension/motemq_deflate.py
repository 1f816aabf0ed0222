"""An extension of MicroMsg2: payloads are compressed on the wire, and plain on the bus."""

import zlib
from collections.abc import Sequence

from host_broker.protocols.micromsg2.vendor import (
    ExtensionRefusal,
    ExtensionSession,
    Message,
    VendorExtension,
)

Pairs = tuple[tuple[str, str], ...]

LEVEL = 6
MAX_PLAIN = 64 * 1024  # bytes; a few hundred on the wire could be gigabytes


def agree(theirs: Pairs, ours: Pairs) -> Pairs:
    """Take the lower level."""
    levels = [int(_level(said)) for said in (theirs, ours) if said]
    return (("level", str(min(levels, default=LEVEL))),)


def _level(said: Pairs) -> str:
    level = dict(said).get("level", str(LEVEL))
    if level not in "123456789" or len(level) != 1:
        raise ExtensionRefusal(f"level is {level[:20]!r}, it can be 1 to 9")
    return level


class Deflate(ExtensionSession):
    """One connection. A frame with ``?`` is answered with how much it has saved, in bytes."""

    def __init__(self, said: Pairs) -> None:
        self._level = int(_level(said))
        self._saved = 0

    def received(self, payload: bytes) -> Sequence[bytes]:
        """Answer the question."""
        if payload != b"?":
            raise ExtensionRefusal("the one thing to ask is '?'")
        return [b"%d" % self._saved]

    def incoming(self, message: Message) -> None:
        """Decompress."""
        reader = zlib.decompressobj()
        try:
            plain = reader.decompress(message.payload, MAX_PLAIN)
        except zlib.error as error:
            raise ExtensionRefusal(f"the payload is not compressed: {error}") from error
        if not reader.eof:
            raise ExtensionRefusal(f"the payload is cut, or of more than {MAX_PLAIN} bytes")
        self._saved += len(plain) - len(message.payload)
        message.payload = plain

    def outgoing(self, message: Message) -> Sequence[bytes]:
        """Compress."""
        packed = zlib.compress(message.payload, self._level)
        self._saved += len(message.payload) - len(packed)
        message.payload = packed
        return ()


DEFLATE = VendorExtension(
    name="x-acme-deflate", open=Deflate, properties=(("level", str(LEVEL)),), agree=agree
)
