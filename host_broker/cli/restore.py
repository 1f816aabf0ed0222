"""``motemq restore``: a data folder from a backup."""

import contextlib
import hashlib
import os
import shutil
from pathlib import Path

import click

from host_broker.backup_format import (
    MANIFEST,
    BackedUpFile,
    BackupFault,
    Manifest,
    read_manifest,
)
from host_broker.cli.backup import new_file, new_folder_beside, no_room, room, sync_tree
from host_broker.cli.failure import failing_clearly
from host_broker.cli.progress import Progress
from host_broker.printable import printable

_CHUNK_BYTES = 1024 * 1024


class RestoreError(Exception):
    """It could not be done; the text says why."""


@click.command()
@click.argument("backup", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.argument("data", metavar="DATA", type=click.Path(path_type=Path))
def command(backup: Path, data: Path) -> None:
    """Make the new data folder DATA from the backup in DIR.

    Every file is checked while it is copied; DATA appears when all of it is there. Then 'motemq
    broker --data DATA' goes on where the backup was made. Readers of the journal that have read
    further must begin again from there: the numbers are given to other messages.

    Exit codes: 0, 1 it could not be done, 2 wrong usage, 130 interrupted.
    """
    with failing_clearly("restore", RestoreError, OSError):
        manifest = restore(backup, data)
        size = sum(file.size for file in manifest.files)
        click.echo(f"restore: {printable(str(data))}: {len(manifest.files)} files, {size:,} bytes")
        for partition, following in enumerate(manifest.nexts):
            click.echo(f"restore: partition {partition} goes on with message {following}")


def restore(backup: Path, data: Path) -> Manifest:
    """Make a data folder. Raises ``RestoreError``, ``OSError``."""
    try:
        manifest = read_manifest((backup / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise RestoreError(f"{backup} is no backup: it has no {MANIFEST}") from None
    except BackupFault as fault:
        raise RestoreError(f"{backup} is no backup: {fault}") from fault
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise RestoreError(
            f"{data} is there already, and is not touched; stop its broker and move it away, or "
            "choose another folder"
        )
    parent = data.absolute().parent
    size = sum(file.size for file in manifest.files)
    unborn = new_folder_beside(data)
    progress = Progress("restore", size)
    try:
        if size > room(parent):
            raise RestoreError(no_room(parent, size))
        for file in manifest.files:
            _copy(backup / file.name, unborn / file.name, file, progress)
        sync_tree(unborn)
        with contextlib.suppress(FileNotFoundError):
            data.rmdir()
        unborn.rename(data)
        sync_tree(parent, deep=False)
    except BaseException:
        shutil.rmtree(unborn, ignore_errors=True)
        raise
    finally:
        progress.end()
    return manifest


def _copy(source: Path, target: Path, expected: BackedUpFile, progress: Progress) -> None:
    digest, size = hashlib.sha256(), 0
    with source.open("rb") as reading, new_file(target) as writing:
        while data := reading.read(_CHUNK_BYTES):
            digest.update(data)
            size += len(data)
            writing.write(data)
            progress.add(len(data))
        writing.flush()
        os.fsync(writing.fileno())
    if (size, digest.hexdigest()) != (expected.size, expected.sha256):
        raise RestoreError(f"{source} is not as it was backed up; nothing was restored")
    os.utime(target, ns=(expected.written_ns, expected.written_ns))
