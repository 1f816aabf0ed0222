"""How the rig's commands end: exit codes, signals and the one line that says why."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from boards.errors import RigError
from boards.inventory.locks import BoardLock
from boards.inventory.models import TomlError
from boards.inventory.rig_file import RIG_FILE, Rig, load_rig, virtual_rig
from boards.inventory.target import BoardHandle
from boards.runtime_folder import Untrusted
from boards.session.plan import PlanError
from firmware.build import BuildError
from firmware.images import ImageUnknown
from firmware.node_files import CompileError

_Command = TypeVar("_Command", bound=Callable[..., Any])

FAULT = 3
_INTERRUPTED, _TERMINATED = 130, 143
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAULTS = (RigError, BuildError, CompileError, ImageUnknown, OSError)


class _Terminated(BaseException):
    """SIGTERM, as an exception, so that every ``with`` block ends what it started."""


@contextmanager
def ending(then: str = "every board is stopped") -> Iterator[None]:
    """Turn what may go wrong in the block into one line on stderr and the rig's exit codes.

    2 usage, a mistake in the desk's files too, 3 rig fault, 130 interrupted, 143 terminated.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        yield
    except PlanError as error:
        raise click.UsageError(str(error)) from None
    except FAULTS as error:
        if isinstance(error, TomlError) and not isinstance(error, Untrusted):
            raise click.UsageError(str(error)) from None
        text = f"{error}"
        if isinstance(error, OSError) and error.filename and error.strerror:
            text = f"{error.filename}: {error.strerror}"
        click.secho(f"rig: error: {text}", fg="red", err=True)
        raise SystemExit(FAULT) from None
    except KeyboardInterrupt:
        click.secho(f"rig: interrupted, {then}", fg="red", err=True)
        raise SystemExit(_INTERRUPTED) from None
    except _Terminated:
        click.secho(f"rig: terminated, {then}", fg="red", err=True)
        raise SystemExit(_TERMINATED) from None


def _interrupt(received: int, _frame: FrameType | None) -> None:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # once is enough: we are stopping already
    raise KeyboardInterrupt if received == signal.SIGINT else _Terminated


def open_rig(file: Path | None) -> Rig:
    """Read ``file``, or the nearest ``rig.toml`` of this folder and those above.

    Without any the desk is the virtual boards that are up. Raises ``PlanError`` if there is no
    desk at all, ``TomlError`` if it is wrong.
    """
    if file is None:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / RIG_FILE).is_file():
                return load_rig(folder / RIG_FILE)
        if virtual := virtual_rig():
            return virtual
        raise PlanError(
            f"there is no {RIG_FILE} here or above, and no virtual board is up; make one with "
            "'motemq rig add', name one with --rig FILE, or take a virtual board: "
            "'motemq rig virtual up rp2040:1', or for one run --virtual rp2040:1"
        )
    return load_rig(file)


def complete_board(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete a board's id, for a shell: those of the desk."""
    try:
        rig = open_rig(context.params.get("rig_file"))
    except (PlanError, TomlError, OSError):
        return []
    return [CompletionItem(id) for id in rig.boards if id.startswith(incomplete)]


rig_option = click.option(
    "--rig",
    "rig_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help=f"The desk's file.  [default: {RIG_FILE} here or above]",
)
board_argument = click.argument("board", shell_complete=complete_board)


def boards_option(help: str = "Only this board; repeat it.") -> Callable[[_Command], _Command]:
    """Return the option that names boards of the desk."""
    return click.option(
        "--board",
        "-b",
        "board_ids",
        multiple=True,
        metavar="ID",
        help=help,
        shell_complete=complete_board,
    )


@contextmanager
def held_board(
    file: Path | None, id: str, what: str, *, wait_s: float = 0.0
) -> Iterator[tuple[BoardHandle, Rig]]:
    """Give a board of the desk to the block, with its lock held; ``what`` tells others what for.

    Raises as ``open_rig`` does, ``NoSuchBoard``, ``Locked``.
    """
    rig = open_rig(file)
    target = BoardHandle(rig.board(id))
    with BoardLock.take(rig.state_dir, target.id, what, wait_s=wait_s):
        yield target, rig
