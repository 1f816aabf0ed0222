"""A virtual ESP32 from its start to its end: its chip, what it is soldered to, and its buttons."""

import logging
import selectors
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from boards.control_port import Answer, ControlServer, Refused, Request
from boards.virtual.control import RunState
from boards.virtual.esp32.chip import Chip
from boards.virtual.esp32.faults import FAULTS, Fault
from boards.virtual.esp32.radio import Radio
from boards.virtual.esp32.reset_lines import ResetLines, Strap
from boards.virtual.esp32.serial_line import SerialLine
from boards.virtual.esp32.serial_ports import SerialPorts
from boards.virtual.esp32.wires import PIN_COUNT
from boards.virtual.lan.client import LanControl
from boards.virtual.lifetime import Life, take_folder
from boards.virtual.pin_changes import PinChanges
from boards.virtual.rfc2217 import LinesSet
from boards.virtual.rp2040.bootsel import BootselDrive

_POLL_S = 0.1  # death of the parent, unread terminal, faults
_MAC_BYTES = 6
_QUICK_POLL_S = 0.02  # while DTR and RTS are being moved
_log = logging.getLogger(__name__)


def board_mac(board_id: str) -> bytes:
    """Return the board's MAC address: "vir", which no real chip has, and three bytes by its name.

    The first byte says that the address is locally administered.
    """
    return b"vir" + sha256(f"motemq virtual esp32 {board_id}".encode()).digest()[:3]


