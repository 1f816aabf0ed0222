"""``motemq rig recover``: bring boards back, and clear their marks by evidence."""

from pathlib import Path

import click

from boards.rig.commands.exits import FAULT, FAULTS, ending, open_rig, rig_option
from boards.rig.desk import wedges
from boards.rig.desk.files import Rig
from boards.rig.desk.ladder import NotBack, bring_back
from boards.rig.desk.locks import BoardLock
from boards.rig.desk.target import DeskBoard


@click.command()
@rig_option
@click.argument("boards", metavar="[BOARD]...", nargs=-1)
def command(rig_file: Path | None, boards: tuple[str, ...]) -> None:
    """Bring each BOARD back, without any all that are marked as wedged.

    Interrupts it, then climbs its reset ladder up to a power cycle. A board that then says that
    it is the one is cleared of its mark; one that does not is marked, with each rung's outcome.

    Exit codes: 0 all are back, 2 usage, 3 one is not.
    """
    with ending():
        rig = open_rig(rig_file)
        ids = [rig.board(id).id for id in boards]
        ids = ids or [id for id in rig.boards if wedges.why(rig.state_dir, id)]
        failed = 0
        for id in ids:
            try:
                _recover(rig, id)
            except FAULTS as error:
                failed += 1
                click.secho(f"{id}: error: {error}", fg="red", err=True)
        if not ids:
            click.echo("no board is marked as wedged")
    if failed:
        raise SystemExit(FAULT)


def _recover(rig: Rig, id: str) -> None:
    board = DeskBoard(rig.board(id))
    with BoardLock.take(rig.state_dir, id, "motemq rig recover"):
        try:
            running = bring_back(board, tap=None, progress=lambda text: click.echo(f"{id}: {text}"))
        except NotBack as error:
            wedges.mark(rig.state_dir, id, str(error))
            raise
        proof = f"says it is {running.uid or 'no id'}, {running.text}"
        wedges.clear(rig.state_dir, id, proof)
    click.echo(f"{id}: back: {proof}")
