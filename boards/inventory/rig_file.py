"""``rig.toml`` and the boards of the desk, every mistake with file and line."""

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from boards.inventory.board_file import Board, load_board, require_id, require_schema
from boards.inventory.models import Models, TomlError, all_models, models_of
from boards.runtime_folder import check_private, runtime_folder
from boards.toml_file import Section, read_toml, toml_files

RIG_FILE = "rig.toml"
_FLASH_PARALLEL = 4


class _Broker(Section, frozen=True):
    bind: str = ""
    tls: bool = True


class _Wifi(Section, frozen=True):
    ssid: str = ""
    psk_env: str = ""


class _RigFile(Section, frozen=True):
    schema: int = 1
    name: str = "desk"
    boards: str = "boards"
    models: str = "models"
    virtual: bool = False
    state_dir: str = ".rig"
    flash_parallel: Annotated[int, Meta(ge=1, le=64)] = _FLASH_PARALLEL
    broker: _Broker = _Broker()
    wifi: _Wifi = _Wifi()


class NoSuchBoard(TomlError):
    """The desk has no board of that name."""


@dataclass(frozen=True, slots=True)
class Rig:
    """The whole desk."""

    file: Path
    name: str
    state_dir: Path
    flash_parallel: int  # per USB controller
    bind: str  # our address on which a run's own broker listens; "": found out
    tls: bool  # boards on a network reach that broker by TLS
    wifi_ssid: str
    wifi_psk_env: str  # the name of an environment variable, never the secret
    boards: Mapping[str, Board]
    models: Models  # that its boards may be
    models_dir: Path  # of those that are its own
    boards_dir: Path  # one file per board

    @property
    def firmware_lock(self) -> Path:
        """Which official images this desk trusts: SHA-256 by file name; to be committed."""
        return self.file.parent / "firmware.lock"

    def board(self, id: str) -> Board:
        """Return a board; raises ``NoSuchBoard``, which names those there are."""
        if id not in self.boards:
            known = ", ".join(self.boards) or "none yet; add one with: motemq rig add"
            raise NoSuchBoard(f"{self.file}: no board {id!r} on this desk; there are: {known}")
        return self.boards[id]


def load_rig(file: Path) -> Rig:
    """Read ``file`` and all of its boards. Raises ``TomlError``."""
    file = file.absolute()
    toml = read_toml(file)
    said = toml.section(_RigFile)
    require_schema(toml, said.schema)
    if said.wifi.psk_env and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", said.wifi.psk_env):
        raise toml.error(
            "wifi.psk_env is the NAME of an environment variable (A-Z, 0-9, _), never the secret "
            "itself",
            "wifi.psk_env",
        )
    boards_dir, models_dir = file.parent / said.boards, file.parent / said.models
    models = models_of(models_dir)
    folders = [boards_dir, virtual_folder()] if said.virtual else [boards_dir]
    return Rig(
        file=file,
        name=require_id(toml, said.name, "name"),
        state_dir=file.parent / os.path.expanduser(said.state_dir),
        flash_parallel=said.flash_parallel,
        bind=said.broker.bind,
        tls=said.broker.tls,
        wifi_ssid=said.wifi.ssid,
        wifi_psk_env=said.wifi.psk_env,
        boards=_boards(folders, models),
        models=models,
        models_dir=models_dir,
        boards_dir=boards_dir,
    )


def virtual_folder() -> Path:
    """Return where virtual boards that are up have their files: ``motemq rig virtual up``.

    It is ``desk`` in ``runtime_folder()``. A file appears by a rename and goes with its board.
    Raises ``Untrusted`` if others could have put files there.
    """
    runtime = runtime_folder()
    with contextlib.suppress(FileNotFoundError):
        check_private(runtime)
    return runtime / "desk"


def virtual_rig() -> Rig | None:
    """Return the desk of the virtual boards that are up, None if none is. Raises ``TomlError``."""
    folder = virtual_folder()
    boards = _boards([folder], all_models())
    if not boards:
        return None
    return _plain_rig(folder, "virtual", folder.parent / "rig", boards, folder)


def new_rig(file: Path) -> Rig:
    """Return the desk that ``file`` would be, of which there is nothing yet but perhaps models."""
    folder = file.absolute().parent
    return _plain_rig(file.absolute(), "desk", folder / ".rig", {}, folder)


def _plain_rig(
    file: Path, name: str, state_dir: Path, boards: Mapping[str, Board], folder: Path
) -> Rig:
    return Rig(
        file=file,
        name=name,
        state_dir=state_dir,
        flash_parallel=_FLASH_PARALLEL,
        bind="",
        tls=True,
        wifi_ssid="",
        wifi_psk_env="",
        boards=boards,
        models=models_of(folder / "models"),
        models_dir=folder / "models",
        boards_dir=folder / "boards",
    )


def _boards(folders: Sequence[Path], models: Models) -> dict[str, Board]:
    found: dict[str, Board] = {}
    for folder in folders:
        if folder.exists() and not folder.is_dir():
            raise TomlError(f"{folder}: is no folder with the boards' files; move it away")
    for file in (file for folder in folders for file in toml_files(folder)):
        board = load_board(file, models)
        if board.id in found:
            raise TomlError(
                f"{file}:1: id {board.id!r} is that of {found[board.id].file} too; change one"
            )
        for other in found.values():
            _tell_apart(board, other)
            _lines_apart(board, other)
        found[board.id] = board
    return found


def _lines_apart(board: Board, other: Board) -> None:
    """No serial line may be two boards', for its console or for its messages."""
    taken = {_line(other.serial_url), _line(other.data_url)} - {""}
    for key, url in (("serial_url", board.serial_url), ("link.serial_url", board.data_url)):
        if _line(url) in taken:
            raise TomlError(f"{board.file}:1: {key} is that of {other.file} too; change one")


def _line(url: str) -> str:
    """Return one name for a serial line that has several: /dev/serial/by-id has links."""
    return url if not url or "://" in url else os.path.realpath(url)


def _tell_apart(board: Board, other: Board) -> None:
    """Two boards that the USB shows alike must have different places."""
    one, two = board.usb, other.usb
    if one is None or two is None or (one.vid, one.pid) != (two.vid, two.pid):
        return
    if one.path and two.path:
        if one.path == two.path:
            raise TomlError(
                f"{board.file}:1: usb.path {one.path!r} is that of {other.file} too: one port "
                "holds one board; change one"
            )
    elif one.serial == two.serial or not one.serial or not two.serial:
        raise TomlError(
            f"{board.file}:1: usb.vid, usb.pid and usb.serial do not tell this board from "
            f"{other.file}: give both a usb.path ('motemq rig list' shows it)"
        )
