"""The board's flash while nothing runs on it: the file, and whether the boot ROM would boot it."""

from pathlib import Path

from boards.virtual.rp2040.uf2 import Image

FLASH_BYTES = 2 * 1024 * 1024
_BOOT2_BYTES = 256
_POLYNOMIAL = 0x04C11DB7


def create_blank(path: Path) -> None:
    """Write an erased flash, unless there is one."""
    if not path.exists() or path.stat().st_size != FLASH_BYTES:
        path.write_bytes(b"\xff" * FLASH_BYTES)


def program(path: Path, image: Image) -> None:
    """Put a UF2's image into the flash; what it does not touch stays as it is."""
    flash = bytearray(path.read_bytes())
    image.apply(flash)
    # In place, for the emulator keeps the file open.
    with path.open("r+b") as file:
        file.write(flash)


def is_bootable(path: Path) -> bool:
    """Whether the boot ROM would start it: the checksum of boot2 is right (datasheet 2.8.1.3.1)."""
    with path.open("rb") as file:
        boot2 = file.read(_BOOT2_BYTES)
    body, checksum = boot2[:-4], int.from_bytes(boot2[-4:], "little")
    return len(boot2) == _BOOT2_BYTES and boot2_checksum(body) == checksum


def boot2_checksum(body: bytes) -> int:
    """CRC-32/MPEG-2: most significant bit first, initial value all ones, no final inversion."""
    crc = 0xFFFFFFFF
    for byte in body:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1) ^ (_POLYNOMIAL if crc & 0x80000000 else 0)
            crc &= 0xFFFFFFFF
    return crc
