"""``motemq rig power``: switch one board."""

from pathlib import Path

import click

from boards.commands.exits import board_argument, ending, held_board, rig_option


@click.command()
@rig_option
@board_argument
@click.argument("what", type=click.Choice(["on", "off", "cycle"]))
def command(rig_file: Path | None, board: str, what: str) -> None:
    """Switch BOARD by the driver of its [power] table; a virtual board needs none.

    Exit codes: 0, 2 usage, 3 it has none, could not be switched, or is in use.
    """
    with (
        ending("look whether the board is on"),
        held_board(rig_file, board, f"motemq rig power {what}") as (target, _),
    ):
        if what == "cycle":
            target.power_cycle()
        else:
            target.power(on=what == "on")
        click.echo(f"{target.id}: {what}")
