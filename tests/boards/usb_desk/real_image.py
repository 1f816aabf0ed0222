"""A model and an image of boards that the rig takes for real ones, though they are virtual."""

import hashlib
import struct
from pathlib import Path

from firmware.build import ensure

GREENHOUSE = """\
id = "GREENHOUSE"
about = "an ESP32 behind a CP210x"
kind = "esp32"
prefix = "green"
machine = "(MicroPython unix port, not ESP32 code)"
resets = ["repl", "power"]
[usb]
CP210x = { vid = 0x10c4, pid = 0xea60 }
[flash]
method = "esptool"
image = "IMAGE"
chip_ids = [0]
offset = 0x1000
[link]
transport = "tcp"
"""


def real_image(path: Path, more: bytes = b"real") -> str:
    """Write the virtual ESP32's firmware as the rig takes one for real chips; return its SHA-256.

    A segment, ``more``, stands before it: those without one are for virtual boards alone.
    """
    data = ensure("vesp32").read_bytes()
    head, (length,) = bytearray(data[:24]), struct.unpack_from("<I", data, 28)
    head[1] = 2
    more = more.ljust(-(-len(more) // 4) * 4)
    made = bytes(head) + struct.pack("<II", 0x3FFB0000, len(more)) + more
    made += data[24 : 32 + length]
    made += bytes(15 - len(made) % 16)
    checksum = 0xEF
    for byte in more + data[32 : 32 + length]:
        checksum ^= byte
    made += bytes([checksum])
    made += hashlib.sha256(made).digest()
    path.write_bytes(made)
    return hashlib.sha256(made).hexdigest()
