"""``motemq rig recover``: bring boards back, and clear their marks by evidence."""

from pathlib import Path

import click

from boards.commands.exits import FAULT, FAULTS, complete_board, ending, open_rig, rig_option
from boards.flash.find_board import open_repl
from boards.inventory import unresponsive
from boards.inventory.locks import BoardLock
from boards.inventory.rig_file import Rig
from boards.inventory.target import BoardHandle
from boards.session.own_files import OwnFiles
from boards.session.reset_ladder import NotBack, bring_back

_REPL_S = 30.0


@click.command()
@rig_option
@click.argument("boards", metavar="[BOARD]...", nargs=-1, shell_complete=complete_board)
def command(rig_file: Path | None, boards: tuple[str, ...]) -> None:
    """Bring each BOARD back; without any, all that are wedged or lack files of their own.

    Interrupts it, then climbs its reset ladder up to a power cycle. A board that then says that
    it is the one is cleared of its mark; one that does not is marked, with each rung's outcome.
    The board's own main.py and boot.py, which a run that was killed has left on this host, go
    back onto it.

    Exit codes: 0 all are back, 2 usage, 3 one is not.
    """
    with ending():
        rig = open_rig(rig_file)
        ids = [rig.board(id).id for id in boards]
        ids = ids or [id for id in rig.boards if _needs_it(rig, id)]
        failed = 0
        for id in ids:
            try:
                _recover(rig, id)
            except FAULTS as error:
                failed += 1
                click.secho(f"{id}: error: {error}", fg="red", err=True)
        if not ids:
            click.echo("no board is marked as wedged, and each has its own files")
    if failed:
        raise SystemExit(FAULT)


def _needs_it(rig: Rig, id: str) -> bool:
    wedged = unresponsive.why(rig.state_dir, id)
    return bool(wedged) or OwnFiles(rig.state_dir, BoardHandle(rig.board(id))).are_kept


def _recover(rig: Rig, id: str) -> None:
    board = BoardHandle(rig.board(id))
    with BoardLock.take(rig.state_dir, id, "motemq rig recover"):
        try:
            running = bring_back(board, tap=None, progress=lambda text: click.echo(f"{id}: {text}"))
        except NotBack as error:
            unresponsive.mark(rig.state_dir, id, str(error))
            raise
        proof = f"says it is {running.uid or 'no id'}, {running.text}"
        unresponsive.clear(rig.state_dir, id, proof)
        own_files = OwnFiles(rig.state_dir, board)
        if had := own_files.are_kept:
            with open_repl(board, deadline_s=_REPL_S) as repl:
                own_files.restore(repl)
    click.echo(f"{id}: back: {proof}" + ("; its own files are on it again" if had else ""))
