"""Board models as data: one TOML file each, here."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

FlashMethod = Literal["uf2_drive", "esptool"]
Transport = Literal["uart", "tcp"]
Kind = Literal["rp2040", "esp32"]


class ModelError(Exception):
    """A model file is wrong; the text names file, key and what is allowed."""


@dataclass(frozen=True, slots=True)
class Uart:
    """The board's UART that carries messages: id, bits/s, GPIO numbers."""

    id: int
    baud: int
    tx: int
    rx: int


@dataclass(frozen=True, slots=True)
class Model:
    """What all boards of one kind have in common."""

    id: str
    kind: Kind
    prefix: str  # of the ids that boards without a name get
    virtual: bool
    flash_method: FlashMethod
    image: str  # a name for firmware.build.ensure
    chip: str  # as esptool calls it, or ""
    offset: int  # in flash, of the image; 0 where the image says it itself
    transport: Transport
    uart: Uart | None


def load_model(path: Path) -> Model:
    """Read one model file. Raises ``ModelError``."""
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ModelError(f"{path}: {error}") from None
    top = _Table(path, "", data)
    flash = _Table(path, "flash.", top.take("flash", dict))
    link = _Table(path, "link.", top.take("link", dict))
    transport: Transport = link.choice("transport", get_args(Transport))
    uart = None
    if transport == "uart":
        table = _Table(path, "link.uart.", link.take("uart", dict))
        uart = Uart(*(table.take(name, int) for name in ("id", "baud", "tx", "rx")))
        table.end()
    model = Model(
        id=top.take("id", str),
        kind=top.choice("kind", get_args(Kind)),
        prefix=top.take("prefix", str),
        virtual=top.take("virtual", bool),
        flash_method=flash.choice("method", get_args(FlashMethod)),
        image=flash.take("image", str),
        chip=flash.take("chip", str, ""),
        offset=flash.take("offset", int, 0),
        transport=transport,
        uart=uart,
    )
    for table in (top, flash, link):
        table.end()
    return model


def virtual_models() -> dict[str, Model]:
    """Return the models of virtual boards by their kind."""
    models = [load_model(path) for path in sorted(Path(__file__).parent.glob("*.toml"))]
    return {model.kind: model for model in models if model.virtual}


class _Table:
    """Takes typed keys out of a TOML table and complains about what is left."""

    def __init__(self, path: Path, prefix: str, data: dict[str, Any]) -> None:
        self._path, self._prefix, self._data = path, prefix, dict(data)

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._data.pop(key, default)
        if value is None:
            raise ModelError(f"{self._path}: key {self._prefix}{key} is missing")
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(f"{self._path}: {self._prefix}{key} = {value!r} is no {kind.__name__}")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> Any:
        value = self.take(key, str)
        if value not in allowed:
            raise ModelError(
                f"{self._path}: {self._prefix}{key} = {value!r} is not one of {', '.join(allowed)}"
            )
        return value

    def end(self) -> None:
        if self._data:
            raise ModelError(f"{self._path}: unknown key {self._prefix}{min(self._data)}")
