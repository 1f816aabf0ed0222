"""A virtual ESP32 from its start to its end: who is behind the serial line, and since when.

After a reset the chip looks at its boot pin: held low, the ROM loader answers; else the image at
0x1000 is verified and run, or refused with the boot loader's message, after which the chip waits.
"""

import fcntl
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from boards.virtual.control import RunState
from boards.virtual.control_server import Answer, ControlServer, Refused, Request
from boards.virtual.esp32 import banner
from boards.virtual.esp32.console import Console
from boards.virtual.esp32.flash import SIZE, Flash
from boards.virtual.esp32.image import ImageError, executable_in, read_image
from boards.virtual.esp32.rom_loader import RomLoader
from boards.virtual.esp32.serial_line import SerialLine
from boards.virtual.esp32.wires import PIN_COUNT, Wires
from boards.virtual.pin_changes import PinChanges

IMAGE_OFFSET = 0x1000
FILES_OFFSET = 0x200000
HEAP = "160k"  # bytes; about what MicroPython leaves free on an ESP32

_POLL_S = 0.1  # death of the parent
_RESTART_S = 0.2  # a program that ends at once is started again no faster than this
_EXIT_SOFT_FRIENDLY, _EXIT_SOFT_RAW, _EXIT_RESET = 42, 43, 44  # firmware/unixport/vesp32
_log = logging.getLogger(__name__)


class StateDirInUse(Exception):
    """Another board runs on this state folder."""


@dataclass(frozen=True, slots=True)
class _Start:
    """A start of the interpreter that is due at ``at`` (seconds, monotonic)."""

    at: float
    cause: banner.Cause
    raw: bool
    boot: bool  # through the boot loader, not a soft reset


def board_mac(board_id: str) -> bytes:
    """Return the board's MAC address: Espressif's prefix and three bytes made from its name."""
    return (
        bytes.fromhex("240ac4") + sha256(f"motemq virtual esp32 {board_id}".encode()).digest()[:3]
    )


