"""The few registers that esptool reads and writes: chip identity, clock, and the flash's SPI bus.

A table, because that is all esptool needs to believe in an ESP32 revision 3.0 with a 40 MHz
crystal and 4 MB of flash; every other register reads as what was last written, from 0.
"""

_UART_CLKDIV = 0x3FF40014
_SPI1 = 0x3FF42000  # the bus that the flash hangs on
_SPI1_CMD, _SPI1_USR2, _SPI1_W0 = _SPI1, _SPI1 + 0x24, _SPI1 + 0x80
_SPI_START_USER_COMMAND = 1 << 18
_EFUSE_MAC_LOW, _EFUSE_MAC_HIGH = 0x3FF5A004, 0x3FF5A008

_CHIP = {
    0x40001000: 0x00F01D83,  # the word by which esptool knows an ESP32
    0x3FF5A00C: 1 << 15,  # eFuse: chip revision bit 0
    0x3FF5A014: 1 << 20,  # eFuse: chip revision bit 1
    0x3FF6607C: 1 << 31,  # APB_CTL_DATE: chip revision bit 2, so 3.0
    _UART_CLKDIV: 347,  # 40 MHz crystal / 115200 baud
}
_SPI_ANSWERS = {
    0x9F: 0x1640EF,  # read JEDEC id: Winbond, SPI NOR, 2**0x16 bytes = 4 MB
    0x5A: 0x50444653,  # read SFDP: its signature
}
_MAX_WRITTEN = 1024  # a host may write anywhere; a chip's address space is not ours to allocate


class Registers:
    """The register file of one chip with the given MAC address (6 bytes)."""

    def __init__(self, mac: bytes) -> None:
        self._values = dict(_CHIP)
        self._values[_EFUSE_MAC_HIGH] = int.from_bytes(mac[:2], "big")
        self._values[_EFUSE_MAC_LOW] = int.from_bytes(mac[2:], "big")

    def read(self, address: int) -> int:
        """Return the 32-bit word at ``address``; 0 where there is nothing."""
        return self._values.get(address, 0)

    def write(self, address: int, value: int, mask: int = 0xFFFFFFFF) -> None:
        """Write the bits of ``mask``; a start bit in the SPI command register runs the command."""
        if address in _CHIP or address in (_EFUSE_MAC_LOW, _EFUSE_MAC_HIGH):
            return  # read-only
        if address == _SPI1_CMD and value & _SPI_START_USER_COMMAND:
            opcode = self.read(_SPI1_USR2) & 0xFF
            self._values[_SPI1_W0] = _SPI_ANSWERS.get(opcode, 0)
            return  # done at once: the start bit reads as 0
        if address in self._values or len(self._values) < _MAX_WRITTEN:
            self._values[address] = (self.read(address) & ~mask) | (value & mask)
