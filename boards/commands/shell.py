"""``motemq rig shell``: a board's REPL for a person, with the board's lock held."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from boards.commands.exits import FAULT, board_argument, ending, held_board, rig_option


@click.command()
@rig_option
@board_argument
def command(rig_file: Path | None, board: str) -> None:
    """Open BOARD's REPL (mpremote's; Ctrl-] leaves it). No rig touches the board meanwhile.

    Exit codes: 0, 2 usage, 3 it is in use, not there, or the line was lost.
    """
    with (
        ending("the board is free"),
        tempfile.TemporaryDirectory(prefix="mpremote-") as config,
        held_board(rig_file, board, "motemq rig shell") as (target, _),
    ):
        url = target.place().serial_url
        click.echo(f"{target.id} at {url}; Ctrl-] leaves")
        # mpremote executes the user's configuration at each start; here there is none.
        code = subprocess.call(
            [sys.executable, "-m", "mpremote", "connect", url, "resume", "repl"],
            env={**os.environ, "XDG_CONFIG_HOME": config},
        )
    if code:
        raise SystemExit(FAULT)
