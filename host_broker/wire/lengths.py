"""Bytes with their length before them, read from a frame that may not be whole yet.

A codec reads what begins at ``start`` field by field. Each of these functions is given that
``start``, too, so that ``Short`` can say how many bytes of the frame are needed; integers are
big-endian.
"""

from struct import Struct

SHORT = Struct(">H")
LONG = Struct(">I")


class Malformed(ValueError):
    """A frame breaks ``rule``, which is as in ``Violation``; the text says how."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


class Short(Exception):
    """More bytes are needed: so many, from the beginning of the frame."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


def need(data: bytes, start: int, end: int) -> None:
    """Raise ``Short`` unless ``data`` reaches to ``end``."""
    if end > len(data):
        raise Short(end - start)


def read_short(data: bytes, start: int, position: int) -> int:
    """Return the integer of two bytes at ``position``."""
    need(data, start, position + SHORT.size)
    (value,) = SHORT.unpack_from(data, position)
    return int(value)


def read_long(data: bytes, start: int, position: int) -> int:
    """Return the integer of four bytes at ``position``."""
    need(data, start, position + LONG.size)
    (value,) = LONG.unpack_from(data, position)
    return int(value)


def read_bytes(data: bytes, start: int, position: int, length: int) -> tuple[bytes, int]:
    """Return so many bytes at ``position``, and where they end."""
    end = position + length
    need(data, start, end)
    return data[position:end], end


def read_string(data: bytes, start: int, position: int) -> tuple[bytes, int]:
    """Return a string at ``position``, behind its length of two bytes, and where it ends."""
    length = read_short(data, start, position)
    return read_bytes(data, start, position + SHORT.size, length)
