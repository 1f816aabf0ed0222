"""``motemq rig add``: from a board that is plugged in to its file."""

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import click

from boards.commands.exits import ending
from boards.flash.esptool_flash import read_esp_chip
from boards.flash.find_board import Running, ask_running
from boards.flash.target import NotThere
from boards.inventory.board_file import id_fault, load_board, missing_link
from boards.inventory.models import Model, Models, all_models, models_seen_as
from boards.inventory.rig_file import RIG_FILE, Rig, load_rig, new_rig
from boards.inventory.states import BoardStatus, inventory_states
from boards.inventory.usb import UsbDevice, read_usb
from boards.repl import ReplError
from boards.serial_port import PortError, PortRefused
from boards.session.plan import PlanError

_ASK_S = 8.0
_ESPTOOL_S = 60.0
_LOOK_S = 0.3


@click.command()
@click.option(
    "--rig",
    "rig_file",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path(RIG_FILE),
    show_default=True,
    help="The desk's file; made if it is not there.",
)
@click.option("--id", "board_id", help="The board's name.  [default: made from its model]")
@click.option(
    "--model",
    metavar="MODEL",
    help=f"Needed if it is in doubt: {', '.join(sorted(all_models()))}, or a file in models/ "
    "beside rig.toml.",
)
@click.option("--port", help="The one at this port or USB path, if there are several new ones.")
@click.option("--serial-url", metavar="URL", help="A board that is not on this machine's USB.")
@click.option("--wait", "wait_s", default=60.0, show_default=True, help="Seconds for plugging in.")
def command(
    rig_file: Path,
    board_id: str | None,
    model: str | None,
    port: str | None,
    serial_url: str | None,
    wait_s: float,
) -> None:
    """Write the file of a board that is plugged in and has none, and ask it who it is.

    A board that runs MicroPython is asked over its REPL; a blank ESP board by esptool, which
    resets it. A blank Pico cannot say: copy MicroPython onto its drive first.

    Exit codes: 0, 2 usage, 3 no such board, or it does not answer.
    """
    with ending("nothing was written"):
        rig = load_rig(rig_file) if rig_file.exists() else new_rig(rig_file)
        chosen = None if model is None else _model(model, rig.models)
        if board_id is not None and (fault := id_fault(board_id)):
            raise PlanError(f"--id {board_id!r}: {fault}")
        if serial_url:
            text, found = _remote(serial_url, rig.models, chosen)
        else:
            text, found = _plugged(_new_device(rig, port, wait_s), rig.models, chosen)
        id = board_id or _free_id(found.prefix, set(rig.boards))
        path = rig.boards_dir / f"{id}.toml"
        if path.exists() or id in rig.boards:
            raise PlanError(f"there is a board {id} already; name this one with --id")
        _write(rig, path, f'id = "{id}"\nmodel = "{found.id}"\n{text}')
        click.echo(f"{path}: {found.about}")
        board = load_board(path, rig.models)
        if board.transport == "console":
            click.echo("its messages go over this cable, beside the REPL")
        if missing := missing_link(board, rig.wifi_ssid):
            click.echo(f"{missing.what}; next:\n  {missing.remedy}")


def _write(rig: Rig, path: Path, text: str) -> None:
    """Write the board's file, and ``rig.toml`` if there is none; neither if they do not load."""
    with ExitStack() as undo:
        for file, content in ((rig.file, 'name = "desk"\n'), (path, text)):
            if file.exists():
                continue
            for folder in reversed([one for one in file.parents if not one.exists()]):
                folder.mkdir()
                undo.callback(folder.rmdir)
            undo.callback(file.unlink, missing_ok=True)
            file.write_text(content)
        load_rig(rig.file)
        undo.pop_all()


