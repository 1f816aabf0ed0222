"""SLIP framing (RFC 1055) as Espressif's loaders use it: a frame begins and ends with END."""

_END, _ESC, _ESC_END, _ESC_ESC = 0xC0, 0xDB, 0xDC, 0xDD
_UNESCAPED = {_ESC_END: _END, _ESC_ESC: _ESC}

# The largest frame is a stub's FLASH_DATA: 8 + 16 + 0x4000 bytes.
MAX_FRAME = 0x4000 + 64


def encode(frame: bytes) -> bytes:
    """Return ``frame`` as it goes over the line."""
    body = frame.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc")
    return b"\xc0" + body + b"\xc0"


class SlipDecoder:
    """Finds whole frames in the bytes of a line, however they are cut.

    What cannot be a frame (noise before END, a bad escape, more than ``MAX_FRAME`` bytes) is
    dropped up to the next END, as the loaders do: the host repeats its command.
    """

    def __init__(self) -> None:
        self._frame: bytearray | None = None  # None: waiting for an END
        self._escaped = False

    def receive(self, data: bytes) -> list[bytes]:
        """Take bytes of the line and return the frames that they complete."""
        frames = []
        for byte in data:
            if byte == _END:
                if self._frame:
                    frames.append(bytes(self._frame))
                    self._frame = None
                else:  # a beginning, or the second of two ENDs
                    self._frame = bytearray()
                self._escaped = False
            elif self._frame is not None:
                self._take(byte)
        return frames

    def _take(self, byte: int) -> None:
        if self._frame is None:
            return
        if self._escaped:
            self._escaped = False
            if byte not in _UNESCAPED:
                self._frame = None
                return
            byte = _UNESCAPED[byte]
        elif byte == _ESC:
            self._escaped = True
            return
        if len(self._frame) >= MAX_FRAME:
            self._frame = None
            return
        self._frame.append(byte)
