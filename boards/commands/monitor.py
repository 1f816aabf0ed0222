"""``motemq rig monitor``: what a board says, with the time, until Ctrl-C."""

import contextlib
import datetime
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from boards.commands.exits import board_argument, ending, held_board, rig_option
from boards.flash.target import NotThere
from boards.serial_port import PortError
from boards.session.app_board import AppBoard
from boards.session.console_lines import ConsoleLines
from boards.session.serial_log import SerialLog

_LOOK_S = 0.3
_QUIET_LOOKS = 3  # after so many without a word, a line without an end is shown
_AWAY_S = 1.0


@click.command()
@rig_option
@board_argument
@click.option("--reset", is_flag=True, help="Start the board anew first.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    default=[Path()],
    show_default=True,
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the program's files are, whose lines tracebacks name; repeat it.",
)
def command(rig_file: Path | None, board: str, reset: bool, sources: tuple[Path, ...]) -> None:
    """Print what BOARD says, each line with its time; Ctrl-C ends it.

    Nothing is interrupted on the board; one that resets is waited for. Below each line of a
    traceback is the line of the source that it names.

    Exit codes: 0, 2 usage, 3 it is in use or not there.
    """
    with ending(), held_board(rig_file, board, "motemq rig monitor") as (target, _):
        app = AppBoard(target, SerialLog(Path(os.devnull)))
        with contextlib.closing(app), contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            click.echo(f"{target.id} at {app.serial_url}; Ctrl-C ends", err=True)
            if reset:
                app.reset()
            monitor(app, sources, lambda: False)


def monitor(app: AppBoard, sources: Sequence[Path], is_over: Callable[[], bool]) -> None:
    """Print what the board says until ``is_over``, which is asked a few times a second."""
    lines, quiet, away = ConsoleLines(sources), 0, ""
    while not is_over():
        try:
            data = app.listen(_LOOK_S, back_s=_AWAY_S)
        except (NotThere, PortError) as error:
            if str(error) != away:
                away = str(error)
                click.secho(f"{_now()}  -- {away}", fg="yellow")
            continue
        away = ""
        quiet = 0 if data else quiet + 1
        for line in lines.feed(data, _now()):
            click.echo(line)
        if quiet == _QUIET_LOOKS:
            for line in lines.flush(_now()):
                click.echo(line)


def _now() -> str:
    return f"{datetime.datetime.now():%H:%M:%S.%f}"[:-3]
