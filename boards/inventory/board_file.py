"""One board's file, read into plain data, every mistake with file and line."""

import datetime
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from boards.checks.limits import LIMITS
from boards.flash.target import Identity
from boards.inventory.models import (
    FlashMethod,
    LineMode,
    Model,
    Models,
    Reset,
    Transport,
    all_models,
)
from boards.toml_file import Table, read_table

_SCHEMA = 1
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_HEX = re.compile(r"[0-9a-f]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_INTERFACE = re.compile(r"(?<=[\d])(?<!usb-\d):\d+\.\d+$")

PowerDriver = Literal["uhubctl", "relay", "command", "none"]


@dataclass(frozen=True, slots=True)
class UsbMatch:
    """By what a board is known on the USB; None and "" match anything."""

    vid: int | None
    pid: int | None
    serial: str
    path: str  # as udev's ID_PATH, without the interface


@dataclass(frozen=True, slots=True)
class Power:
    """How a board is switched off and on."""

    driver: PowerDriver
    hub: str = ""  # uhubctl: location, e.g. 1-1.2
    port: int = 0  # uhubctl: port of that hub; relay: channel
    serial_url: str = ""  # relay
    on: tuple[str, ...] = ()  # command: argv
    off: tuple[str, ...] = ()
    off_s: float = 2.0  # shorter, and capacitors keep many boards alive
    cuts_vbus: bool = False  # proven by `motemq rig doctor --power`


@dataclass(frozen=True, slots=True)
class VirtualDesk:
    """What a virtual board has in place of fingers and cables."""

    control_port: int
    bootsel_dir: Path | None
    data_url: str
    host: str = ""  # of a board on a virtual LAN: our address there
    ssid: str = ""  # and the network's name


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A check whose failure does not count on one board, until a date."""

    reason: str
    until: datetime.date


@dataclass(frozen=True, slots=True)
class Board:
    """One board of the desk, as its file says."""

    file: Path
    id: str
    model: Model
    caps: tuple[str, ...]
    usb: UsbMatch | None
    serial_url: str  # of boards that are not found on the USB
    identity: Identity
    method: FlashMethod
    image: str  # a name, or a path relative to the board's file; "": it is not flashed
    sha256: str
    offset: int
    baud: int
    protocol: Literal["fmqp", "lightmq"]
    transport: Transport
    mode: LineMode  # of the serial line that carries messages
    data_url: str  # the UART that carries messages, at this end
    resets: tuple[Reset, ...]
    power: Power
    virtual: VirtualDesk | None
    limits: Mapping[str, float]
    quarantine: Mapping[str, Quarantine]
    required: bool = True  # False: a run goes on, and passes, without it


def load_board(file: Path, models: Models | None = None) -> Board:
    """Read one board's file; ``models``: default those that ship. Raises ``TomlError``."""
    models = models or all_models()
    top = read_table(file)
    require_schema(top)
    id = take_id(top, "id", None)
    model = models[top.choice("model", sorted(models))]
    usb, flash, link = top.table("usb"), top.table("flash"), top.table("link")
    identity, reset = top.table("identity"), top.table("reset")
    method: FlashMethod = flash.choice("method", _methods(model), model.flash.method)
    image: str = flash.take("image", str, model.flash.image)
    data_url = link.take("serial_url", str, "")
    # A UART needs a second line to this machine; a board that has none has its console.
    one_cable = model.transport == "uart" and not data_url and not model.virtual
    usual = "console" if one_cable else model.transport
    transport: Transport = link.choice("transport", _transports(model), usual)
    board = Board(
        file=file,
        id=id,
        model=model,
        caps=top.texts("caps", model.caps),
        usb=_usb(top, usb, model),
        serial_url=top.take("serial_url", str, ""),
        identity=_identity(identity, model),
        method=method,
        image=image if method != "none" else "",
        sha256=_sha256(flash),
        offset=flash.number("offset", 0, 0xFFFFFF, model.flash.offset),
        baud=flash.number("baud", 300, 4_000_000, model.flash.baud),
        protocol=link.choice("protocol", ("fmqp", "lightmq"), "fmqp"),
        transport=transport,
        mode=_mode(link, transport, model),
        data_url=data_url,
        resets=reset.choices("order", get_args(Reset), model.resets),
        power=_power(top.table("power")),
        virtual=_virtual(top, model),
        limits=dict(_limits(top.table("limits"))),
        quarantine=dict(_quarantine(top.table("quarantine"))),
        required=top.take("required", bool, True),
    )
    for table in (top, usb, flash, link, identity, reset):
        table.end()
    if board.usb is None and not board.serial_url:
        raise top.error("[usb] or serial_url is missing: by what is the board found?")
    return board


def require_schema(top: Table) -> None:
    """Raise ``TomlError`` if the file is of a schema that is not ours."""
    if top.take("schema", int, _SCHEMA) != _SCHEMA:
        raise top.error(f"schema: this MoteMQ reads schema {_SCHEMA}", "schema")


def take_id(top: Table, key: str, default: str | None) -> str:
    """Take a name that may go into file names."""
    id: str = top.take(key, str, default)
    if not _ID.fullmatch(id):
        raise top.error(
            f"{key} = {id!r}: write 1 to 31 of a-z, 0-9 and -, as it goes into file names", key
        )
    return id


def _methods(model: Model) -> tuple[FlashMethod, ...]:
    if model.flash.method in ("picotool", "uf2_drive"):
        return ("picotool", "uf2_drive", "none")
    return ("esptool", "none") if model.flash.method == "esptool" else ("none",)


def _transports(model: Model) -> tuple[Transport, ...]:
    """The unix port's console is a terminal's, not a board's."""
    return get_args(Transport) if model.kind != "unix" else ("uart", "tcp")


def _mode(link: Table, transport: Transport, model: Model) -> LineMode:
    """The REPL can be beside the reliable link only."""
    if transport == "console":
        reliable: LineMode = link.choice("mode", ("reliable",), "reliable")
        return reliable
    mode: LineMode = link.choice("mode", get_args(LineMode), model.mode)
    return mode


def _usb(top: Table, table: Table, model: Model) -> UsbMatch | None:
    keys = ("vid", "pid", "serial", "path")
    if not any(key in table for key in keys):
        return None
    match = UsbMatch(
        vid=table.number("vid", 0, 0xFFFF) if "vid" in table else None,
        pid=table.number("pid", 0, 0xFFFF) if "pid" in table else None,
        serial=table.take("serial", str, ""),
        path=_INTERFACE.sub("", table.take("path", str, "")),
    )
    if not match.serial and not match.path:
        raise table.error(
            "[usb] needs serial or path: vid and pid are the same on every such board "
            "('motemq rig list' shows both)"
        )
    if match.vid is not None and match.vid not in [known.vid for known in model.usb]:
        known = ", ".join(sorted({f"{usb.vid:#06x} ({usb.what})" for usb in model.usb}))
        raise table.error(
            f"usb.vid = {match.vid:#06x}: no {model.id} is seen under that; known: {known}", "vid"
        )
    return match


def _identity(table: Table, model: Model) -> Identity:
    mac = table.take("mac", str, "").lower().replace(":", "").replace("-", "")
    uid = table.take("uid", str, "").lower().removeprefix("0x")
    for key, text, length in (("mac", mac, 12), ("uid", uid, 16)):
        if text and (len(text) != length or not _HEX.fullmatch(text)):
            raise table.error(f"identity.{key} is not {length} hex digits: {text!r}", key)
    wanted = "mac" if model.flash.method == "esptool" else "uid"
    if model.flash.method != "none" and not (mac if wanted == "mac" else uid):
        raise table.error(
            f"identity.{wanted} is missing: without it no chip can be proven to be this board; "
            "'motemq rig add' reads it"
        )
    return Identity(mac=mac if wanted == "mac" else "", uid=uid if wanted == "uid" else "")


def _sha256(table: Table) -> str:
    text: str = table.take("sha256", str, "")
    if text and not _SHA256.fullmatch(text):
        raise table.error("flash.sha256 is not 64 hex digits", "sha256")
    return text.lower()


def _power(table: Table) -> Power:
    driver: PowerDriver = table.choice("driver", get_args(PowerDriver), "none")
    power = Power(
        driver=driver,
        hub=table.take("hub", str, None if driver == "uhubctl" else ""),
        port=table.number("port", 0, 64, None if driver in ("uhubctl", "relay") else 0),
        serial_url=table.take("serial_url", str, None if driver == "relay" else ""),
        on=table.texts("on", None if driver == "command" else []),
        off=table.texts("off", None if driver == "command" else []),
        off_s=table.take("off_s", float, 2.0),
        cuts_vbus=table.take("cuts_vbus", bool, False),
    )
    if driver == "command" and not (power.on and power.off):
        raise table.error('power.on and power.off are lists like ["relay", "3", "on"]')
    table.end()
    return power


def _virtual(top: Table, model: Model) -> VirtualDesk | None:
    if "virtual" not in top:
        if model.virtual:
            raise top.error("[virtual] is missing: where are this virtual board's buttons?")
        return None
    table = top.table("virtual")
    drive = table.take("bootsel_dir", str, "")
    desk = VirtualDesk(
        control_port=table.number("control_port", 1, 65535),
        bootsel_dir=Path(drive) if drive else None,
        data_url=table.take("data_url", str, ""),
        host=table.take("host", str, ""),
        ssid=table.take("ssid", str, ""),
    )
    table.end()
    if not model.virtual:
        raise top.error(f"[virtual]: model {model.id} is a real board", "virtual")
    return desk


def _limits(table: Table) -> Iterator[tuple[str, float]]:
    for key in LIMITS:
        if key in table:
            yield key, table.take(key, float)
    table.end()


def _quarantine(table: Table) -> Iterator[tuple[str, Quarantine]]:
    for check, entry in table.tables():
        found = Quarantine(entry.take("reason", str), entry.take("until", datetime.date))
        entry.end()
        if not found.reason.strip():
            raise table.error(f'quarantine."{check}": reason is empty: why?', check)
        yield check, found
