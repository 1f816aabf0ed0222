"""A board of the desk as a handle: found anew at every look, with the buttons that it has."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from boards.flash.target import Identity, NotThere, Place
from boards.inventory.board_file import Board, UsbMatch
from boards.inventory.models import Model
from boards.inventory.power import switch
from boards.inventory.usb import UsbDevice, read_usb
from boards.network_line import SCHEMES
from boards.serial_port import PortError, SerialPort
from boards.virtual.control import BoardControl, BoardError

Look = Callable[[], Sequence[UsbDevice]]


class Absent(Exception):
    """A board that need not be there is not; the text says what is missing."""


class BoardHandle:
    """One board of the desk."""

    def __init__(self, board: Board, look: Look = read_usb) -> None:
        self.board = board
        self.id = board.id
        self.identity: Identity = board.identity
        self.baud = board.baud
        self.console_url = ""  # while a bridge has the console: where that goes on
        self._look = look
        loader = msgspec.structs.replace(
            board.model.flash, method=board.method, offset=board.offset
        )
        self.model: Model = replace(board.model, flash=loader, resets=board.resets)

    @property
    def buttons(self) -> BoardControl | None:
        """RESET and BOOT: only virtual boards have them within reach."""
        virtual = self.board.virtual
        return BoardControl(virtual.control_port) if virtual else None

    @property
    def is_elsewhere(self) -> bool:
        """True if a serial server has the board's port: it is on no USB of this machine."""
        return self.board.usb is None and self.board.serial_url.partition("://")[0] in SCHEMES

    @property
    def place_is_proof(self) -> bool:
        """True if the file names the port into which this board is plugged."""
        usb = self.board.usb
        return self.board.virtual is not None or (usb is not None and bool(usb.path))

    @property
    def data_url(self) -> str:
        """The far end of the UART that carries messages, "" if there is none."""
        virtual = self.board.virtual
        return self.board.data_url or (virtual.data_url if virtual else "")

    def power(self, *, on: bool) -> None:
        """Cut the board's power, or give it back: it starts as after a reset.

        By its ``[power]``; a virtual board needs none. Raises ``PowerError``, ``BoardError``.
        """
        if self.buttons is not None and self.board.power.driver == "none":
            self.buttons.power(on=on)
        else:
            switch(self.board.power, on=on)

    def power_cycle(self) -> None:
        """Switch the board off, wait until its capacitors are empty, and switch it on."""
        self.power(on=False)
        try:
            time.sleep(self.board.power.off_s)
        finally:
            self.power(on=True)

    def answers(self) -> bool:
        """Return False if it is known that no program runs."""
        return self.buttons is None or self.buttons.state()["state"] == "running"

    def place(self) -> Place:
        """Look where the board is. Raises ``NotThere`` unless there is exactly one."""
        place = self._place()
        if self.console_url and place.serial_url:
            return replace(place, serial_url=self.console_url)
        return place

    def find(self) -> Place:
        """Look where the board is. Raises ``NotThere``, or ``Absent`` if it need not be there."""
        try:
            place = self.place()
            # Of a board that no file of this machine stands for, only its port tells.
            is_url = self.board.usb is None and "://" in self.board.serial_url
            if is_url and not self.board.required:
                SerialPort.open(place.serial_url).close()
        except (NotThere, PortError) as error:
            if self.board.required:
                raise
            raise Absent(str(error)) from None
        return place

    def own_port(self) -> str:
        """Return the board's own port, also while a bridge has it. Raises ``PortError``."""
        try:
            return self._place().serial_url
        except NotThere as error:
            raise PortError(str(error)) from None

    def _place(self) -> Place:
        if self.board.virtual is not None:
            return self._virtual_place(self.board.virtual.bootsel_dir)
        if self.board.usb is None:
            url = self.board.serial_url
            if "://" not in url and not Path(url).exists():
                raise NotThere(f"{self.id}: not plugged in: there is no {url}")
            return Place(None, url)
        found = find(self.board, self._look())
        device = found[0]
        if len(found) > 1:
            raise NotThere(
                f"{self.id}: {len(found)} devices could be it: "
                + "; ".join(one.text for one in found)
                + f". Give usb.serial or usb.path in {self.board.file}; nothing was touched"
            )
        in_loader = _usb_state(self.model, device) == "loader"
        if not device.ttys and not in_loader:
            raise NotThere(
                f"{self.id}: {device.text} has no serial port: is its driver loaded, and does the "
                "cable carry data?"
            )
        return Place(
            state="loader" if in_loader else None,
            serial_url="" if in_loader else device.ttys[0],
            hub_path=device.path,
            bus=device.bus,
            address=device.address,
            drive=device.drive,
            own_usb=not device.is_adapter,
        )

    def controller(self) -> str:
        """Return the USB controller that the board hangs on, "" off the USB."""
        if self.board.usb is None:
            return ""
        found = find(self.board, self._look())
        return found[0].controller

    def _virtual_place(self, drive: Path | None) -> Place:
        if self.buttons is None:
            raise NotThere(f"{self.id}: it has no control port")
        try:
            state = self.buttons.state()["state"]
        except BoardError as error:
            raise NotThere(f"{self.id}: the virtual board is not up: {error}") from None
        in_loader = state in ("bootsel", "download")
        return Place(
            state="loader" if in_loader else "running" if state == "running" else None,
            serial_url=self.board.serial_url,
            drive=drive,
            own_usb=self.model.kind == "rp2040",  # the others' console is a UART
        )