class Supervisor:
    """Owns one board's folder, chip, serial ports and control port.

    Another kind of board that runs the same program says what differs: ``label``, its id as its
    program says it, which ends in its MAC address; ``drive``, see ``Chip``.
    """

    def label(self, board_id: str) -> bytes:
        """Return what the board says that it is."""
        return board_mac(board_id)

    def drive(self, _state_dir: Path) -> BootselDrive | None:
        """Return the drive by which the board is flashed, None for one with an ESP32's loader."""
        return None

    def __init__(
        self,
        board_id: str,
        state_dir: Path,
        *,
        fault: str | None = None,
        lan: Path | None = None,
        detached: bool = False,
    ) -> None:
        """Plug the board in, ``lan``: within reach of the access point that has this folder.

        Raises ``FolderInUse`` if it is plugged in already, ``LanError``, ``OSError``.
        """
        self._lock = take_folder(state_dir)
        self._fault: Fault = (FAULTS[fault] if fault else Fault)(state_dir)
        self._label = self.label(board_id)
        self._drive = self.drive(state_dir)
        self._gone = False
        self._off = False  # without power
        self._selector = selectors.DefaultSelector()
        self._life = Life(self._selector, detached=detached)
        self._lines = ResetLines()
        self._pins = PinChanges()
        self._ports = SerialPorts(self._selector, self._received, self._lines_set)
        self._data = SerialLine(self._selector, self._uart_received)
        mac = self._fault.mac(self._label)
        self._id, self._lan = board_id, lan
        radio = Radio(self._selector, board_id, mac[-_MAC_BYTES:], lan, time.monotonic)
        radio.power_on()  # now, so that who starts us is told if there can be no LAN
        flash = self._flash = self._fault.flash()
        self._chip = Chip(self._selector, state_dir, mac, flash, radio, self, self._drive)
        self._control = ControlServer(
            self._selector,
            {
                "reset": self._reset,
                "boot": self._boot,
                "power": self._power,
                "link": self._link,
                "link_seen": self._link_seen,
                "state": self._tell_state,
                "stop": self._stop,
                "gpio": self._gpio,
                "set_gpio": self._set_gpio,
                "gpio_changes": self._pins.answer,
            },
        )

    def run(self, on_ready: Callable[[dict[str, Any]], None]) -> None:
        """Power it on and run until its end (see ``lifetime``)."""
        try:
            self._chip.boot()
            on_ready(self._address())
            self._life.run(self._tick, self._poll_s)
        finally:
            self._control.close()
            if self._drive is not None:
                self._drive.vanish()
            self._chip.close()
            if not self._gone:
                self._data.close()
                self._ports.close()
            self._selector.close()
            self._lock.close()

    def serial(self, data: bytes) -> None:
        """``Outside``: the chip says something on UART 0."""
        self._to_programs(self._fault.said(data, self._chip.state))

    def uart(self, data: bytes) -> None:
        """``Outside``: the chip says something on UART 1."""
        if not self._gone:
            self._data.send(data)

    def pin(self, pin: int, level: bool) -> None:
        """``Outside``: the level of a pin has changed."""
        self._pins.add(pin, level)

    def _address(self) -> dict[str, Any]:
        urls = self._ports.urls
        return {
            # On a terminal mpremote waits for bytes; elsewhere it looks every 10 ms, and an
            # installation takes four times as long.
            "serial_url": urls["pty"],
            "serial_urls": urls,
            "data_url": f"socket://127.0.0.1:{self._data.port}",
            "control_port": self._control.port,
            "bootsel_dir": str(self._drive.folder) if self._drive is not None else None,
            "uid": self._label.hex(),
            "lan": str(self._lan) if self._lan else None,
        }

    def _poll_s(self) -> float:
        return _POLL_S if self._lines.due_at is None else _QUICK_POLL_S

    def _tick(self, now: float) -> None:
        self._strap(self._lines.tick(now))
        if self._drive is not None and (image := self._drive.poll(now)):
            self._flash.write_pages(image.pages)
            self._chip.boot()
        self._chip.tick(now)
        to_chip, to_programs = self._fault.tick(now, self._chip.state)
        if to_chip:
            self._chip.received(to_chip)
        if to_programs:
            self._to_programs(to_programs)
        if not self._gone:
            self._ports.tick(now)
            self._data.tick(now)
            self._chip.pause(self._ports.is_busy)
            if self._fault.gone:
                self._unplug()

    def _unplug(self) -> None:
        self._gone = True
        self._chip.hold()
        self._ports.close()
        self._data.close()
        _log.info("unplugged")

    def _to_programs(self, data: bytes) -> None:
        if data and not self._gone:
            self._ports.send(data)
            self._chip.pause(self._ports.is_busy)

    def _received(self, data: bytes) -> None:
        data = self._fault.heard(data, self._chip.state)
        if data:
            self._chip.received(data)

    def _uart_received(self, data: bytes) -> None:
        self._chip.uart_received(data)

    def _lines_set(self, lines: LinesSet) -> None:
        self._strap(self._lines.set(time.monotonic(), dtr=lines.dtr, rts=lines.rts))

    def _strap(self, strap: Strap | None) -> None:
        if self._off or self._drive is not None:
            return  # the lines of a chip with USB of its own press nothing
        if strap is Strap.HOLD:
            self._chip.hold()
        elif strap is Strap.LOAD:
            self._load()
        elif strap is Strap.RUN:
            self._chip.boot()

    def _load(self) -> None:
        self._fault.entered_loader()
        self._chip.load()

    def _reset(self, _request: Request, answer: Answer) -> None:
        self._refuse_if_gone()
        self._chip.boot()
        answer(self._state())

    def _boot(self, _request: Request, answer: Answer) -> None:
        self._refuse_if_gone()
        self._load()
        answer(self._state())

    def _power(self, request: Request, answer: Answer) -> None:
        self._refuse_if_gone(off_too=False)
        if not isinstance(request.get("on"), bool):
            raise Refused("on must be true or false")
        self._off = not request["on"]
        if self._off:
            self._chip.hold()
        else:
            self._chip.boot()
        answer(self._state())

    def _link(self, request: Request, answer: Answer) -> None:
        known = ("up", "loss", "delay_ms")
        answer(self._on_lan().set_link(self._id, **{k: request[k] for k in known if k in request}))

    def _link_seen(self, _request: Request, answer: Answer) -> None:
        answer(self._on_lan().seen(self._id))

    def _on_lan(self) -> LanControl:
        if self._lan is None:
            raise Refused("the board is on no LAN: it uses this machine's sockets")
        return LanControl(self._lan)

    def _refuse_if_gone(self, *, off_too: bool = True) -> None:
        if self._gone:
            raise Refused("the board is unplugged")
        if self._off and off_too:
            raise Refused("the board has no power")

    def _tell_state(self, _request: Request, answer: Answer) -> None:
        answer(self._state())

    def _state(self) -> dict[str, Any]:
        state: RunState = "gone" if self._gone else self._chip.state
        return {"state": state, "boots": self._chip.boots}

    def _stop(self, _request: Request, answer: Answer) -> None:
        answer(self._state())
        self._life.end()

    def _gpio(self, request: Request, answer: Answer) -> None:
        answer({"level": self._chip.wires.level(_pin(request))})

    def _set_gpio(self, request: Request, answer: Answer) -> None:
        if not isinstance(request.get("level"), bool):
            raise Refused("level must be true or false")
        self._chip.wires.set_outside(_pin(request), request["level"])
        answer({})


def _pin(request: Request) -> int:
    number = request.get("pin")
    if type(number) is not int or not 0 <= number < PIN_COUNT:
        raise Refused(f"there is no GPIO {number}; an ESP32 has GPIO 0 to {PIN_COUNT - 1}")
    return number
