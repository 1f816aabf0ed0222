"""Write an ESP32 flash image around a payload, in the format of Espressif's boot loader.

Layout: 8-byte header, 16-byte extended header, segments (load address, length, data), padding to
a 16-byte boundary less one, checksum, SHA-256 of everything before it. See "Firmware Image
Format" in the esptool documentation.
"""

import hashlib
import struct

_MAGIC = 0xE9
_FLASH_MODE_DIO = 2
_FLASH_4MB_40MHZ = 0x20
_CHECKSUM_SEED = 0xEF
_NO_WP_PIN = 0xEE
_CHIP_ID_ESP32 = 0
_MAPPED_CODE = 0x400D0018  # where the ESP32 maps code from flash


def esp_image(payload: bytes) -> bytes:
    """Return an ESP32 image with one segment, ``payload`` padded with zeros to 4 bytes.

    The segment begins with the payload's length (4 bytes, little-endian), because padding would
    otherwise change it.
    """
    segment = struct.pack("<I", len(payload)) + payload
    segment += bytes(-len(segment) % 4)
    image = struct.pack("<BBBBI", _MAGIC, 1, _FLASH_MODE_DIO, _FLASH_4MB_40MHZ, _MAPPED_CODE + 4)
    # wp_pin, 3 drive bytes, chip id, minimum revision (3 fields), 4 reserved, hash appended.
    image += struct.pack("<B3xHBHH4xB", _NO_WP_PIN, _CHIP_ID_ESP32, 0, 0, 0xFFFF, 1)
    image += struct.pack("<II", _MAPPED_CODE, len(segment)) + segment
    image += bytes(15 - len(image) % 16)
    image += bytes([_checksum(segment)])
    return image + hashlib.sha256(image).digest()


def _checksum(data: bytes) -> int:
    """Return the XOR of all bytes and the seed, folded word by word for speed."""
    words = 0
    for start in range(0, len(data), 4096):
        block = data[start : start + 4096]
        words ^= int.from_bytes(block.ljust(4096, b"\0"), "little")
    result = _CHECKSUM_SEED
    for byte in words.to_bytes(4096, "little"):
        result ^= byte
    return result
