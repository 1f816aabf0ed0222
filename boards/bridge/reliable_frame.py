"""Frames of the reliable link (LINK.md), as bytes: COBS, CRC-32, and cutting them out of noise."""

import zlib
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
PAYLOAD_LIMIT = 243  # so that a body has 254 bytes, and its COBS coding one more
WINDOW = 8  # frames; numbers are modulo 256, and the mask has 7 bits
_BY_HOST = 8  # in the kind, so that nobody takes an echo for the other end
_HEADER = 7
_SHORTEST, _LONGEST = _HEADER + 4, _HEADER + PAYLOAD_LIMIT + 4
_RESIDUE = 0x2144DF1C  # of a CRC-32 over anything and its own CRC-32
_AHEAD = b"\0\0"  # the delimiter and the code byte, as the CRC sees them


class Kind(IntEnum):
    """What a frame of the board is; the high half is the version. The host adds 8."""

    OPEN = 0x11
    ACCEPT = 0x12
    DATA = 0x13
    ACK = 0x14
    CLOSE = 0x15


class Reason(IntEnum):
    """Why a CLOSE was sent."""

    END = 0
    REFUSED = 1
    NO_SESSION = 2
    GAVE_UP = 3
    VERSION = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame; the names are LINK.md's."""

    kind: Kind
    session: int
    seq: int
    next: int
    room: int
    mask: int
    payload: bytes = b""
    by_host: bool = False


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """An intact OPEN of a version that is not spoken here."""

    session: int


@dataclass(frozen=True, slots=True)
class Stray:
    """Bytes that are no frame: text of the board, noise, what is left of a damaged frame."""

    data: bytes


def encode(frame: Frame) -> bytes:
    """Return the frame's bytes on the line. Raises ``ValueError`` if its payload is too long."""
    if len(frame.payload) > PAYLOAD_LIMIT:
        raise ValueError(f"{len(frame.payload)} bytes of payload; the limit is {PAYLOAD_LIMIT}")
    kind = frame.kind | _BY_HOST * frame.by_host
    header = bytes((kind, frame.session & 255, frame.session >> 8))
    body = header + bytes((frame.seq, frame.next, frame.room, frame.mask)) + frame.payload
    body += zlib.crc32(_AHEAD + body).to_bytes(4, "little")
    runs = body.split(b"\0")
    return b"\0" + b"".join([bytes((len(run) + 1,)) + run for run in runs]) + b"\0"


def carries_data(frame: bytes) -> bool:
    """Return whether the bytes of a frame, as ``encode`` returns them, are those of a DATA."""
    return frame[2] & ~_BY_HOST == Kind.DATA  # no kind is 0, so it is itself in COBS


def decode(piece: bytes) -> Frame | OtherVersion | None:
    """Return the frame whose bytes between two zeros these are, or None if they are none.

    ``piece`` has no zero byte.
    """
    size = len(piece)
    if not _SHORTEST < size <= _LONGEST + 1:
        return None
    body = bytearray(piece)
    at = 0
    while at < size:
        step = body[at]
        body[at] = 0
        at += step
    if at != size or zlib.crc32(_AHEAD[:1] + body) != _RESIDUE:
        return None
    code, low, high, seq, number, room, mask = body[1 : 1 + _HEADER]
    session = low | high << 8
    if code >> 4 != VERSION:
        return OtherVersion(session) if code & 15 == Kind.OPEN & 15 else None
    kind, payload = _KINDS.get(code & ~_BY_HOST), bytes(body[1 + _HEADER : -4])
    if kind is None or not _fits(kind, payload):
        return None
    return Frame(kind, session, seq, number, room, mask, payload, bool(code & _BY_HOST))


_KINDS = {int(kind): kind for kind in Kind}
_OPEN_PAYLOAD, _ACCEPT_PAYLOAD = 3, 1


def _fits(kind: Kind, payload: bytes) -> bool:
    """Return whether a payload is one of this kind. Longer OPENs and the like are for later."""
    match kind:
        case Kind.OPEN:
            return len(payload) >= _OPEN_PAYLOAD and 0 < payload[0] <= PAYLOAD_LIMIT
        case Kind.ACCEPT:
            return len(payload) >= _ACCEPT_PAYLOAD and 0 < payload[0] <= PAYLOAD_LIMIT
        case Kind.DATA | Kind.CLOSE:
            return len(payload) > 0
    return True


class Cutter:
    """Cuts what comes from a line into frames and strays, however the reads cut it.

    It keeps 255 bytes at most. Long strays come in several pieces.
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        self._too_long = False  # until the next zero

    def receive(self, data: bytes) -> list[Frame | OtherVersion | Stray]:
        """Return what ``data`` completes, in order. Garbage is a stray, never an exception."""
        found: list[Frame | OtherVersion | Stray] = []
        *pieces, last = data.split(b"\0")
        for piece in pieces:
            if self._kept:
                piece = bytes(self._kept) + piece
                self._kept.clear()
            if piece:
                frame = None if self._too_long else decode(piece)
                found.append(frame or Stray(piece))
            self._too_long = False
        self._kept += last
        if self._too_long or len(self._kept) > _LONGEST + 1:
            if self._kept:
                found.append(Stray(bytes(self._kept)))
            self._kept.clear()
            self._too_long = True
        return found
