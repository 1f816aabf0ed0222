"""The chip of a virtual ESP32: in reset, in its ROM loader, or running the image in its flash.

After a reset the chip looks at its boot pin: held low, the ROM loader answers; else the image at
0x1000 is verified and run, or refused with the boot loader's message, after which the chip waits.
"""

import logging
import selectors
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from boards.virtual.control import RunState
from boards.virtual.esp32 import banner
from boards.virtual.esp32.console import Console
from boards.virtual.esp32.flash import SIZE, Flash
from boards.virtual.esp32.image import ImageError, executable_in, read_image
from boards.virtual.esp32.radio import Radio
from boards.virtual.esp32.rom_loader import RomLoader
from boards.virtual.esp32.wires import Wires
from boards.virtual.lan.nic import LanError

IMAGE_OFFSET = 0x1000
FILES_OFFSET = 0x200000
HEAP = "160k"  # bytes; about what MicroPython leaves free on an ESP32

# So many bytes an ESP32's console holds unread; what comes beyond them is dropped in silence.
_UART_RING = 260
_RESTART_S = 0.2  # a program that ends at once is started again no faster than this
_EXIT_SOFT_FRIENDLY, _EXIT_SOFT_RAW = 42, 43  # firmware/unixport/vesp32
_log = logging.getLogger(__name__)


class Outside(Protocol):
    """What a chip is soldered to."""

    def serial(self, data: bytes) -> None:
        """The chip says something on UART 0."""

    def uart(self, data: bytes) -> None:
        """The chip says something on UART 1."""

    def pin(self, pin: int, level: bool) -> None:
        """The level of a pin has changed."""


class Drive(Protocol):
    """A boot loader that is a drive, in place of an ESP32's that speaks on UART 0."""

    def appear(self) -> None:
        """Show the drive."""

    def vanish(self) -> None:
        """Take it away; harmless if it is not there."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the interpreter that is due at ``at`` (seconds, monotonic)."""

    at: float
    cause: banner.Cause
    raw: bool
    boot: bool  # through the boot loader, not a soft reset


class Chip:
    """One chip with its flash. ``selector`` keys carry a callable to be called with the events.

    ``drive``: what the chip waits with to be flashed, and says nothing; it does so, too, when it
    has nothing to boot.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        state_dir: Path,
        mac: bytes,
        flash: Flash,
        radio: Radio,
        outside: Outside,
        drive: Drive | None = None,
    ) -> None:
        self._dir = state_dir
        self._drive = drive
        self._mac = mac
        self._flash = flash
        self._radio = radio
        self._say = outside.serial
        self.state: RunState = "held"
        self.boots = 0  # since the process began
        self._started_at = -_RESTART_S
        self._due: _Start | None = None
        self._loader: RomLoader | None = None
        self._console = Console(selector, outside.serial, _UART_RING)
        self.wires = Wires(selector, outside.uart, outside.pin, time.monotonic)

    def close(self) -> None:
        """Switch it off for good."""
        self._radio.close()
        self._console.close()
        self.wires.close()
        self._flash.close()

    def hold(self) -> None:
        """Hold it in reset: nothing runs, nobody answers."""
        self._due = None
        self._loader = None
        if self._drive is not None:
            self._drive.vanish()
        self._radio.cut()  # first: whoever it is connected to is told nothing
        self._console.kill()
        self.wires.reset(hard=True)
        self.state = "held"

    def load(self) -> None:
        """Reset it into its ROM loader."""
        self.hold()
        if self._drive is not None:
            self.state = "bootsel"
            self._drive.appear()
            _log.info("in BOOTSEL")
            return
        self.state = "download"
        self._loader = RomLoader(self._flash, self._mac)
        self._say(banner.DOWNLOAD)
        _log.info("in download mode")

    def boot(self, cause: banner.Cause = banner.POWER_ON) -> None:
        """Reset it into its flash: verify the image there and run it, or say why not."""
        self.hold()
        self._rom_says(banner.flash_boot(cause))
        try:
            program = executable_in(read_image(self._flash, IMAGE_OFFSET, FILES_OFFSET))
        except ImageError as error:
            _log.info("not booted: %s", error)
            if self._drive is not None:
                self.load()
                return
            self.state = "invalid-image"
            self._say(banner.refused(str(error)))
            return
        # A new file each time: a running program's file cannot be written.
        path = self._dir / "app.new"
        path.write_bytes(program)
        path.chmod(0o700)
        path.replace(self._dir / "app")
        self.boots += 1
        _log.info("boot %d, %s", self.boots, cause.name)
        self._rom_says(banner.LOADED)
        self._start_interpreter(cause, raw=False)

    def _rom_says(self, text: bytes) -> None:
        if self._drive is None:
            self._say(text)

    def pause(self, paused: bool) -> None:
        """Let the program wait when it says more on UART 0, or go on."""
        self._console.pause(paused)

    def received(self, data: bytes) -> None:
        """Take what came on UART 0."""
        if self.state == "running":
            self._console.write(data)
        elif self._loader is not None:
            answer = self._loader.receive(data)
            self._say(answer.data)
            if answer.boot:
                self.boot(banner.SOFTWARE)

    def uart_received(self, data: bytes) -> None:
        """Take what came on UART 1."""
        if self.state == "running":
            self.wires.send_uart(data)

    def tick(self, now: float) -> None:
        """Do what is due at ``now``: an end of the interpreter, its restart, the watchdog."""
        self._radio.tick(now)
        if self.wires.bites_at is not None and now >= self.wires.bites_at:
            self.boot(banner.WATCHDOG)
        if self.wires.asks_loader:
            self.load()
        if self.wires.asks_reset:
            at = max(now, self._started_at + _RESTART_S)
            self.hold()
            self._due = _Start(at, banner.SOFTWARE, raw=False, boot=True)
        code = self._console.ended()
        if code is not None:
            self._due = self._next_start(code, now)
        if self._due is not None and now >= self._due.at:
            due, self._due = self._due, None
            if due.boot:
                self.boot(due.cause)
            else:
                self._start_interpreter(due.cause, raw=due.raw)

    def _next_start(self, code: int, now: float) -> _Start:
        at = max(now, self._started_at + _RESTART_S)
        if code in (_EXIT_SOFT_FRIENDLY, _EXIT_SOFT_RAW):
            return _Start(at, banner.SOFT, raw=code == _EXIT_SOFT_RAW, boot=False)
        _log.warning("the interpreter ended with code %d, the board resets", code)
        self._say(banner.crashed(code))
        return _Start(at, banner.SOFTWARE, raw=False, boot=True)

    def _start_interpreter(self, cause: banner.Cause, *, raw: bool) -> None:
        self.state = "running"
        self._started_at = time.monotonic()
        where = [str(self._dir / "flash.bin"), str(FILES_OFFSET), str(SIZE - FILES_OFFSET)]
        who = [self._mac.hex(), str(cause.number), "raw" if raw else "friendly"]
        argv = [str(self._dir / "app"), "-X", f"heapsize={HEAP}", "-m", "vesp32_boot"]
        self.wires.reset(hard=cause is not banner.SOFT)
        ends = (*self.wires.descriptors, self._radio.descriptor)
        try:
            if cause is banner.SOFT:
                self._radio.new_program()
            else:
                self._radio.power_on()
            argv += [*where, *who, *map(str, ends)]
            self._console.start(argv, self._dir, ends, self._radio.enter)
        except (OSError, LanError) as error:  # it cannot be executed, no more processes, no LAN
            self.state = "invalid-image"
            self._say(banner.refused(f"virtual ESP32: cannot run the image: {error}"))
            _log.error("cannot run the image: %s", error)
