"""Read an ESP32 image from flash as the boot loader does: verify all of it, or refuse it.

See "Firmware Image Format" in the esptool documentation. One segment of a virtual ESP32's image
holds a host executable behind its 4-byte length.
"""

import hashlib
import struct
from dataclasses import dataclass
from typing import Protocol

_MAGIC = 0xE9
_CHIP_ID_ESP32 = 0
_HEADER = struct.Struct("<BBBBI")
_EXTENDED = struct.Struct("<B3xHBHH4xB")
_SEGMENT = struct.Struct("<II")
_CHECKSUM_SEED = 0xEF
_MAX_SEGMENTS = 16
_MAX_SEGMENT_BYTES = 4 * 1024 * 1024


class ImageError(Exception):
    """The flash holds no image that may be booted; the text is what a boot loader would print."""


class Readable(Protocol):
    """Flash, as far as booting needs it."""

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes from ``offset``."""


@dataclass(frozen=True, slots=True)
class Image:
    """A verified image."""

    entry: int
    segments: tuple[bytes, ...]


def read_image(flash: Readable, offset: int, end: int) -> Image:
    """Return the image at ``offset``, which may reach up to ``end``.

    Raises ``ImageError`` if it is blank, for another chip, cut short or corrupt.
    """
    head = flash.read(offset, _HEADER.size + _EXTENDED.size)
    magic, count, _mode, _size, entry = _HEADER.unpack_from(head)
    if magic != _MAGIC or not 0 < count <= _MAX_SEGMENTS:
        raise ImageError(f"invalid header: {struct.unpack_from('<I', head)[0]:#010x}")
    _wp, chip_id, _rev, _min, _max, has_hash = _EXTENDED.unpack_from(head, _HEADER.size)
    if chip_id != _CHIP_ID_ESP32:
        raise ImageError(f"image is for chip id {chip_id}, this chip is {_CHIP_ID_ESP32}")
    position = offset + len(head)
    segments = []
    checksum = _CHECKSUM_SEED
    for number in range(count):
        if position + _SEGMENT.size > end:
            raise ImageError(f"segment {number} begins beyond the end of its partition")
        _load, length = _SEGMENT.unpack(flash.read(position, _SEGMENT.size))
        position += _SEGMENT.size
        if length % 4 or length > _MAX_SEGMENT_BYTES or position + length > end:
            raise ImageError(f"segment {number} has a bad length: {length:#010x}")
        segment = flash.read(position, length)
        position += length
        checksum ^= _xor(segment)
        segments.append(segment)
    position += 15 - (position - offset) % 16
    if position + 1 + hashlib.sha256().digest_size > end:
        raise ImageError("checksum lies beyond the end of the partition")
    stored = flash.read(position, 1)[0]
    if stored != checksum:
        raise ImageError(f"checksum failed: calculated {checksum:#04x}, read {stored:#04x}")
    position += 1
    if has_hash:
        digest = hashlib.sha256(flash.read(offset, position - offset)).digest()
        if digest != flash.read(position, len(digest)):
            raise ImageError("image hash failed: image is corrupt")
    return Image(entry, tuple(segments))


def executable_in(image: Image) -> bytes:
    """Return the host executable that a virtual ESP32's image carries.

    Raises ``ImageError`` for an image made for a real ESP32, whose code cannot run here.
    """
    for segment in image.segments:
        length = int.from_bytes(segment[:4], "little")
        if segment[4:8] == b"\x7fELF" and length <= len(segment) - 4:
            return segment[4 : 4 + length]
    raise ImageError(
        "image holds ESP32 machine code, which this virtual board cannot run; "
        "flash the one that 'motemq firmware build vesp32' makes"
    )


def _xor(data: bytes) -> int:
    """Return the XOR of all bytes: fold the number in halves until one byte is left."""
    value, width = int.from_bytes(data, "little"), 1
    while width < len(data):
        width *= 2
    while width > 1:
        width //= 2
        value = (value >> (8 * width)) ^ (value & ((1 << (8 * width)) - 1))
    return value