def find(board: Board, devices: Sequence[UsbDevice]) -> list[UsbDevice]:
    """Return the devices that could be ``board``, at least one. Raises ``NotThere``."""
    match = board.usb
    if match is None:
        raise NotThere(f"{board.id}: it is not looked for on the USB")
    found = [device for device in devices if _fits(match, board, device)]
    if found:
        # Another board that waits in BOOTSEL mode is no doubt about one that runs.
        running = [one for one in found if _usb_state(board.model, one) == "running"]
        return running or found
    near = [device.text for device in devices if _is_kind(board.model, device)]
    raise NotThere(
        f"{board.id}: not plugged in: no device is {_describe(match)} (from {board.file}). "
        + (f"There is {'; '.join(near)}" if near else f"There is no {board.model.id} at all")
    )


def _fits(match: UsbMatch, board: Board, device: UsbDevice) -> bool:
    model = board.model
    in_loader = _usb_state(model, device) == "loader"
    if match.path and not match.path.endswith(device.path):
        return False
    if in_loader:
        # In BOOTSEL mode all ids are the chip's: only the place tells this board from others.
        return _is_kind(model, device)
    if _is_same_chip(board, device):
        return True
    return (
        (match.vid is None or device.vid == match.vid)
        and (match.pid is None or device.pid == match.pid)
        and (not match.serial or device.serial == match.serial)
        and (match.vid is not None or _is_kind(model, device))
    )


def _is_same_chip(board: Board, device: UsbDevice) -> bool:
    """An ESP chip with USB of its own is seen under one id by its ROM, by another with a program.

    The ROM writes the MAC with colons as its serial number, MicroPython without.
    """
    serial = device.serial.replace(":", "").lower()
    return bool(serial) and serial == board.identity.text and _is_kind(board.model, device)


def _is_kind(model: Model, device: UsbDevice) -> bool:
    return model.seen_as(device.vid, device.pid) is not None


def _usb_state(model: Model, device: UsbDevice) -> str:
    usb = model.seen_as(device.vid, device.pid)
    return usb.state if usb is not None else "running"


def _describe(match: UsbMatch) -> str:
    words = []
    if match.vid is not None:
        words.append(f"{match.vid:04x}:{match.pid or 0:04x}")
    if match.serial:
        words.append(f"serial {match.serial!r}")
    if match.path:
        words.append(f"at {match.path}")
    return " ".join(words)
