"""Board models as data: one TOML file each, here, named as MicroPython names the board.

A desk has models of its own in files of the same kind. Their facts are MicroPython's
(``mpconfigboard.h``: the machine's name) and esptool's (``targets/``: chip ids, offsets).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from boards.toml_file import Table, read_table
from boards.toml_file import TomlError as TomlError

Chip = Literal["rp2040", "rp2350", "esp32", "esp32s2", "esp32s3", "esp32c3", "esp32c6", "unix"]
FlashMethod = Literal["uf2_drive", "picotool", "esptool", "none"]
# By what messages travel: a UART of their own, a network, or the REPL's own line.
Transport = Literal["uart", "tcp", "console"]
LineMode = Literal["raw", "reliable"]  # of a UART: docs/bridge.md
Reset = Literal["control", "rts", "repl", "power"]
UsbState = Literal["running", "loader"]


@dataclass(frozen=True, slots=True)
class Uart:
    """The board's UART that carries messages: id, bits/s, GPIO numbers."""

    id: int
    baud: int
    tx: int
    rx: int


@dataclass(frozen=True, slots=True)
class UsbId:
    """A USB identity under which boards of a model are seen, and in which state they are then."""

    vid: int
    pid: int
    state: UsbState
    what: str  # the bridge chip or interface, as people call it


@dataclass(frozen=True, slots=True)
class Loader:
    """How firmware gets on a board, and what an image must be to be allowed there."""

    method: FlashMethod
    image: str  # a build of firmware.build, a name in firmware/images.toml, or a file
    offset: int = 0  # in flash, of an ESP image; a UF2 says it itself
    chip_ids: tuple[int, ...] = ()  # in the image: ESP chip id, or UF2 families
    drive: str = ""  # Board-ID in INFO_UF2.TXT
    baud: int = 115200


@dataclass(frozen=True, slots=True)
class Model:
    """What all boards of one kind have in common."""

    id: str
    about: str
    kind: Chip
    prefix: str  # of the ids that boards without a name get
    virtual: bool
    machine: str  # how sys.implementation._machine ends, "" if that says nothing
    usb: tuple[UsbId, ...]
    flash: Loader
    resets: tuple[Reset, ...]  # in the order of the reset ladder
    transport: Transport
    mode: LineMode
    uart: Uart | None
    caps: tuple[str, ...] = ()  # of a board whose file says nothing else

    def seen_as(self, vid: int, pid: int) -> UsbId | None:
        """Return as what a USB device of these ids is a board of this model, None if it is none."""
        return next((usb for usb in self.usb if (usb.vid, usb.pid) == (vid, pid)), None)

    @property
    def chip_name(self) -> str:
        """The chip as esptool and picotool print it, e.g. ESP32-S3."""
        return self.kind.upper().replace("ESP32", "ESP32-").rstrip("-")


Models = Mapping[str, Model]  # by id


def models_seen_as(models: Models, vid: int, pid: int) -> list[Model]:
    """Return the models whose boards are seen under these ids."""
    return [model for model in models.values() if model.seen_as(vid, pid)]


def is_file_name(image: str) -> bool:
    """Return whether an ``image`` is a file, not the name of one that we know."""
    return "/" in image or image.endswith((".uf2", ".bin"))


def load_model(path: Path) -> Model:
    """Read one model file; an image that is a file is relative to it. Raises ``TomlError``."""
    top = read_table(path)
    flash = top.table("flash", required=True)
    link = top.table("link", required=True)
    transport: Transport = link.choice("transport", get_args(Transport))
    model = Model(
        id=top.take("id", str),
        about=top.take("about", str),
        kind=top.choice("kind", get_args(Chip)),
        prefix=top.take("prefix", str),
        virtual=top.take("virtual", bool, False),
        machine=top.take("machine", str, ""),
        usb=tuple(_usb_id(name, table) for name, table in top.table("usb").tables()),
        flash=_loader(flash, path.parent),
        resets=top.choices("resets", get_args(Reset), None),
        transport=transport,
        mode=link.choice("mode", get_args(LineMode), "raw"),
        uart=_uart(link.table("uart", required=True)) if transport == "uart" else None,
        caps=top.texts("caps", []),
    )
    for table in (top, flash, link):
        table.end()
    return model


@cache
def all_models() -> Models:
    """Return every model that ships, by its id."""
    return _models_in(Path(__file__).parent)


def models_of(folder: Path) -> Models:
    """Return the models that ship, and those of a desk's ``folder``, which need not be there.

    One there replaces the one of its id that ships. Raises ``TomlError``.
    """
    own = _models_in(folder)
    for model in own.values():
        if model.virtual:
            raise TomlError(
                f"{folder}: model {model.id!r}: a virtual board is none of a desk's own"
            )
    return {**all_models(), **own}


def _models_in(folder: Path) -> dict[str, Model]:
    found: dict[str, Model] = {}
    for path in sorted(folder.glob("*.toml")):
        model = load_model(path)
        if model.id in found:
            raise TomlError(f"{path}:1: there is a model {model.id!r} in this folder already")
        found[model.id] = model
    return found


def virtual_models() -> dict[str, Model]:
    """Return the models of virtual boards by their kind."""
    return {model.kind: model for model in all_models().values() if model.virtual}


def _usb_id(name: str, table: Table) -> UsbId:
    found = UsbId(
        vid=table.number("vid", 0, 0xFFFF),
        pid=table.number("pid", 0, 0xFFFF),
        state=table.choice("state", get_args(UsbState), "running"),
        what=name,
    )
    table.end()
    return found


def _loader(table: Table, folder: Path) -> Loader:
    method: FlashMethod = table.choice("method", get_args(FlashMethod))
    image: str = table.take("image", str, "" if method == "none" else None)
    ids = table.take("chip_ids", list, [] if method == "none" else None)
    return Loader(
        method=method,
        image=str(folder / image) if is_file_name(image) else image,
        offset=table.number("offset", 0, 0xFFFFFF, 0),
        chip_ids=tuple(ids),
        drive=table.take("drive", str, ""),
        baud=table.number("baud", 300, 4_000_000, 115200),
    )


def _uart(table: Table) -> Uart:
    uart = Uart(
        id=table.number("id", 0, 8),
        baud=table.number("baud", 300, 4_000_000),
        tx=table.number("tx", 0, 64),
        rx=table.number("rx", 0, 64),
    )
    table.end()
    return uart
