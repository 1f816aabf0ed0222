"""How the rig's commands end: exit codes, signals and the one line that says why."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click
from click.shell_completion import CompletionItem

from boards.faults.control import ProxyError
from boards.flash.errors import FlashError
from boards.inventory.locks import Locked
from boards.inventory.models import TomlError
from boards.inventory.permits import NoPermit
from boards.inventory.power import PowerError
from boards.inventory.rig_file import RIG_FILE, NoSuchBoard, Rig, load_rig, virtual_rig
from boards.inventory.unresponsive import Unresponsive
from boards.repl import ReplError
from boards.serial_port import PortError
from boards.session.broker_process import BrokerDown
from boards.session.own_files import OwnFilesError
from boards.session.plan import PlanError
from boards.session.reset_ladder import NotBack
from boards.tool import ToolError
from boards.virtual.control import BoardError
from firmware.build import BuildError
from firmware.images import ImageUnknown
from firmware.node_files import CompileError

FAULT = 3
_INTERRUPTED, _TERMINATED = 130, 143
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FAULTS = (
    BoardError,
    BrokerDown,
    BuildError,
    CompileError,
    FlashError,
    ImageUnknown,
    Locked,
    NoPermit,
    NotBack,
    OwnFilesError,
    PortError,
    PowerError,
    ProxyError,
    ReplError,
    TomlError,
    ToolError,
    Unresponsive,
    OSError,
)


class _Terminated(BaseException):
    """SIGTERM, as an exception, so that every ``with`` block ends what it started."""


@contextmanager
def ending(then: str = "every board is stopped") -> Iterator[None]:
    """Turn what may go wrong in the block into one line on stderr and the rig's exit codes.

    2 usage, 3 rig fault, 130 interrupted, 143 terminated.
    """
    for number in _SIGNALS:
        signal.signal(number, _interrupt)
    try:
        yield
    except (PlanError, NoSuchBoard) as error:
        raise click.UsageError(str(error)) from None
    except FAULTS as error:
        click.secho(f"rig: error: {error}", fg="red", err=True)
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
            "'motemq rig add', name one with --rig FILE, or take virtual boards with "
            "'motemq rig run --virtual rp2040:1'"
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
boards_option = click.option(
    "--board",
    "-b",
    "board_ids",
    multiple=True,
    metavar="ID",
    help="Only this board; repeat it.",
    shell_complete=complete_board,
)
