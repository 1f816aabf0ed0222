"""``motemq rig power``: switch one board."""

from pathlib import Path

import click

from boards.commands.exits import complete_board, ending, open_rig, rig_option
from boards.inventory.locks import BoardLock
from boards.inventory.power import cycle, switch


@click.command()
@rig_option
@click.argument("board", shell_complete=complete_board)
@click.argument("what", type=click.Choice(["on", "off", "cycle"]))
def command(rig_file: Path | None, board: str, what: str) -> None:
    """Switch BOARD by the driver of its [power] table.

    Exit codes: 0, 2 usage, 3 it has none, could not be switched, or is in use.
    """
    with ending("look whether the board is on"):
        rig = open_rig(rig_file)
        entry = rig.board(board)
        with BoardLock.take(rig.state_dir, entry.id, f"motemq rig power {what}"):
            if what == "cycle":
                cycle(entry.power)
            else:
                switch(entry.power, on=what == "on")
        click.echo(f"{entry.id}: {what}")
