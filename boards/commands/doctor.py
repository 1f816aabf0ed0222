"""``motemq rig doctor``: what keeps boards from working, and what to do about it."""

import shlex
import time
from pathlib import Path

import click

from boards.commands.exits import FAULT, FAULTS, boards_option, ending, open_rig, rig_option
from boards.flash.find_board import ask_running, await_running
from boards.flash.target import NotThere
from boards.inventory import findings
from boards.inventory.board_file import missing_link
from boards.inventory.findings import Finding, next_step, udev_rules
from boards.inventory.locks import BoardLock, Locked
from boards.inventory.models import TomlError, all_models
from boards.inventory.power import PowerError
from boards.inventory.rig_file import Rig
from boards.inventory.states import inventory_states
from boards.inventory.target import BoardHandle
from boards.inventory.usb import read_usb
from boards.repl import Repl, ReplError
from boards.serial_port import PortError, PortRefused
from boards.session.own_files import OwnFiles
from boards.session.plan import PlanError
from boards.virtual.board import NodeError, find_node

_COLORS = {"ok": "green", "note": "yellow", "bad": "red"}
_ASK_S = 8.0
_BACK_S = 20.0
_HEAP = "import gc, os\ngc.collect()\ns = os.statvfs('/')\nprint(gc.mem_free(), s[0] * s[3])"


@click.command()
@rig_option
@boards_option("Also ask this one.")
@click.option("--power", is_flag=True, help="Prove that each --board's power is really cut.")
@click.option("--udev", is_flag=True, help="Print udev rules for boards, and nothing else.")
def command(rig_file: Path | None, board_ids: tuple[str, ...], power: bool, udev: bool) -> None:
    """Look at this machine and its desk, say what is wrong, and what to do about it.

    Touches no board, except those named with --board: these are asked who they are and how much
    room they have, and with --power switched off and on. Needs no rig.toml.

    Exit codes: 0 all is well, 2 usage, 3 something is wrong.
    """
    if power and not board_ids:
        raise click.UsageError("--power goes with --board: it cuts the power of those")
    with ending("nothing was changed"):
        rig, found = _desk(rig_file)
        models = rig.models if rig else all_models()
        if udev:
            click.echo(udev_rules(models), nl=False)
            return
        devices = read_usb()
        found += findings.tools(findings.needed_tools(rig))
        found += _virtual_boards()
        found += findings.usb(devices, models)
        found += findings.access(tty for device in devices for tty in device.ttys)
        found += findings.raw_usb(devices, models=models)
        found += findings.meddlers()
        states = inventory_states(rig) if rig is not None else []
        found += findings.desk(states)
        if rig is not None:
            found += _kept_files(rig) + _links(rig)
            for id in board_ids:
                found += _ask(rig, id, power=power)
        elif board_ids:
            raise PlanError("--board goes with a desk: there is no rig.toml")
    for one in found:
        click.secho(f"{one.level:<5}", fg=_COLORS[one.level], nl=False)
        click.echo(one.text)
        if one.remedy:
            click.echo(f"      -> {one.remedy}")
    click.echo()
    bad = sum(one.level == "bad" for one in found)
    click.echo(f"{bad} of {len(found)} need a hand" if bad else "all is well")
    click.echo("next:")
    for line in next_step(rig, states, devices, found, _option(rig_file)).splitlines():
        click.secho(f"  {line}", bold=True)
    if bad:
        raise SystemExit(FAULT)


def _option(rig_file: Path | None) -> str:
    return f" --rig {shlex.quote(str(rig_file))}" if rig_file else ""


def _desk(rig_file: Path | None) -> tuple[Rig | None, list[Finding]]:
    try:
        rig = open_rig(rig_file)
    except PlanError as error:
        return None, [Finding("note", "there is no desk yet", str(error))]
    except TomlError as error:
        return None, [Finding("bad", str(error), "mend that line, then: motemq rig doctor")]
    return rig, [Finding("ok", f"{rig.file}: {len(rig.boards)} boards")]


def _virtual_boards() -> list[Finding]:
    try:
        return [Finding("ok", f"node for virtual RP2040s: {find_node().node}")]
    except NodeError as error:
        return [Finding("note", f"no virtual RP2040s: {error}", "make setup")]