class Supervisor:
    """Owns one board's folder, flash, serial line, control port and interpreter."""

    def __init__(self, board_id: str, state_dir: Path) -> None:
        """Power the board on. Raises ``StateDirInUse`` if it is on already."""
        state_dir.mkdir(parents=True, exist_ok=True)
        self._dir = state_dir
        self._lock = (state_dir / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateDirInUse(
                f"a virtual board is running on {state_dir} already; stop it or use another folder"
            ) from None
        self._mac = board_mac(board_id)
        self._flash = Flash(state_dir / "flash.bin")
        self._state: RunState = "running"
        self._boots = 0
        self._started_at = -_RESTART_S
        self._due: _Start | None = None
        self._loader: RomLoader | None = None
        self._ended = False
        self._selector = selectors.DefaultSelector()
        self._line = SerialLine(self._selector, self._received)
        self._console = Console(self._selector, self._line.send)
        self._pins = PinChanges()
        self._data = SerialLine(self._selector, self._data_received)
        self._wires = Wires(self._selector, self._data.send, self._pins.add, time.monotonic)
        self._control = ControlServer(
            self._selector,
            {
                "reset": self._reset,
                "boot": self._boot,
                "state": self._tell_state,
                "stop": self._stop,
                "gpio": self._gpio,
                "set_gpio": self._set_gpio,
                "gpio_changes": self._pins.answer,
            },
        )

    def run(self, on_ready: Callable[[dict[str, Any]], None]) -> None:
        """Run until standard input ends, ``stop``, SIGTERM, SIGINT or the parent's death."""
        parent = os.getppid()
        woken, wake = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        signal.signal(signal.SIGINT, lambda *_: self._end())
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only to wake the selector
        self._selector.register(woken, selectors.EVENT_READ, lambda _: woken.recv(64))
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._on_stdin)
        try:
            self._power_on(banner.POWER_ON)
            on_ready(self._address())
            while not self._ended and os.getppid() == parent:
                for key, events in self._selector.select(_POLL_S):
                    key.data(events)
                self._tick(time.monotonic())
        finally:
            signal.set_wakeup_fd(-1)
            self._control.close()
            self._console.close()
            self._wires.close()
            self._data.close()
            self._line.close()
            self._selector.close()
            self._flash.close()
            self._lock.close()
            woken.close()
            wake.close()

    def _address(self) -> dict[str, Any]:
        return {
            "serial_url": f"socket://127.0.0.1:{self._line.port}",
            "data_url": f"socket://127.0.0.1:{self._data.port}",
            "control_port": self._control.port,
            "bootsel_dir": None,
            "uid": self._mac.hex(),
        }

    def _end(self) -> None:
        self._ended = True

    def _on_stdin(self, _events: int) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            self._end()

    def _received(self, data: bytes) -> None:
        if self._state == "running":
            self._console.write(data)
        elif self._loader is not None:
            answer = self._loader.receive(data)
            self._line.send(answer.data)
            if answer.boot:
                self._power_on(banner.SOFTWARE)

    def _data_received(self, data: bytes) -> None:
        if self._state == "running":
            self._wires.send_uart(data)

    def _tick(self, now: float) -> None:
        if self._wires.bites_at is not None and now >= self._wires.bites_at:
            self._power_on(banner.WATCHDOG)
        code = self._console.ended()
        if code is not None:
            self._due = self._next_start(code, now)
        if self._due is not None and now >= self._due.at:
            due, self._due = self._due, None
            if due.boot:
                self._power_on(due.cause)
            else:
                self._start_interpreter(due.cause, raw=due.raw)

    def _next_start(self, code: int, now: float) -> _Start:
        at = max(now, self._started_at + _RESTART_S)
        if code in (_EXIT_SOFT_FRIENDLY, _EXIT_SOFT_RAW):
            return _Start(at, banner.SOFT, raw=code == _EXIT_SOFT_RAW, boot=False)
        if code != _EXIT_RESET:
            _log.warning("the interpreter ended with code %d, the board resets", code)
            self._line.send(banner.crashed(code))
        return _Start(at, banner.SOFTWARE, raw=False, boot=True)

    def _power_on(self, cause: banner.Cause) -> None:
        """Boot from flash: verify the image there and run it, or say why not."""
        self._halt()
        self._line.send(banner.flash_boot(cause))
        try:
            program = executable_in(read_image(self._flash, IMAGE_OFFSET, FILES_OFFSET))
        except ImageError as error:
            self._state = "invalid-image"
            self._line.send(banner.refused(str(error)))
            _log.info("not booted: %s", error)
            return
        # A new file each time: a running program's file cannot be written.
        path = self._dir / "app.new"
        path.write_bytes(program)
        path.chmod(0o700)
        path.replace(self._dir / "app")
        self._boots += 1
        _log.info("boot %d, %s", self._boots, cause.name)
        self._line.send(banner.LOADED)
        self._start_interpreter(cause, raw=False)

    def _start_interpreter(self, cause: banner.Cause, *, raw: bool) -> None:
        self._state = "running"
        self._started_at = time.monotonic()
        where = [str(self._dir / "flash.bin"), str(FILES_OFFSET), str(SIZE - FILES_OFFSET)]
        who = [self._mac.hex(), str(cause.number), "raw" if raw else "friendly"]
        argv = [str(self._dir / "app"), "-X", f"heapsize={HEAP}", "-m", "vesp32_boot"]
        self._wires.reset(hard=cause is not banner.SOFT)
        wires = self._wires.descriptors
        try:
            self._console.start([*argv, *where, *who, *map(str, wires)], self._dir, wires)
        except OSError as error:  # a file system that runs no programs, no more processes
            self._state = "invalid-image"
            self._line.send(banner.refused(f"virtual ESP32: cannot run the image: {error}"))
            _log.error("cannot run the image: %s", error)

    def _halt(self) -> None:
        self._due = None
        self._loader = None
        self._console.kill()
        self._wires.reset(hard=True)

    def _reset(self, _request: Request, answer: Answer) -> None:
        self._power_on(banner.POWER_ON)
        answer({"state": self._state, "boots": self._boots})

    def _boot(self, _request: Request, answer: Answer) -> None:
        self._halt()
        self._state = "download"
        self._loader = RomLoader(self._flash, self._mac)
        self._line.send(banner.DOWNLOAD)
        _log.info("in download mode")
        answer({"state": self._state, "boots": self._boots})

    def _tell_state(self, _request: Request, answer: Answer) -> None:
        answer({"state": self._state, "boots": self._boots})

    def _gpio(self, request: Request, answer: Answer) -> None:
        answer({"level": self._wires.level(_pin(request))})

    def _set_gpio(self, request: Request, answer: Answer) -> None:
        if not isinstance(request.get("level"), bool):
            raise Refused("level must be true or false")
        self._wires.set_outside(_pin(request), request["level"])
        answer({})

    def _stop(self, _request: Request, answer: Answer) -> None:
        answer({"state": self._state, "boots": self._boots})
        self._end()


def _pin(request: Request) -> int:
    number = request.get("pin")
    if type(number) is not int or not 0 <= number < PIN_COUNT:
        raise Refused(f"there is no GPIO {number}; an ESP32 has GPIO 0 to {PIN_COUNT - 1}")
    return number
