"""The serial loader of the ESP32: the one in ROM, and the stub that esptool puts in its place.

Bytes in, bytes out. The uploaded stub's machine code is not run: once it is started, the loader
speaks the stub's dialect. See "Serial Protocol" in the esptool documentation.
"""

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from boards.virtual.esp32 import slip
from boards.virtual.esp32.flash import SIZE, FlashError
from boards.virtual.esp32.loader_wire import ROM, STUB, checksum, parse_request, reply
from boards.virtual.esp32.registers import Registers

_READ_SLOW_BYTES = 64


class FlashChip(Protocol):
    """What the loader does to flash; raises ``FlashError`` beyond its end."""

    def read(self, offset: int, length: int) -> bytes: ...
    def program(self, offset: int, data: bytes) -> None: ...
    def erase(self, offset: int, length: int) -> None: ...
    def md5(self, offset: int, length: int) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """What the loader does about some bytes: sends ``data``, then boots the flash if ``boot``."""

    data: bytes
    boot: bool = False


class _Refused(Exception):
    def __init__(self, reason: int) -> None:
        super().__init__(f"refused with reason {reason:#04x}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Result:
    value: int = 0
    data: bytes = b""
    after: bytes = b""  # frames that follow the reply
    boot: bool = False


@dataclass(slots=True)
class _Writing:
    """A download to flash that is going on."""

    offset: int
    block_bytes: int
    left: int  # decompressed bytes still expected (compressed download only)
    inflate: "zlib._Decompress | None"
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """The stub's read of flash that is going on; the host acknowledges every packet."""

    offset: int
    length: int
    packet_bytes: int
    ahead: int  # packets that may be unacknowledged
    sent: int = 0


class RomLoader:
    """The loader of one chip, from reset into download mode on."""

    def __init__(self, flash: FlashChip, mac: bytes) -> None:
        self._flash = flash
        self._registers = Registers(mac)
        self._slip = slip.SlipDecoder()
        self._dialect = ROM
        self._writing: _Writing | None = None
        self._reading: _Reading | None = None

    def receive(self, data: bytes) -> Answer:
        """Take bytes from the line. Nothing that a host may send raises."""
        out = bytearray()
        for frame in self._slip.receive(data):
            if self._reading is not None:
                out += self._acknowledged(frame)
                continue
            answer = self._frame(frame)
            out += answer.data
            if answer.boot:
                return Answer(bytes(out), boot=True)
        return Answer(bytes(out))

    def _frame(self, frame: bytes) -> Answer:
        request = parse_request(frame)
        if request is None:
            return Answer(b"")
        command = _COMMANDS.get(request.opcode)
        dialect = self._dialect
        try:
            if command is None or (command.stub_only and dialect is not STUB):
                raise _Refused(dialect.bad_command)
            if not request.whole or len(request.body) < command.head_bytes:
                raise _Refused(dialect.bad_message)
            payload = request.body[command.head_bytes :]
            if command.has_payload and request.checksum != checksum(payload):
                raise _Refused(dialect.bad_checksum)
            result = command.run(self, request.body)
        except _Refused as refusal:
            return Answer(reply(request.opcode, 0, b"", dialect, refusal.reason))
        except FlashError:
            return Answer(reply(request.opcode, 0, b"", dialect, dialect.flash_failed))
        answer = reply(request.opcode, result.value, result.data, dialect)
        return Answer(answer + result.after, boot=result.boot)

    # Commands, in the order of their numbers.

    def _flash_begin(self, body: bytes) -> _Result:
        size, _blocks, block_bytes, offset = struct.unpack_from("<IIII", body)
        self._flash.erase(offset, size)
        self._writing = _Writing(offset, block_bytes, size, None)
        return _Result()

    def _flash_data(self, body: bytes) -> _Result:
        writing, payload = self._block(body)
        if writing.inflate is not None:
            raise _Refused(self._dialect.bad_message)
        offset = writing.offset + writing.sequence * writing.block_bytes
        self._flash.program(offset, payload)
        writing.sequence += 1
        return _Result()

    def _flash_end(self, body: bytes) -> _Result:
        (stay,) = struct.unpack_from("<I", body)
        self._writing = None
        if self._dialect is ROM:
            return _Result(boot=bool(stay))  # the ROM's "stay" means: leave the loader and run
        if not stay:
            self._dialect = ROM  # the stub restarts the chip, whose boot pin is still held
        return _Result()

    def _mem_begin(self, body: bytes) -> _Result:
        return _Result()  # RAM is not kept: the stub's code is not run

    def _mem_data(self, body: bytes) -> _Result:
        (length,) = struct.unpack_from("<I", body)
        if length != len(body) - 16:
            raise _Refused(self._dialect.bad_message)
        return _Result()

    def _mem_end(self, body: bytes) -> _Result:
        no_entry, _entry = struct.unpack_from("<II", body)
        if no_entry:
            return _Result()
        self._dialect = STUB
        return _Result(after=slip.encode(b"OHAI"))

    def _sync(self, body: bytes) -> _Result:
        value = self._dialect.sync_value
        return _Result(value=value, after=7 * reply(_SYNC, value, b"", self._dialect))

    def _write_reg(self, body: bytes) -> _Result:
        body = body[: len(body) - len(body) % 16]
        for address, value, mask, _delay_us in struct.iter_unpack("<IIII", body):
            self._registers.write(address, value, mask)
        return _Result()

    def _read_reg(self, body: bytes) -> _Result:
        return _Result(value=self._registers.read(struct.unpack_from("<I", body)[0]))

    def _acknowledge(self, body: bytes) -> _Result:
        return _Result()  # pins, size and baud rate: nothing here depends on them

    def _read_flash_slow(self, body: bytes) -> _Result:
        offset, length = struct.unpack_from("<II", body)
        if length > _READ_SLOW_BYTES:
            raise _Refused(self._dialect.bad_message)
        return _Result(data=self._flash.read(offset, length).ljust(_READ_SLOW_BYTES, b"\0"))

    def _flash_deflate_begin(self, body: bytes) -> _Result:
        size, _blocks, block_bytes, offset = struct.unpack_from("<IIII", body)
        self._flash.erase(offset, size)
        self._writing = _Writing(offset, block_bytes, size, zlib.decompressobj())
        return _Result()

    def _flash_deflate_data(self, body: bytes) -> _Result:
        writing, payload = self._block(body)
        if writing.inflate is None:
            raise _Refused(self._dialect.bad_message)
        try:
            # One byte more than may come, so that too much is noticed and never allocated.
            plain = writing.inflate.decompress(payload, writing.left + 1)
        except zlib.error:
            raise _Refused(self._dialect.inflate_failed) from None
        if len(plain) > writing.left:
            raise _Refused(self._dialect.inflate_failed)
        self._flash.program(writing.offset, plain)
        writing.offset += len(plain)
        writing.left -= len(plain)
        writing.sequence += 1
        return _Result()

    def _flash_md5(self, body: bytes) -> _Result:
        offset, length = struct.unpack_from("<II", body)
        digest = self._flash.md5(offset, length)
        return _Result(data=digest.hex().encode() if self._dialect.md5_as_hex else digest)

    def _erase_flash(self, body: bytes) -> _Result:
        self._flash.erase(0, SIZE)
        return _Result()

    def _erase_region(self, body: bytes) -> _Result:
        offset, length = struct.unpack_from("<II", body)
        self._flash.erase(offset, length)
        return _Result()

    def _read_flash(self, body: bytes) -> _Result:
        offset, length, packet_bytes, ahead = struct.unpack_from("<IIII", body)
        if not 0 < packet_bytes <= slip.MAX_FRAME or not 0 < ahead <= 64:
            raise _Refused(self._dialect.bad_message)
        self._flash.read(offset + length, 0)  # refuse a range beyond the end before anything
        self._reading = _Reading(offset, length, packet_bytes, ahead)
        return _Result(after=self._packets(acknowledged=0))

    def _run_user_code(self, body: bytes) -> _Result:
        return _Result(boot=True)

    # Parts of commands.

    def _block(self, body: bytes) -> tuple[_Writing, bytes]:
        """Return the download that a data command belongs to, and its payload."""
        length, sequence = struct.unpack_from("<II", body)
        if self._writing is None or length != len(body) - 16:
            raise _Refused(self._dialect.bad_message)
        if sequence != self._writing.sequence:
            raise _Refused(self._dialect.bad_message)
        return self._writing, body[16:]

    def _acknowledged(self, frame: bytes) -> bytes:
        """Go on reading after the host's acknowledgement: the count of bytes it has."""
        if len(frame) != 4:
            self._reading = None  # the host gave up and speaks commands again
            return self._frame(frame).data
        return self._packets(acknowledged=struct.unpack("<I", frame)[0])

    def _packets(self, acknowledged: int) -> bytes:
        reading = self._reading
        if reading is None:
            return b""
        out = bytearray()
        sent = reading.sent
        window = acknowledged + reading.ahead * reading.packet_bytes
        while sent < reading.length and sent < window:
            step = min(reading.packet_bytes, reading.length - sent)
            out += slip.encode(self._flash.read(reading.offset + sent, step))
            sent += step
        self._reading = replace(reading, sent=sent)
        if acknowledged >= reading.length:
            self._reading = None
            out += slip.encode(self._flash.md5(reading.offset, reading.length))
        return bytes(out)


@dataclass(frozen=True, slots=True)
class _Command:
    run: Callable[[RomLoader, bytes], _Result]
    head_bytes: int  # the least length of the body
    has_payload: bool = False  # the checksum covers what follows those bytes
    stub_only: bool = False


_SYNC = 0x08
_COMMANDS = {
    0x02: _Command(RomLoader._flash_begin, 16),
    0x03: _Command(RomLoader._flash_data, 16, has_payload=True),
    0x04: _Command(RomLoader._flash_end, 4),
    0x05: _Command(RomLoader._mem_begin, 16),
    0x06: _Command(RomLoader._mem_end, 8),
    0x07: _Command(RomLoader._mem_data, 16, has_payload=True),
    _SYNC: _Command(RomLoader._sync, 36),
    0x09: _Command(RomLoader._write_reg, 16),
    0x0A: _Command(RomLoader._read_reg, 4),
    0x0B: _Command(RomLoader._acknowledge, 24),  # SPI_SET_PARAMS
    0x0D: _Command(RomLoader._acknowledge, 4),  # SPI_ATTACH
    0x0E: _Command(RomLoader._read_flash_slow, 8),
    0x0F: _Command(RomLoader._acknowledge, 8),  # CHANGE_BAUDRATE: acknowledged only
    0x10: _Command(RomLoader._flash_deflate_begin, 16),
    0x11: _Command(RomLoader._flash_deflate_data, 16, has_payload=True),
    0x12: _Command(RomLoader._flash_end, 4),
    0x13: _Command(RomLoader._flash_md5, 16),
    0xD0: _Command(RomLoader._erase_flash, 0, stub_only=True),
    0xD1: _Command(RomLoader._erase_region, 8, stub_only=True),
    0xD2: _Command(RomLoader._read_flash, 16, stub_only=True),
    0xD3: _Command(RomLoader._run_user_code, 0, stub_only=True),
}
