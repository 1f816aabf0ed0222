"""The wire format of the ESP32's loaders, and where the ROM's dialect and the stub's differ.

A frame is ``direction opcode length16 checksum32 data``; a reply is ``01 opcode length16 value32
data status``. See "Serial Protocol" in the esptool documentation.
"""

import struct
from dataclasses import dataclass

from boards.virtual.esp32 import slip

_HEAD = struct.Struct("<BBHI")
_REQUEST, _REPLY = 0x00, 0x01
_CHECKSUM_SEED = 0xEF


@dataclass(frozen=True, slots=True)
class Dialect:
    """Where ROM and stub differ, and their words for the same failures."""

    sync_value: int  # the ROM's is not 0, by which esptool tells them apart
    status_bytes: int
    md5_as_hex: bool
    bad_command: int
    bad_message: int
    bad_checksum: int
    flash_failed: int
    inflate_failed: int


ROM = Dialect(0x20120707, 4, True, 0x05, 0x05, 0x07, 0x08, 0x0B)
STUB = Dialect(0, 2, False, 0xFF, 0xC0, 0xC1, 0xC4, 0xC7)


@dataclass(frozen=True, slots=True)
class Request:
    """A command of the host."""

    opcode: int
    checksum: int
    body: bytes
    whole: bool  # the length field agrees with the body


def parse_request(frame: bytes) -> Request | None:
    """Return the request in a frame, or None if it is not one: a loader stays silent then."""
    if len(frame) < _HEAD.size or frame[0] != _REQUEST:
        return None
    _, opcode, length, checksum = _HEAD.unpack_from(frame)
    body = frame[_HEAD.size :]
    return Request(opcode, checksum, body, whole=length == len(body))


def reply(opcode: int, value: int, data: bytes, dialect: Dialect, reason: int = 0) -> bytes:
    """Return a reply as it goes over the line; ``reason`` 0 is success."""
    status = bytes([1 if reason else 0, reason]).ljust(dialect.status_bytes, b"\0")
    body = data + status
    return slip.encode(_HEAD.pack(_REPLY, opcode, len(body), value) + body)


def checksum(data: bytes) -> int:
    """Return the checksum of a payload: the XOR of its bytes and a seed."""
    result = _CHECKSUM_SEED
    for byte in data:
        result ^= byte
    return result
