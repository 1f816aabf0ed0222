"""``motemq rig watch``: a program goes onto a board whenever one of its files is saved."""

import contextlib
import os
import shlex
import subprocess
import time
from pathlib import Path

import click

from boards.commands.exits import boards_option, ending, open_rig, rig_option
from boards.commands.monitor import monitor
from boards.flash.target import NotThere
from boards.inventory.locks import BoardLock
from boards.inventory.target import BoardHandle
from boards.repl import ReplError
from boards.serial_port import PortError
from boards.session.app_board import AppBoard, is_installed
from boards.session.plan import PlanError
from boards.session.serial_log import SerialLog
from boards.tool import ToolError

_LOOK_S = 0.3
_LOCK_S = 30.0

Saved = dict[Path, tuple[int, int]]  # when each file was changed, and its size


def _words(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """See that there is something to run before anything is installed."""
    try:
        if value is not None and not shlex.split(value):
            raise click.BadParameter("it is empty")
    except ValueError as error:
        raise click.BadParameter(f"{value!r}: {error}") from None
    return value


@click.command()
@rig_option
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@boards_option()
@click.option(
    "--then",
    metavar="COMMAND",
    callback=_words,
    help="Run this, e.g. 'pytest -q', instead of monitoring the board, which is free meanwhile.",
)
def command(
    rig_file: Path | None, folder: Path, board_ids: tuple[str, ...], then: str | None
) -> None:
    """Install FOLDER on a board, start it and monitor it, whenever a file in it is saved.

    Without --board it is the only board of the desk. Ctrl-C ends it; the program stays there.

    Exit codes: 0, 2 usage, 3 the board is in use.
    """
    with ending("the program stays on the board"):
        rig = open_rig(rig_file)
        ids = board_ids or tuple(rig.boards)
        if len(ids) != 1:
            raise PlanError(f"which board? name one with --board: {', '.join(rig.boards)}")
        target = BoardHandle(rig.board(ids[0]))
        with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
            while True:
                saved = _settled(folder)
                lock = BoardLock.take(rig.state_dir, target.id, "motemq rig watch", wait_s=_LOCK_S)
                try:
                    _once(target, folder, saved, stay=then is None)
                finally:
                    lock.release()
                if then is not None:
                    _run(then)
                while _files(folder) == saved:
                    time.sleep(_LOOK_S)


def _once(target: BoardHandle, folder: Path, saved: Saved, *, stay: bool) -> None:
    """Install and start the program; ``stay``: and monitor it until a file is saved."""
    app = AppBoard(target, SerialLog(Path(os.devnull)))
    with contextlib.closing(app):
        click.secho(f"-- {target.id}: installing {folder}", fg="cyan")
        try:
            app.install(folder)
            app.reset()
        except (NotThere, OSError, PortError, ReplError, ToolError) as error:
            click.secho(f"-- {target.id}: {error}; save a file to try again", fg="red")
            return
        if stay:
            monitor(app, [folder], lambda: _files(folder) != saved)


def _run(line: str) -> None:
    click.secho(f"-- {line}", fg="cyan")
    try:
        code = subprocess.call(shlex.split(line))
    except OSError as error:
        raise PlanError(f"--then {line!r} cannot be run: {error}") from None
    click.secho(f"-- exit code {code}", fg="red" if code else "green")


def _settled(folder: Path) -> Saved:
    """Return the files once no more of them changes: an editor saves several one by one."""
    while True:
        saved = _files(folder)
        time.sleep(_LOOK_S)
        if _files(folder) == saved:
            return saved


def _files(folder: Path) -> Saved:
    found: Saved = {}
    for path in sorted(folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # just replaced
            if path.is_file() and is_installed(path.relative_to(folder)):
                status = path.stat()
                found[path] = (status.st_mtime_ns, status.st_size)
    return found