def _links(rig: Rig) -> list[Finding]:
    found = ((id, missing_link(board, rig.wifi_ssid)) for id, board in rig.boards.items())
    return [Finding("bad", f"{id}: {one.what}", one.remedy) for id, one in found if one]


def _kept_files(rig: Rig) -> list[Finding]:
    return [
        Finding(
            "note",
            f"{id}: its own main.py and boot.py are on this host: a run has not ended, or was "
            "killed",
            f"motemq rig recover {id}",
        )
        for id, board in rig.boards.items()
        if OwnFiles(rig.state_dir, BoardHandle(board)).are_kept
    ]


def _ask(rig: Rig, id: str, *, power: bool) -> list[Finding]:
    board = BoardHandle(rig.board(id))
    try:
        with BoardLock.take(rig.state_dir, id, "motemq rig doctor"):
            found = [_room(board)]
            if power:
                found.append(_power(board))
            return found
    except FAULTS as error:
        return [Finding("bad", f"{id}: {str(error).removeprefix(f'{id}: ')}", _remedy(id, error))]


def _remedy(id: str, error: BaseException) -> str:
    if isinstance(error, Locked):
        return "wait for it, or ask who has it: motemq rig lock status"
    if isinstance(error, NotThere):
        return "plug it in; if it is, compare [usb] in its file with: motemq rig list"
    if isinstance(error, PortRefused):
        return "that first; nothing was done to the board"
    if isinstance(error, PowerError):
        return f"motemq rig power {id} on, and look at [power] in its file"
    return f"motemq rig recover {id}"


def _room(board: BoardHandle) -> Finding:
    url = board.place().serial_url
    running = ask_running(url, deadline_s=_ASK_S)
    if running.uid != board.identity.text:
        return Finding(
            "bad",
            f"{board.id}: the board there says it is {running.uid or 'nobody'}, its file says "
            f"{board.identity.text or 'nothing'}",
            f"swap the plugs, or mend [identity] in {board.board.file}",
        )
    with Repl.open(url, deadline_s=_ASK_S) as repl:
        heap, flash = repl.exec(_HEAP, deadline_s=_ASK_S).split()
    return Finding(
        "ok",
        f"{board.id}: {running.text}; {int(heap) // 1024} KiB of heap and {int(flash) // 1024} KiB "
        "of flash are free",
    )


def _power(board: BoardHandle) -> Finding:
    """Switch off, see it go, switch on, see it come back: many hubs cut the data only."""
    file = board.board.file
    board.power(on=False)
    try:
        time.sleep(board.board.power.off_s)
        silent = _is_gone(board)
    finally:
        board.power(on=True)
    try:
        running = await_running(board, deadline_s=_BACK_S)
    except (NotThere, PortError, ReplError) as error:
        raise PowerError(f"it did not come back after a power cycle: {error}") from error
    if not silent:
        return Finding(
            "bad",
            f"{board.id}: it answers while it should be off",
            f"look at [power] in {file}: another port, or a hub that switches nothing",
        )
    cold = _was_cold(board)
    if not cold:
        return Finding(
            "bad",
            f"{board.id}: it was gone, but did not lose its power: the hub cuts data only",
            f"another hub; leave cuts_vbus out of {file}",
        )
    text = f"{board.id}: its power is really cut, and {running.uid} came back"
    proven = board.board.power.cuts_vbus or board.board.power.driver == "none"
    remedy = "" if proven else f"write cuts_vbus = true into {file}"
    return Finding("ok", text, remedy)


def _is_gone(board: BoardHandle) -> bool:
    try:
        ask_running(board.place().serial_url, deadline_s=3.0)
    except (NotThere, PortError, ReplError):
        return True
    return False


def _was_cold(board: BoardHandle) -> bool:
    with Repl.open(board.place().serial_url, deadline_s=_ASK_S) as repl:
        said = repl.exec(
            "import machine\nprint(machine.reset_cause() == machine.PWRON_RESET)", deadline_s=_ASK_S
        )
    return said.strip() == "True"
