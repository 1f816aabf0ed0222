"""What the ESP32's ROM and boot loader print, as far as tools and people look for it."""

from dataclasses import dataclass

_ROM = "ets Jul 29 2019 12:21:46\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the chip started: the ROM's words, and the number of ``machine.reset_cause()``."""

    name: str
    rom: str
    number: int


POWER_ON = Cause("power on", "rst:0x1 (POWERON_RESET)", 1)
SOFTWARE = Cause("reset by software", "rst:0xc (SW_CPU_RESET)", 2)
WATCHDOG = Cause("reset by the watchdog", "rst:0x7 (TG0WDT_SYS_RESET)", 3)
SOFT = Cause("soft reset", "", 5)  # the interpreter's own: the ROM is not involved

DOWNLOAD = (
    f"{_ROM}{POWER_ON.rom},boot:0x3 (DOWNLOAD_BOOT(UART0/UART1/SDIO_REI_REO_V2))\r\n"
    "waiting for download\r\n"
).encode()
LOADED = (
    b"mode:DIO, clock div:2\r\n"
    b"virtual ESP32: image verified; it runs on the host, not as ESP32 code\r\n"
)


def flash_boot(cause: Cause) -> bytes:
    """Return the ROM's first words when it boots from flash."""
    return (
        f"{_ROM}{cause.rom},boot:0x13 (SPI_FAST_FLASH_BOOT)\r\nconfigsip: 0, SPIWP:0xee\r\n"
    ).encode()


def refused(reason: str) -> bytes:
    """Return the last words before the chip waits for a reset: the image was refused.

    A chip repeats them at every watchdog reset; this one says them once.
    """
    return f"{reason}\r\n".encode()


def crashed(code: int) -> bytes:
    """Return what is said when the interpreter ended in a way that no board software can."""
    return f"\r\nvirtual ESP32: the interpreter ended with code {code}; rebooting...\r\n".encode()
