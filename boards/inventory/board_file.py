"""One board's file, read into plain data, every mistake with file and line; what its link lacks."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from boards.checks.limits import LIMITS
from boards.flash.target import Identity
from boards.inventory.models import (
    U16,
    Baud,
    FlashMethod,
    LineMode,
    Model,
    Models,
    Offset,
    Reset,
    Transport,
    all_models,
)
from boards.runtime_folder import check_trusted_file
from boards.toml_file import Section, TomlFile, read_toml

_SCHEMA = 1
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
_HEX = re.compile(r"[0-9a-f]+")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_INTERFACE = re.compile(r"(?<=[\d])(?<!usb-\d):\d+\.\d+$")

PowerDriver = Literal["uhubctl", "relay", "command", "none"]
_NEEDS: Mapping[PowerDriver, tuple[str, ...]] = {
    "uhubctl": ("hub", "port"),
    "relay": ("serial_url", "port"),
    "command": ("on", "off"),
    "none": (),
}


class UsbMatch(Section, frozen=True):
    """By what a board is known on the USB; None and "" match anything."""

    vid: U16 | None = None
    pid: U16 | None = None
    serial: str = ""
    path: str = ""  # as udev's ID_PATH, without the interface


class Power(Section, frozen=True):
    """How a board is switched off and on."""

    driver: PowerDriver = "none"
    hub: str = ""  # uhubctl: location, e.g. 1-1.2
    port: Annotated[int, Meta(ge=0, le=64)] = 0  # uhubctl: port of that hub; relay: channel
    serial_url: str = ""  # relay
    on: tuple[str, ...] = ()  # command: argv
    off: tuple[str, ...] = ()
    off_s: Annotated[float, Meta(ge=0, le=600)] = (
        2.0  # shorter, and capacitors keep many boards alive
    )
    cuts_vbus: bool = False  # proven by `motemq rig doctor --power`


class VirtualDesk(Section, frozen=True):
    """What a virtual board has in place of fingers and cables."""

    control_port: Annotated[int, Meta(ge=1, le=65535)]
    bootsel_dir: Path | None = None
    data_url: str = ""
    host: str = ""  # of a board on a virtual LAN: our address there
    ssid: str = ""  # and the network's name


class Quarantine(Section, frozen=True):
    """A check whose failure does not count on one board, until a date."""

    reason: str
    until: datetime.date


class _Flash(Section, frozen=True):
    method: FlashMethod | None = None
    image: Annotated[str, Meta(min_length=1)] | None = None
    sha256: str = ""
    offset: Offset | None = None
    baud: Baud | None = None


class _Link(Section, frozen=True):
    protocol: Literal["fmqp", "lightmq"] = "fmqp"
    transport: Transport | None = None
    mode: LineMode | None = None
    serial_url: str = ""


class _Identity(Section, frozen=True):
    mac: str = ""
    uid: str = ""


class _Reset(Section, frozen=True):
    order: tuple[Reset, ...] | None = None


_Limit = Annotated[float, Meta(ge=0)]
_Limits = msgspec.defstruct(
    "_Limits", [(key, _Limit | None, None) for key in LIMITS], bases=(Section,), frozen=True
)


class _BoardFile(Section, frozen=True):
    id: str
    model: str
    schema: int = _SCHEMA
    caps: tuple[str, ...] | None = None
    serial_url: str = ""
    required: bool = True
    usb: UsbMatch = UsbMatch()
    identity: _Identity = _Identity()
    flash: _Flash = _Flash()
    link: _Link = _Link()
    reset: _Reset = _Reset()
    power: Power = Power()
    virtual: VirtualDesk | None = None
    limits: dict[str, Any] = field(default_factory=dict)
    quarantine: dict[str, Any] = field(default_factory=dict)


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
    toml = read_toml(file)
    said = toml.section(_BoardFile)
    require_schema(toml, said.schema)
    model = models[toml.one_of(sorted(models), said.model, "model")]
    flash, link, preset = said.flash, said.link, model.flash
    method: FlashMethod = preset.method
    if flash.method is not None:
        method = toml.one_of(_methods(model), flash.method, "flash.method")
    transport = _transport(toml, link, model)
    board = Board(
        file=file,
        id=require_id(toml, said.id, "id"),
        model=model,
        caps=model.caps if said.caps is None else said.caps,
        usb=_usb(toml, said.usb, model),
        serial_url=said.serial_url,
        identity=_identity(toml, said.identity, model),
        method=method,
        image="" if method == "none" else preset.image if flash.image is None else flash.image,
        sha256=_sha256(toml, flash.sha256),
        offset=preset.offset if flash.offset is None else flash.offset,
        baud=preset.baud if flash.baud is None else flash.baud,
        protocol=link.protocol,
        transport=transport,
        mode=_mode(toml, link, transport, model),
        data_url=link.serial_url,
        resets=model.resets if said.reset.order is None else said.reset.order,
        power=_power(toml, said.power),
        virtual=_virtual(toml, said.virtual, model),
        limits=_limits(toml, said.limits),
        quarantine={
            check: _quarantine(toml, check, data) for check, data in said.quarantine.items()
        },
        required=said.required,
    )
    if board.data_url and board.data_url == board.serial_url:
        raise toml.error(
            "link.serial_url is the board's serial_url, too: one line cannot be both; "
            '[link] transport = "console" has messages go over that line',
            "link.serial_url",
        )
    if board.usb is None and not board.serial_url:
        raise toml.error("[usb] or serial_url is missing: by what is the board found?")
    return board


def require_schema(toml: TomlFile, schema: int) -> None:
    """Raise ``TomlError`` if the file is of a schema that is not ours."""
    if schema != _SCHEMA:
        raise toml.error(f"schema: this MoteMQ reads schema {_SCHEMA}", "schema")


def require_id(toml: TomlFile, id: str, key: str) -> str:
    """Return ``id``, if it is a name that may go into file names. Raises ``TomlError``."""
    if fault := id_fault(id):
        raise toml.error(f"{key} = {id!r}: {fault}", key)
    return id


def id_fault(id: str) -> str:
    """Return what is wrong with a name of a board or desk, "" if nothing is."""
    if _ID.fullmatch(id):
        return ""
    return "write 1 to 31 of a-z, 0-9 and -, as it goes into file names"


def _methods(model: Model) -> tuple[FlashMethod, ...]:
    if model.flash.method in ("picotool", "uf2_drive"):
        return ("picotool", "uf2_drive", "none")
    return ("esptool", "none") if model.flash.method == "esptool" else ("none",)


def _transport(toml: TomlFile, link: _Link, model: Model) -> Transport:
    if link.transport is not None:
        # The unix port's console is a terminal's, not a board's.
        allowed = get_args(Transport) if model.kind != "unix" else ("uart", "tcp")
        chosen: Transport = toml.one_of(allowed, link.transport, "link.transport")
        return chosen
    # A UART needs a second line to this machine; a board that has none has its console.
    one_cable = model.transport == "uart" and not link.serial_url and not model.virtual
    return "console" if one_cable else model.transport


def _mode(toml: TomlFile, link: _Link, transport: Transport, model: Model) -> LineMode:
    if transport != "console":
        return link.mode or model.mode
    # The REPL can be beside the reliable link only.
    mode: LineMode = toml.one_of(("reliable",), link.mode or "reliable", "link.mode")
    return mode


def _usb(toml: TomlFile, match: UsbMatch, model: Model) -> UsbMatch | None:
    if match == UsbMatch():
        return None
    match = replace(match, path=_INTERFACE.sub("", match.path))
    if not match.serial and not match.path:
        raise toml.error(
            "[usb] needs serial or path: vid and pid are the same on every such board "
            "('motemq rig list' shows both)",
            "usb",
        )
    if match.vid is not None and match.vid not in [known.vid for known in model.usb]:
        known = ", ".join(sorted({f"{usb.vid:#06x} ({usb.what})" for usb in model.usb}))
        raise toml.error(
            f"usb.vid = {match.vid:#06x}: no {model.id} is seen under that; known: {known}",
            "usb.vid",
        )
    return match


def _identity(toml: TomlFile, said: _Identity, model: Model) -> Identity:
    mac = said.mac.lower().replace(":", "").replace("-", "")
    uid = said.uid.lower().removeprefix("0x")
    for key, text, length in (("mac", mac, 12), ("uid", uid, 16)):
        if text and (len(text) != length or not _HEX.fullmatch(text)):
            raise toml.error(
                f"identity.{key} is not {length} hex digits: {text!r}", f"identity.{key}"
            )
    wanted = "mac" if model.flash.method == "esptool" else "uid"
    if model.flash.method != "none" and not (mac if wanted == "mac" else uid):
        raise toml.error(
            f"identity.{wanted} is missing: without it no chip can be proven to be this board; "
            "'motemq rig add' reads it",
            "identity",
        )
    return Identity(mac=mac if wanted == "mac" else "", uid=uid if wanted == "uid" else "")


def _sha256(toml: TomlFile, text: str) -> str:
    if text and not _SHA256.fullmatch(text):
        raise toml.error("flash.sha256 is not 64 hex digits", "flash.sha256")
    return text.lower()


def _power(toml: TomlFile, power: Power) -> Power:
    for key in _NEEDS[power.driver]:
        if key not in toml.data["power"]:
            raise toml.missing(Power, key, "power")
    if power.driver == "command" and not (power.on and power.off):
        raise toml.error('power.on and power.off are lists like ["relay", "3", "on"]', "power")
    if power.driver == "command":
        check_trusted_file(toml.file)
    return power


def _virtual(toml: TomlFile, desk: VirtualDesk | None, model: Model) -> VirtualDesk | None:
    if model.virtual and desk is None:
        raise toml.error("[virtual] is missing: where are this virtual board's buttons?")
    if desk is not None and not model.virtual:
        raise toml.error(f"[virtual]: model {model.id} is a real board", "virtual")
    return desk


def _limits(toml: TomlFile, data: dict[str, Any]) -> dict[str, float]:
    said = msgspec.structs.asdict(toml.section(_Limits, "limits", data))
    return {key: value for key, value in said.items() if value is not None}


def _quarantine(toml: TomlFile, check: str, data: Any) -> Quarantine:
    found = toml.section(Quarantine, f"quarantine.{check}", data)
    if not found.reason.strip():
        raise toml.error(f'quarantine."{check}": reason is empty: why?', f"quarantine.{check}")
    return found


@dataclass(frozen=True, slots=True)
class MissingLink:
    """``what`` is missing, and the ``remedy``."""

    what: str
    remedy: str


def missing_link(board: Board, ssid: str) -> MissingLink | None:
    """Return what is missing, None if nothing is; ``ssid``: of the desk's Wi-Fi.

    A board without a network sends its messages over its console, or over a second serial line:
    then it is the wiring.
    """
    if board.virtual is not None:
        return None
    uart = board.model.uart
    if board.transport == "uart" and not board.data_url and uart is not None:
        return MissingLink(
            f"its messages go over UART {uart.id}, and its file does not say where that line ends",
            f'[link] transport = "console" in {board.file} takes the cable of the REPL; or '
            f"wire GPIO {uart.tx} (its TX) to RX, GPIO {uart.rx} (its RX) to TX and GND to GND of "
            f"a 3.3 V USB-UART adapter that does {uart.baud} bits/s, and write [link] "
            'serial_url = "/dev/serial/by-id/…"',
        )
    if board.transport == "tcp" and "wifi" in board.caps and not ssid:
        return MissingLink(
            "it reaches its broker by Wi-Fi, and rig.toml names none",
            '[wifi] ssid = "NAME" and psk_env = "THE_VARIABLE_WITH_ITS_PASSWORD" in rig.toml; or, '
            f"where it has a network by other means, caps = [] in {board.file}",
        )
    return None
