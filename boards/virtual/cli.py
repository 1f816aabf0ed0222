"""``motemq rig virtual``: boards for a desk that has none, until they are taken down."""

import json
import signal
from dataclasses import asdict
from pathlib import Path

import click

from boards.commands.exits import ending
from boards.inventory.rig_file import virtual_folder
from boards.runtime_folder import make_private
from boards.virtual.address import KINDS, BoardAddress, BoardKind
from boards.virtual.control import BoardControl, BoardError
from boards.virtual.desk import Desk, Seen
from boards.virtual.esp32.faults import FAULTS
from boards.virtual.preload import firmware_of, preload
from firmware import build

_MAX_BOARDS = 64
_ABOUT = {
    "rp2040": "a Pico: MicroPython's own firmware on an emulated chip",
    "rp2040w": "a Pico W: a drive for UF2 files, MicroPython's unix port with a network",
    "esp32": "an ESP32: a simulated loader, MicroPython's unix port",
    **{name: f"such an ESP32, but {fault.about}" for name, fault in FAULTS.items()},
}


@click.group()
def command() -> None:
    """Put virtual boards on the desk, list them, take them away.

    They belong to no shell: they stay until 'down', and 'motemq rig' finds them. Their flash
    outlasts them. $MOTEMQ_RUNTIME_DIR names another folder than the user's runtime folder.
    """


def _desk() -> Desk:
    runtime = virtual_folder().parent
    make_private(runtime)
    return Desk(runtime)


def _kinds(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> list[BoardKind]:
    chosen: list[BoardKind] = []
    for text in values:
        name, _, count = text.partition(":")
        kinds = [kind for kind in KINDS if kind == name]
        if not kinds:
            raise click.BadParameter(f"{text!r}: there are {', '.join(KINDS)}")
        if not (count or "1").isdecimal() or not 1 <= int(count or 1) <= _MAX_BOARDS:
            raise click.BadParameter(f"{text!r}: write KIND:COUNT, COUNT from 1 to {_MAX_BOARDS}")
        chosen += kinds * int(count or 1)
    if len(chosen) > _MAX_BOARDS:
        raise click.BadParameter(f"{len(chosen)} boards; at most {_MAX_BOARDS} at once")
    return chosen


@command.command(epilog="Kinds: " + "; ".join(f"{kind}: {_ABOUT[kind]}" for kind in KINDS) + ".")
@click.argument("kinds", metavar="KIND[:COUNT]...", nargs=-1, required=True, callback=_kinds)
@click.option("--blank", is_flag=True, help="Erased flash, as from the factory; no files.")
@click.option(
    "--lan",
    is_flag=True,
    help="Boards with a network get one of their own, where links can be bad; needs root.",
)
@click.option("--foreground", is_flag=True, help="Stay here, and take them down at Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per board.")
def up(kinds: list[BoardKind], blank: bool, lan: bool, foreground: bool, as_json: bool) -> None:
    """Start virtual boards and print where they are.

    A board has the flash that the last one of its id left, else MicroPython and no files.

    Exit codes: 0 they are up, 2 usage, 3 one did not start (then none is), 130 interrupted.
    """
    with ending("the boards that came up are down again"):
        images: dict[str, Path] = {}
        if not blank:
            names = {firmware_of(kind) for kind in kinds}
            images = {name: build.ensure(name, _progress) for name in names}
        desk = _desk()
        boards = desk.up(
            kinds,
            blank=blank,
            attached=foreground,
            lan=lan,
            preload=lambda kind, folder: preload(kind, folder, images[firmware_of(kind)]),
        )
        for board in boards:
            click.echo(_line(board, as_json=as_json))
        if foreground:
            try:
                _wait_for_the_end()
            finally:
                desk.down([board.id for board in boards])


@command.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--forget", is_flag=True, help="Their flash and logs go too.")
def down(ids: tuple[str, ...], forget: bool) -> None:
    """Stop the virtual boards ID..., or all of them.

    Exit codes: 0 they are down, 3 one was not there or does not end.
    """
    with ending("some boards may be up still"):
        for id in _desk().down(ids, forget=forget):
            click.echo(f"{id}: down")


@command.command()
@click.argument("id")
@click.option("--up/--down", "is_up", default=None, help="Carry frames, or none.")
@click.option("--loss", type=click.FloatRange(0, 1), help="Share of the frames, 0 to 1.")
@click.option("--delay-ms", type=click.FloatRange(0, 60_000), metavar="MS")
def link(id: str, is_up: bool | None, loss: float | None, delay_ms: float | None) -> None:
    """Change the link of the board ID to its access point; loss and delay count each way.

    Exit codes: 0 done, 2 usage, 3 the board is not there, or on no LAN.
    """
    with ending():
        for board in _desk().boards():
            if board.address.id == id:
                if board.address.lan is None:
                    raise BoardError(f"{id} is on no LAN; see: motemq rig virtual up --lan")
                control = BoardControl(board.address.control_port)
                now = control.set_link(up=is_up, loss=loss, delay_ms=delay_ms)
                state = "up" if now["up"] else "down"
                click.echo(f"{id}: {state}, loss {now['loss']}, {now['delay_ms']} ms")
                return
        raise BoardError(f"there is no virtual board {id!r} up")


@command.command(name="list")
@click.option("--json", "as_json", is_flag=True, help="One JSON line per board.")
def list_(as_json: bool) -> None:
    """List the virtual boards of the desk, and what each of them is doing."""
    with ending():
        for seen in _desk().boards():
            click.echo(_seen(seen, as_json=as_json))


def _progress(line: str) -> None:
    click.echo(line, err=True)


def _line(board: BoardAddress, *, as_json: bool) -> str:
    if as_json:
        return json.dumps({"virtual": True, **asdict(board)}, default=str)
    return f"{board.id}: virtual {board.kind}, {board.uid}, {board.serial_url}"


def _seen(seen: Seen, *, as_json: bool) -> str:
    if as_json:
        state = seen.state or {"state": None, "boots": None}
        text = {"virtual": True, **asdict(seen.address), **state, "pid": seen.pid}
        return json.dumps(text, default=str)
    if seen.state is None:
        what = "its process is gone; 'motemq rig virtual down' tidies up"
    else:
        what = f"{seen.state['state']}, {seen.state['boots']} boots"
    return f"{_line(seen.address, as_json=False)}, {what}"


def _wait_for_the_end() -> None:
    """Return at Ctrl-C, SIGTERM or the end of the terminal."""
    ends = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)  # else their handlers would run
    signal.sigwait(ends)