def _new_device(rig: Rig, port: str | None, wait_s: float) -> UsbDevice:
    until = time.monotonic() + wait_s
    asked = False
    while True:
        rows = [row for row in inventory_states(rig) if row.state == "unknown"]
        chosen = [row for row in rows if port is None or port in (row.port, *row.detail.split())]
        if len(chosen) == 1:
            return _device(chosen[0])
        if chosen:
            listed = "; ".join(f"{row.port} ({row.detail})" for row in chosen)
            raise PlanError(f"{len(chosen)} new boards: {listed}. Choose one with --port")
        if time.monotonic() > until:
            raise NotThere(
                "no new board showed up: does the cable carry data? See also: motemq rig doctor"
            )
        if not asked and sys.stderr.isatty():
            click.echo("plug the board in …", err=True)
        asked = True
        time.sleep(_LOOK_S)


def _device(row: BoardStatus) -> UsbDevice:
    (device,) = [one for one in read_usb() if one.path == row.detail.split()[-1]]
    return device


def _model(name: str, models: Models) -> Model:
    if name not in models:
        raise PlanError(f"--model {name}: there is none; there are {', '.join(sorted(models))}")
    return models[name]


def _plugged(device: UsbDevice, models: Models, wanted: Model | None) -> tuple[str, Model]:
    if not device.ttys:
        raise NotThere(
            f"{device.text} waits in BOOTSEL mode and cannot say who it is: copy MicroPython's "
            "UF2 onto its drive, then add it"
        )
    usb = f"[usb]\nvid = {device.vid:#06x}\npid = {device.pid:#06x}\n"
    if device.serial:
        usb += f"serial = {_quoted(device.serial)}\n"
    usb += f'path = "{device.path}"\n'
    candidates = models_seen_as(models, device.vid, device.pid)
    identity, model = identify(device.ttys[0], candidates, wanted)
    return usb + identity, model


def _remote(url: str, models: Models, wanted: Model | None) -> tuple[str, Model]:
    candidates = [model for model in models.values() if not model.virtual]
    identity, model = identify(url, candidates, wanted)
    return f"serial_url = {_quoted(url)}\n{identity}", model


def identify(url: str, candidates: list[Model], wanted: Model | None) -> tuple[str, Model]:
    """Ask the board at ``url``; return its [identity] table and which candidate it is."""
    running = _ask(url)
    if wanted is not None:
        candidates = [wanted]
    elif running is not None:
        # The longest ending wins: " Pico W with RP2040" over " with RP2040".
        # A model without an ending fits anything, so it is for --model only.
        fitting = [m for m in candidates if m.machine and running.machine.endswith(m.machine)]
        best = max((len(model.machine) for model in fitting), default=0)
        candidates = [model for model in fitting if len(model.machine) == best]
    if running is None:
        return _esp_identity(url, candidates)
    if len(candidates) != 1:
        raise PlanError(f"it says it is {running.machine!r}: tell its model with --model")
    model = candidates[0]
    if model.flash.method == "none":
        return "", model
    key = "mac" if model.flash.method == "esptool" else "uid"
    return f'[identity]\n{key} = "{running.uid}"\n', model


def _ask(url: str) -> Running | None:
    try:
        return ask_running(url, deadline_s=_ASK_S)
    except PortRefused:
        raise
    except (ReplError, PortError) as error:
        click.echo(f"no MicroPython answers: {error}", err=True)
        return None


def _esp_identity(url: str, candidates: list[Model]) -> tuple[str, Model]:
    if not any(model.flash.method == "esptool" for model in candidates):
        raise NotThere(f"{url}: no MicroPython answers, so nothing tells which board it is")
    chip = read_esp_chip(url, before="default-reset", deadline_s=_ESPTOOL_S)
    fitting = [model for model in candidates if model.chip_name == chip.name]
    if len(fitting) != 1:
        raise PlanError(f"it is an {chip.name}: tell its model with --model")
    return f'[identity]\nmac = "{chip.mac}"\n', fitting[0]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # TOML's basic strings are JSON's


def _free_id(prefix: str, taken: set[str]) -> str:
    return next(id for number in range(1, 1000) if (id := f"{prefix}-{number}") not in taken)
