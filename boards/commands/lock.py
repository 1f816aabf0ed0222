"""``motemq rig lock``: who has which board, and holding one for work by hand."""

import time
from pathlib import Path

import click

from boards.commands.exits import board_argument, ending, held_board, open_rig, rig_option
from boards.inventory.locks import holder

_LOOK_S = 0.2


@click.group()
def command() -> None:
    """Show, hold and wait for boards' locks.

    A lock is the kernel's and ends with its process, so there is none to break: end the process
    that 'status' names.
    """


@command.command()
@rig_option
def status(rig_file: Path | None) -> None:
    """Say who has which board."""
    with ending():
        rig = open_rig(rig_file)
        for id in rig.boards:
            held = holder(rig.state_dir, id)
            click.echo(f"{id}: {held.text if held else 'free'}")


@command.command()
@rig_option
@board_argument
@click.option("--for", "seconds", type=float, help="Give it back after so many seconds.")
@click.option("--why", default="held by hand", show_default=True, help="What others are told.")
@click.option("--wait", "wait_s", default=0.0, show_default=True, help="Seconds to wait for it.")
def hold(rig_file: Path | None, board: str, seconds: float | None, why: str, wait_s: float) -> None:
    """Keep BOARD from every rig until Ctrl-C, so that you can work with it by hand.

    Exit codes: 0 after --for, 3 somebody else has it, 130 Ctrl-C.
    """
    with (
        ending("the board is free"),
        held_board(rig_file, board, why, wait_s=wait_s) as (target, _),
    ):
        click.echo(f"{target.id} is yours" + ("" if seconds else "; Ctrl-C gives it back"))
        until = time.monotonic() + seconds if seconds else float("inf")
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_S))
