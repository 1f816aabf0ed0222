"""A virtual Pico from its start to its end: BOOTSEL or running, and who may ask for what.

The boot ROM's choice is made here: a flash whose boot2 is not valid means BOOTSEL, where no CPU
runs and a folder waits for a UF2.

What is asked of the emulator is done once it answers, in the order of asking; nobody hears of it
sooner. Else what is typed after a reset would reach the chip of before it, and be lost with it.
"""

import logging
import selectors
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from boards.control_port import Answer, ControlServer, Refused
from boards.virtual.control import RunState
from boards.virtual.lifetime import Life, take_folder
from boards.virtual.pty_port import PtyPort
from boards.virtual.pty_relay import PtyRelay
from boards.virtual.rp2040 import flash_image
from boards.virtual.rp2040.bootsel import BootselDrive
from boards.virtual.rp2040.emulator import Emulator, Message

_POLL_S = 0.1  # BOOTSEL folder, unread console, death of the parent
_log = logging.getLogger(__name__)


def board_uid(board_id: str) -> str:
    """Return the flash chip's unique id, as hex: "virt" and four bytes by the board's name."""
    return (b"virt" + sha256(f"motemq virtual rp2040 {board_id}".encode()).digest()[:4]).hex()


class Supervisor:
    """Owns one board's folder, emulator, console and control port."""

    def __init__(self, board_id: str, state_dir: Path, *, detached: bool = False) -> None:
        """Take the folder and start the emulator; raises ``FolderInUse`` or ``NodeError``."""
        self._lock = take_folder(state_dir)
        self._uid = board_uid(board_id)
        self._flash = state_dir / "flash.bin"
        flash_image.create_blank(self._flash)
        self._drive = BootselDrive(state_dir / "bootsel")
        self._drive.vanish()
        self._state: RunState = "bootsel"
        self._boots = 0
        self._selector = selectors.DefaultSelector()
        self._life = Life(self._selector, detached=detached)
        self._emulator = Emulator(self._flash, self._uid, self._on_event)
        self._relay = PtyRelay(self._selector, self._emulator.console)
        self._port = PtyPort(self._selector, self._relay.path)
        self._control = ControlServer(
            self._selector,
            {
                "reset": self._reset,
                "boot": self._boot,
                "power": self._power,
                "state": self._tell_state,
                "gpio": self._gpio,
                "set_gpio": self._set_gpio,
                "gpio_changes": self._gpio_changes,
                "stop": self._stop,
            },
        )
        self._failed = False
        self._off = False  # without power
        self._on_ready: Callable[[dict[str, Any]], None] = lambda _: None

    def run(self, on_ready: Callable[[dict[str, Any]], None]) -> int:
        """Run until its end (see ``lifetime``); return an exit code."""
        self._on_ready = on_ready
        self._selector.register(self._emulator, selectors.EVENT_READ, self._on_emulator)
        try:
            self._life.run(self._tick, lambda: _POLL_S)
        finally:
            self._control.close()
            self._emulator.stop()
            self._port.close()
            self._relay.close()
            self._drive.vanish()
            self._selector.close()
            self._lock.close()
        return 1 if self._failed else 0

    def _on_emulator(self, _events: int) -> None:
        if not self._emulator.readable():
            _log.error("the emulator has ended")
            self._failed = True
            self._selector.unregister(self._emulator)
            self._life.end()

    def _on_event(self, message: Message) -> None:
        match message["event"]:
            case "ready":
                address = self._address(message["ports"])
                self._power_on(lambda _: self._on_ready(address))
            case "bootsel":
                self._enter_bootsel("the firmware asked for it", lambda _: None)
            case "reset":
                self._boots += 1
                _log.info("reset by the watchdog, boot %d", self._boots)

    def _address(self, ports: list[int]) -> dict[str, Any]:
        return {
            "serial_url": self._relay.path,
            "serial_urls": {
                "pty": self._relay.path,
                "socket": f"socket://127.0.0.1:{self._port.port}",
            },
            "data_url": f"socket://127.0.0.1:{ports[1]}",
            "uart0_url": f"socket://127.0.0.1:{ports[0]}",
            "control_port": self._control.port,
            "bootsel_dir": str(self._drive.folder),
            "uid": self._uid,
        }

    def _tick(self, now: float) -> None:
        self._relay.tick(now)
        if self._state == "bootsel" and (image := self._drive.poll(now)):
            flash_image.program(self._flash, image)
            _log.info("flashed %d pages", len(image.pages))
            self._power_on(lambda _: None)

    def _power_on(self, then: Answer) -> None:
        """What the boot ROM does after a reset; ``then`` is called when it is done."""
        if not flash_image.is_bootable(self._flash):
            self._enter_bootsel("the flash holds no valid boot2", then)
            return
        self._drive.vanish()

        def done(_message: Message) -> None:
            self._state = "running"
            self._boots += 1
            _log.info("running, boot %d", self._boots)
            then({})

        self._emulator.request("run", done)

    def _enter_bootsel(self, why: str, then: Answer) -> None:
        def done(_message: Message) -> None:
            self._state = "bootsel"
            self._drive.appear()
            _log.info("in BOOTSEL: %s", why)
            then({})

        self._emulator.request("halt", done)

    def _reset(self, _request: Message, answer: Answer) -> None:
        self._refuse_if_off()
        self._power_on(answer)

    def _power(self, request: Message, answer: Answer) -> None:
        if not isinstance(request.get("on"), bool):
            raise Refused("on must be true or false")
        self._off = not request["on"]
        if self._off:
            self._drive.vanish()

            def done(_message: Message) -> None:
                self._state = "held"
                _log.info("power cut")
                answer({})

            self._emulator.request("halt", done)
        else:
            self._power_on(answer)

    def _refuse_if_off(self) -> None:
        if self._off:
            raise Refused("the board has no power")

    def _boot(self, _request: Message, answer: Answer) -> None:
        self._refuse_if_off()
        self._enter_bootsel("the button was held at reset", answer)

    def _tell_state(self, _request: Message, answer: Answer) -> None:
        answer({"state": self._state, "boots": self._boots})

    def _gpio(self, request: Message, answer: Answer) -> None:
        self._emulator.request("gpio", answer, pin=request.get("pin"))

    def _set_gpio(self, request: Message, answer: Answer) -> None:
        if not isinstance(request.get("level"), bool):
            raise Refused("level must be true or false")
        self._emulator.request("set_gpio", answer, pin=request.get("pin"), level=request["level"])

    def _gpio_changes(self, request: Message, answer: Answer) -> None:
        self._emulator.request("gpio_changes", answer, since=request.get("since"))

    def _stop(self, _request: Message, answer: Answer) -> None:
        answer({"state": self._state, "boots": self._boots})
        self._life.end()
