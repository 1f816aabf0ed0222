"""The loader by its bytes: what esptool's happy path never sends."""

import struct
import zlib
from collections.abc import Iterator
from functools import reduce
from operator import xor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boards.virtual.esp32 import slip
from boards.virtual.esp32.flash import SIZE, Flash
from boards.virtual.esp32.rom_loader import RomLoader

_MAC = bytes.fromhex("240ac4010203")
_FLASH_BEGIN, _FLASH_DATA, _FLASH_END, _MEM_END, _SYNC = 0x02, 0x03, 0x04, 0x06, 0x08
_READ_REG, _DEFLATE_BEGIN, _DEFLATE_DATA, _MD5 = 0x0A, 0x10, 0x11, 0x13
_SECURITY_INFO, _ERASE_FLASH, _READ_FLASH = 0x14, 0xD0, 0xD2


@pytest.fixture
def flash(tmp_path: Path) -> Iterator[Flash]:
    with Flash(tmp_path / "flash.bin") as chip:
        yield chip


@pytest.fixture
def loader(flash: Flash) -> RomLoader:
    return RomLoader(flash, _MAC)


def _request(opcode: int, body: bytes, payload: bytes = b"", checksum: int | None = None) -> bytes:
    if checksum is None:
        checksum = reduce(xor, payload, 0xEF)
    whole = body + payload
    return slip.encode(struct.pack("<BBHI", 0, opcode, len(whole), checksum) + whole)


def _ask(loader: RomLoader, opcode: int, body: bytes, payload: bytes = b"") -> tuple[int, bytes]:
    """Return the value and the data (status included) of the one reply."""
    (frame,) = slip.SlipDecoder().receive(loader.receive(_request(opcode, body, payload)).data)
    direction, answered, length, value = struct.unpack_from("<BBHI", frame)
    assert (direction, answered, length) == (1, opcode, len(frame) - 8)
    return value, frame[8:]


def _words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def _start_stub(loader: RomLoader) -> None:
    assert loader.receive(_request(_MEM_END, _words(0, 0x4000))).data.endswith(slip.encode(b"OHAI"))


def test_sync_is_answered_eight_times_and_tells_rom_from_stub(loader: RomLoader) -> None:
    sync = _request(_SYNC, b"\x07\x07\x12\x20" + 32 * b"\x55")
    frames = slip.SlipDecoder().receive(loader.receive(sync).data)
    assert [struct.unpack_from("<I", frame, 4)[0] for frame in frames] == [0x20120707] * 8
    _start_stub(loader)
    frames = slip.SlipDecoder().receive(loader.receive(sync).data)
    assert [struct.unpack_from("<I", frame, 4)[0] for frame in frames] == [0] * 8


def test_the_mac_is_in_the_efuses(loader: RomLoader) -> None:
    assert _ask(loader, _READ_REG, _words(0x3FF5A004))[0] == 0xC4010203
    assert _ask(loader, _READ_REG, _words(0x3FF5A008))[0] == 0x240A


def test_status_is_four_bytes_from_rom_and_two_from_the_stub(loader: RomLoader) -> None:
    assert _ask(loader, _READ_REG, _words(0))[1] == bytes(4)
    _start_stub(loader)
    assert _ask(loader, _READ_REG, _words(0))[1] == bytes(2)


@pytest.mark.parametrize("opcode", [_SECURITY_INFO, _ERASE_FLASH, 0x99])
def test_what_the_rom_does_not_know_is_refused(loader: RomLoader, opcode: int) -> None:
    assert _ask(loader, opcode, b"")[1][:2] == b"\x01\x05"


def test_a_download_erases_and_programs(loader: RomLoader, flash: Flash) -> None:
    flash.program(0x2000, b"old")
    assert _ask(loader, _FLASH_BEGIN, _words(2048, 2, 1024, 0x2000))[1][0] == 0
    for number, fill in enumerate((b"a", b"b")):
        head = _words(1024, number, 0, 0)
        assert _ask(loader, _FLASH_DATA, head, fill * 1024)[1][0] == 0
    assert flash.read(0x2000, 4096) == b"a" * 1024 + b"b" * 1024 + b"\xff" * 2048
    digest = _ask(loader, _MD5, _words(0x2000, 2048, 0, 0))[1]
    assert digest[:32].decode() == flash.md5(0x2000, 2048).hex()


