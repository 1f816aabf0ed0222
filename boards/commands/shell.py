"""``motemq rig shell``: a board's REPL for a person, with the board's lock held."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from boards.commands.exits import FAULT, complete_board, ending, open_rig, rig_option
from boards.inventory.locks import BoardLock
from boards.inventory.target import BoardHandle


@click.command()
@rig_option
@click.argument("board", shell_complete=complete_board)
def command(rig_file: Path | None, board: str) -> None:
    """Open BOARD's REPL (mpremote's; Ctrl-] leaves it). No rig touches the board meanwhile.

    Exit codes: 0, 2 usage, 3 it is in use, not there, or the line was lost.
    """
    with ending("the board is free"), tempfile.TemporaryDirectory(prefix="mpremote-") as config:
        rig = open_rig(rig_file)
        target = BoardHandle(rig.board(board))
        with BoardLock.take(rig.state_dir, target.id, "motemq rig shell"):
            url = target.place().serial_url
            click.echo(f"{target.id} at {url}; Ctrl-] leaves")
            # mpremote executes the user's configuration at each start; here there is none.
            code = subprocess.call(
                [sys.executable, "-m", "mpremote", "connect", url, "resume", "repl"],
                env={**os.environ, "XDG_CONFIG_HOME": config},
            )
    if code:
        raise SystemExit(FAULT)
