"""Board models as data: one TOML file each, here, named as MicroPython names the board.

A desk has models of its own in files of the same kind. Their facts are MicroPython's
(``mpconfigboard.h``: the machine's name) and esptool's (``targets/``: chip ids, offsets).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from boards.toml_file import Section, read_toml, toml_files
from boards.toml_file import TomlError as TomlError

_PREFIX = re.compile(r"[a-z0-9][a-z0-9-]{0,26}")  # with a number behind it, a board's id

Chip = Literal[
    "rp2040",
    "rp2040w",  # a virtual Pico W; a real one's chip is an RP2040
    "rp2350",
    "esp32",
    "esp32s2",
    "esp32s3",
    "esp32c3",
    "esp32c6",
    "unix",
]
FlashMethod = Literal["uf2_drive", "picotool", "esptool", "none"]
# By what messages travel: a UART of their own, a network, or the REPL's own line.
Transport = Literal["uart", "tcp", "console"]
LineMode = Literal["raw", "reliable"]  # of a UART: docs/bridge.md
Reset = Literal["control", "rts", "repl", "power"]
UsbState = Literal["running", "loader"]


U16 = Annotated[int, Meta(ge=0, le=0xFFFF)]
Offset = Annotated[int, Meta(ge=0, le=0xFFFFFF)]
Baud = Annotated[int, Meta(ge=300, le=4_000_000)]  # bits/s
_Gpio = Annotated[int, Meta(ge=0, le=64)]


class Uart(Section, frozen=True):
    """The board's UART that carries messages: id, bits/s, GPIO numbers."""

    id: Annotated[int, Meta(ge=0, le=8)]
    baud: Baud
    tx: _Gpio
    rx: _Gpio


class UsbId(Section, frozen=True):
    """A USB identity under which boards of a model are seen, and in which state they are then."""

    vid: U16
    pid: U16
    state: UsbState = "running"
    what: str = ""  # the bridge chip or interface, as people call it: the name of its table


class Loader(Section, frozen=True):
    """How firmware gets on a board, and what an image must be to be allowed there."""

    method: FlashMethod
    image: str = ""  # a build of firmware.build, a name in firmware/images.toml, or a file
    offset: Offset = 0  # in flash, of an ESP image; a UF2 says it itself
    chip_ids: tuple[int, ...] = ()  # in the image: ESP chip id, or UF2 families
    drive: str = ""  # Board-ID in INFO_UF2.TXT
    baud: Baud = 115200


class _Link(Section, frozen=True):
    transport: Transport
    mode: LineMode = "raw"
    uart: Uart | None = None


class _ModelFile(Section, frozen=True):
    id: str
    about: str
    kind: Chip
    prefix: str
    resets: tuple[Reset, ...]
    flash: Loader
    link: _Link
    virtual: bool = False
    machine: str = ""
    usb: dict[str, Any] = field(default_factory=dict)
    caps: tuple[str, ...] = ()


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
    toml = read_toml(path)
    said = toml.section(_ModelFile)
    for key in ("image", "chip_ids"):
        if said.flash.method != "none" and key not in toml.data["flash"]:
            raise toml.missing(Loader, key, "flash")
    if said.flash.method != "none" and not said.flash.image:
        raise toml.error("flash.image is empty", "flash.image")
    if not _PREFIX.fullmatch(said.prefix):
        text = "write 1 to 27 of a-z, 0-9 and -, as boards' ids begin with it"
        raise toml.error(f"prefix = {said.prefix!r}: {text}", "prefix")
    if said.flash.method != "none" and not said.flash.chip_ids:
        raise toml.error("flash.chip_ids is empty: no image could be for it", "flash.chip_ids")
    if said.link.transport == "uart" and said.link.uart is None:
        raise toml.missing(_Link, "uart", "link")
    image = said.flash.image
    image = str(path.parent / image) if is_file_name(image) else image
    return Model(
        id=said.id,
        about=said.about,
        kind=said.kind,
        prefix=said.prefix,
        virtual=said.virtual,
        machine=said.machine,
        usb=tuple(
            replace(toml.section(UsbId, f"usb.{name}", data), what=name)
            for name, data in said.usb.items()
        ),
        flash=replace(said.flash, image=image),
        resets=said.resets,
        transport=said.link.transport,
        mode=said.link.mode,
        uart=said.link.uart if said.link.transport == "uart" else None,
        caps=said.caps,
    )


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
    if folder.exists() and not folder.is_dir():
        raise TomlError(f"{folder}: is no folder with models of boards; move it away")
    for path in toml_files(folder):
        model = load_model(path)
        if model.id in found:
            raise TomlError(f"{path}:1: there is a model {model.id!r} in this folder already")
        found[model.id] = model
    return found


def virtual_models() -> dict[str, Model]:
    """Return the models of virtual boards by their kind."""
    return {model.kind: model for model in all_models().values() if model.virtual}