def test_a_bad_checksum_writes_nothing(loader: RomLoader, flash: Flash) -> None:
    _ask(loader, _FLASH_BEGIN, _words(16, 1, 16, 0x2000))
    answer = loader.receive(_request(_FLASH_DATA, _words(16, 0, 0, 0), b"x" * 16, checksum=0))
    assert answer.data[9:11] == b"\x01\x07"
    assert flash.read(0x2000, 16) == b"\xff" * 16


@pytest.mark.parametrize("sequence", [1, 7])
def test_a_block_out_of_order_is_refused(loader: RomLoader, sequence: int) -> None:
    _ask(loader, _FLASH_BEGIN, _words(32, 2, 16, 0x2000))
    assert _ask(loader, _FLASH_DATA, _words(16, sequence, 0, 0), b"x" * 16)[1][0] == 1


def test_data_without_a_begin_is_refused(loader: RomLoader) -> None:
    assert _ask(loader, _FLASH_DATA, _words(16, 0, 0, 0), b"x" * 16)[1][0] == 1


@pytest.mark.parametrize(("offset", "size"), [(SIZE, 1), (SIZE - 4096, 4097), (0, 0xFFFFFFFF)])
def test_a_download_beyond_the_end_of_flash_is_refused(
    loader: RomLoader, offset: int, size: int
) -> None:
    assert _ask(loader, _FLASH_BEGIN, _words(size, 1, 1024, offset))[1][:2] == b"\x01\x08"


def test_inflated_data_is_bounded_by_what_was_announced(loader: RomLoader, flash: Flash) -> None:
    _ask(loader, _DEFLATE_BEGIN, _words(100, 1, 0x4000, 0x2000))
    bomb = zlib.compress(bytes(10_000_000))
    assert _ask(loader, _DEFLATE_DATA, _words(len(bomb), 0, 0, 0), bomb)[1][:2] == b"\x01\x0b"
    assert flash.read(0x2000, 200) == b"\xff" * 200


def test_what_is_no_deflate_stream_is_refused(loader: RomLoader) -> None:
    _ask(loader, _DEFLATE_BEGIN, _words(100, 1, 0x4000, 0x2000))
    assert _ask(loader, _DEFLATE_DATA, _words(4, 0, 0, 0), b"junk")[1][:2] == b"\x01\x0b"


def test_the_rom_runs_the_flash_when_asked(loader: RomLoader) -> None:
    assert not loader.receive(_request(_FLASH_END, _words(0))).boot
    assert loader.receive(_request(_FLASH_END, _words(1))).boot


def test_the_stub_restarts_into_the_rom(loader: RomLoader) -> None:
    _start_stub(loader)
    assert not loader.receive(_request(_FLASH_END, _words(0))).boot
    assert len(_ask(loader, _READ_REG, _words(0))[1]) == 4


def test_the_stub_waits_for_acknowledgements_of_what_it_reads(
    loader: RomLoader, flash: Flash
) -> None:
    flash.program(0, b"abcdefgh")
    _start_stub(loader)
    first = loader.receive(_request(_READ_FLASH, _words(0, 8, 2, 2))).data
    assert slip.SlipDecoder().receive(first)[1:] == [b"ab", b"cd"]
    assert loader.receive(slip.encode(_words(2))).data == slip.encode(b"ef")
    assert loader.receive(slip.encode(_words(4))).data == slip.encode(b"gh")
    assert loader.receive(slip.encode(_words(6))).data == b""
    assert loader.receive(slip.encode(_words(8))).data == slip.encode(flash.md5(0, 8))
    assert _ask(loader, _READ_REG, _words(0))[1] == bytes(2)


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=40)), max_size=6), st.binary())
def test_nothing_a_host_sends_raises(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[int, bytes]], noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.bin"
    with Flash(path) as flash:
        loader = RomLoader(flash, _MAC)
        for opcode, body in requests:
            # Erasing 4 MB is correct and slow; its size is not what is tested here.
            if opcode not in (_FLASH_BEGIN, _DEFLATE_BEGIN, _ERASE_FLASH, 0xD1, _MD5):
                loader.receive(_request(opcode, body[:16], body[16:]))
        loader.receive(noise)
