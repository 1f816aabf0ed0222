"""``motemq rig flash``: firmware on boards of the desk, one after another, by the flash rule."""

import time
from pathlib import Path

import click

from boards.commands.exits import FAULT, FAULTS, boards_option, ending, open_rig, rig_option
from boards.flash.image_identity import image_for, image_of
from boards.flash.rule import flash_in_turn
from boards.inventory import unresponsive
from boards.inventory.locks import BoardLock
from boards.inventory.rig_file import Rig
from boards.inventory.target import BoardHandle
from boards.session.plan import plan_desk


@click.command()
@rig_option
@boards_option()
@click.option(
    "--force",
    is_flag=True,
    help="Write even where the same firmware is already, and on a board that is marked as wedged.",
)
@click.option("--trust-ledger", is_flag=True, help="Believe the rig's own book; saves reading.")
@click.option(
    "--image",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="This file, not what the board's file says; only with one --board.",
)
@click.option("--limit", "limit_s", default=180.0, show_default=True, help="Seconds per board.")
def command(
    rig_file: Path | None,
    board_ids: tuple[str, ...],
    force: bool,
    trust_ledger: bool,
    image: Path | None,
    limit_s: float,
) -> None:
    """Flash boards of the desk, all of them or those named with --board.

    Before a byte is written the image must be for the board's chip, exactly one device must be
    where the board is, and the chip itself must say that it is this board. Afterwards the board
    must boot and say so. A board that does not fit is left alone, and the others go on.

    Exit codes: 0 all are flashed, 2 usage, 3 a board was not, 130 interrupted.
    """
    if image is not None and len(board_ids) != 1:
        raise click.UsageError("--image goes with exactly one --board")
    with ending("the board in work may be half-flashed; flash it again"):
        rig = open_rig(rig_file)
        failed = 0
        for plan in plan_desk(rig, board_ids, ()):
            try:
                _flash(rig, plan.id, image, force, trust_ledger, limit_s)
            except FAULTS as error:
                failed += 1
                click.secho(f"{plan.id}: error: {error}", fg="red", err=True)
    if failed:
        raise SystemExit(FAULT)


def _flash(
    rig: Rig, id: str, file: Path | None, force: bool, trust_ledger: bool, limit_s: float
) -> None:
    began = time.monotonic()
    board = BoardHandle(rig.board(id))
    if not force:
        unresponsive.refuse(rig.state_dir, id)
    with BoardLock.take(rig.state_dir, id, "motemq rig flash") as held:
        folder = board.board.file.parent
        path = file or image_of(board.board.image, folder, click.echo, lock=rig.firmware_lock)
        image = image_for(board, path, is_its_own=file is None)
        click.echo(f"{id}: {path.name} for {image.about}, {image.size_bytes} bytes")
        done = flash_in_turn(
            board,
            image,
            held=held,
            state_dir=rig.state_dir,
            parallel=rig.flash_parallel,
            left_s=lambda: limit_s,
            force=force,
            trust_ledger=trust_ledger,
        )
        # New firmware heals what no reset did: the board itself has said who it is.
        unresponsive.clear(rig.state_dir, id, f"flashed; it runs {done.running.text}")
    # A UF2 drive takes what it is given and compares nothing; that it boots is all that is known.
    written = "written" if board.model.flash.method == "uf2_drive" else "written and verified"
    what = written if done.written else "the same firmware was there"
    click.echo(f"{id}: {what} in {time.monotonic() - began:.1f} s; runs {done.running.text}")
