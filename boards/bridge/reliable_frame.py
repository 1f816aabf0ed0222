"""Frames of the reliable link (LINK.md), as bytes: COBS, CRC-32, and cutting them out of noise."""

import math
import zlib
from dataclasses import dataclass
from enum import IntEnum

VERSION = 1
PAYLOAD_LIMIT = 243  # so that a body has 254 bytes, and its COBS coding one more
WINDOW = 8  # frames; numbers are modulo 256, and the mask has 7 bits
_BY_HOST = 8  # in the kind, so that nobody takes an echo for the other end
_ON_CONSOLE = 128  # in the kind, beside the version
_HEADER = 7
_SHORTEST, _LONGEST = _HEADER + 4, _HEADER + PAYLOAD_LIMIT + 4
_RESIDUE = 0x2144DF1C  # of a CRC-32 over anything and its own CRC-32
_AHEAD = b"\0\0"  # the delimiter and the code byte, as the CRC sees them
# What a REPL or a driver acts upon: Ctrl-A to Ctrl-E, Return; and what stands before a disguise.
# What a program has not read when Ctrl-C ends it, the REPL reads, as lines: nothing in them may
# make it wait for the rest of a statement, where Ctrl-A means something else.
_MEANT = bytes((1, 2, 3, 4, 5, 13, 16)) + b"([{\\"
_DISGUISED = {byte: bytes((16, byte ^ 64)) for byte in _MEANT}
# A frame that has begun is whole by then, or it was none. A busy machine lets the board, or what
# carries its bytes, stand for most of a second in the middle of one; were the beginning told as
# text, the end of a REPL's answer might be seen in it.
WHOLE_S = 3.0
# But a program that is interrupted leaves the beginning of a frame, and a REPL says on behind it.
INTERRUPTED_S = 0.1
_SOON_S = 2.0  # so long after the Ctrl-C


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
    on_console: bool = False  # of the board: the line is its console


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """An intact OPEN of a version that is not spoken here."""

    session: int
    on_console: bool = False


@dataclass(frozen=True, slots=True)
class Stray:
    """Bytes that are no frame: text of the board, noise, what is left of a damaged frame."""

    data: bytes


def encode(frame: Frame) -> bytes:
    """Return the frame's bytes on the line. Raises ``ValueError`` if its payload is too long."""
    if len(frame.payload) > PAYLOAD_LIMIT:
        raise ValueError(f"{len(frame.payload)} bytes of payload; the limit is {PAYLOAD_LIMIT}")
    kind = frame.kind | _BY_HOST * frame.by_host | _ON_CONSOLE * frame.on_console
    header = bytes((kind, frame.session & 255, frame.session >> 8))
    body = header + bytes((frame.seq, frame.next, frame.room, frame.mask)) + frame.payload
    body += zlib.crc32(_AHEAD + body).to_bytes(4, "little")
    runs = body.split(b"\0")
    return b"\0" + b"".join([bytes((len(run) + 1,)) + run for run in runs]) + b"\0"


def disguise(wire: bytes) -> bytes:
    """Return the bytes of a frame as a console gets them: none that its REPL would act upon."""
    return b"".join(_DISGUISED.get(byte) or bytes((byte,)) for byte in wire)


def carries_data(frame: bytes) -> bool:
    """Return whether the bytes of a frame, as ``encode`` returns them, are those of a DATA."""
    return (
        frame[2] & ~(_BY_HOST | _ON_CONSOLE) == Kind.DATA
    )  # no kind is 0, so it is itself in COBS


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
    session, on_console = low | high << 8, bool(code & _ON_CONSOLE)
    code &= ~_ON_CONSOLE
    if code >> 4 != VERSION:
        return OtherVersion(session, on_console) if code & 15 == Kind.OPEN & 15 else None
    kind, payload = _KINDS.get(code & ~_BY_HOST), bytes(body[1 + _HEADER : -4])
    if kind is None or not _fits(kind, payload):
        return None
    by_host = bool(code & _BY_HOST)
    return Frame(kind, session, seq, number, room, mask, payload, by_host, on_console)


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

    Strays are told as they come, with the zeros among them; only what follows a zero waits a moment
    for the zero that would end a frame. It keeps 255 bytes at most.
    """

    def __init__(self) -> None:
        self._kept = bytearray()  # since the last zero
        self._told = 0  # so many of these are told already
        self._opened: float | None = None  # the last zero may begin a frame; when it came
        self._interrupted = -math.inf  # when Ctrl-C went to the board
        self._too_long = False  # until the next zero

    def receive(self, data: bytes, now: float = 0.0) -> list[Frame | OtherVersion | Stray]:
        """Return what ``data`` completes, in order. Garbage is a stray, never an exception."""
        found: list[Frame | OtherVersion | Stray] = []
        *pieces, last = data.split(b"\0")
        for piece in pieces:
            self._kept += piece
            self._end_piece(found, now)
        self._kept += last
        if len(self._kept) > _LONGEST + 1:
            self._tell(found)
            self._kept.clear()
            self._told, self._too_long = 0, True
        elif self._opened is None:
            self._tell(found)
        return found

    def next_deadline(self) -> float | None:
        """Return when ``tick`` has something to tell, None if it has not."""
        if self._opened is None:
            return None
        if self._opened > self._interrupted + _SOON_S:
            return self._opened + WHOLE_S
        whole, soon = self._opened + WHOLE_S, max(self._opened, self._interrupted) + INTERRUPTED_S
        return min(whole, soon)

    def interrupted(self, now: float) -> None:
        """Take note that the board's program is interrupted, perhaps in the middle of a frame."""
        self._interrupted = now

    def tick(self, now: float) -> list[Frame | OtherVersion | Stray]:
        """Return what began as a frame does, and has not become one."""
        found: list[Frame | OtherVersion | Stray] = []
        due = self.next_deadline()
        if due is not None and now >= due:
            self._tell(found)
        return found

    def _end_piece(self, found: list[Frame | OtherVersion | Stray], now: float) -> None:
        """A zero has come: the end of a frame, or perhaps the beginning of one."""
        frame = None
        if self._kept and not self._too_long:
            frame = decode(bytes(self._kept))
        if frame is None:
            self._tell(found)
            self._opened = now
        else:
            found.append(frame)
            self._opened = None
        self._kept.clear()
        self._told, self._too_long = 0, False

    def _tell(self, found: list[Frame | OtherVersion | Stray]) -> None:
        """Tell what is not told yet, as a stray."""
        stray = bytes(self._kept[self._told :])
        if self._opened is not None:
            stray = b"\0" + stray
            self._opened = None
        if stray:
            found.append(Stray(stray))
        self._told = len(self._kept)
