"""``motemq backup``: the data of a broker that runs, of one moment, in a folder of its own."""

import contextlib
import errno
import hashlib
import http.client
import os
import shutil
import ssl
import tarfile
import tempfile
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import click

from host_broker.backup_format import (
    MANIFEST,
    SIZE_HEADER,
    BackupFault,
    Manifest,
    is_allowed,
    read_manifest,
)
from host_broker.cli.failure import failing_clearly
from host_broker.cli.progress import Progress
from host_broker.net.storage.files import sync
from host_broker.printable import printable
from host_broker.protocol import DEFAULT_PORT

_ANSWER_S = 90.0
_CHUNK_BYTES = 1024 * 1024
_LONGEST_ANSWER_BYTES = 4096  # of a mistake
_LONGEST_MANIFEST_BYTES = 64 * 1024 * 1024


class BackupError(Exception):
    """It could not be made; the text says why."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "url",
    metavar="URL",
    default=f"http://127.0.0.1:{DEFAULT_PORT}",
    show_default=True,
    help="An auto, http or https listener of the broker: http://HOST:PORT or https://HOST:PORT.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Its first line is the token that the broker wants (http.token).",
)
@click.option(
    "--ca", type=click.Path(path_type=Path, dir_okay=False), help="PEM file, for https only."
)
def command(folder: Path, url: str, token_file: Path | None, ca: Path | None) -> None:
    """Back up a broker that runs into DIR, a new folder.

    Journal, consumer groups and retained messages are those of one moment: all that was
    acknowledged before, and nothing that came after. The broker serves on meanwhile. DIR appears
    when all of it is there and checked; 'motemq restore DIR DATA' makes a data folder of it. How
    far it is, is told on stderr.

    Exit codes: 0, 1 it could not be made, 2 wrong usage, 130 interrupted.
    """
    with failing_clearly("backup", BackupError, OSError):
        token = _token(token_file)
        manifest = back_up(url, folder, token, ca)
        size = sum(file.size for file in manifest.files)
        click.echo(f"backup: {printable(str(folder))}: {len(manifest.files)} files, {size:,} bytes")
        for partition, following in enumerate(manifest.nexts):
            click.echo(f"backup: partition {partition}: messages below {following}")


def back_up(url: str, folder: Path, token: str = "", ca: Path | None = None) -> Manifest:
    """Make a backup. Raises ``BackupError``, ``OSError``."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BackupError(f"{folder} is there already; choose a new folder")
    parent = folder.absolute().parent
    unborn = new_folder_beside(folder)
    try:
        with _answer(url, token, ca) as (body, size):
            if size > room(parent):
                raise BackupError(no_room(parent, size))
            progress = Progress("backup", size)
            try:
                manifest = _unpack(body, unborn, progress)
            finally:
                progress.end()
        with contextlib.suppress(FileNotFoundError):
            folder.rmdir()
        unborn.rename(folder)
        sync_tree(parent, deep=False)
    except BaseException:
        shutil.rmtree(unborn, ignore_errors=True)
        raise
    return manifest


def new_folder_beside(folder: Path) -> Path:
    """Make what is renamed to ``folder`` when all is in it: for us only. Raises ``OSError``."""
    parent = folder.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(folder)) from error


def room(folder: Path) -> int:
    """Return how many bytes we may still write there."""
    return shutil.disk_usage(folder).free


def no_room(folder: Path, size: int) -> str:
    """Say that ``size`` bytes do not fit."""
    return (
        f"{size:,} bytes are to be written, and {folder} has room for {room(folder):,}; make room, "
        "or choose another folder"
    )


def new_file(path: Path) -> IO[bytes]:
    """Return a new file that only we can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return open(os.open(path, flags, 0o600), "wb")


def sync_tree(folder: Path, *, deep: bool = True) -> None:
    """Have the names in a folder on the disk, and in those below it."""
    for inner in folder.rglob("*") if deep else ():
        if inner.is_dir():
            sync(inner)
    sync(folder)


def _unpack(body: IO[bytes], folder: Path, progress: Progress | None = None) -> Manifest:
    """Write what a tar has into a folder, and see that it is what its manifest says."""
    progress = Progress("backup", 0) if progress is None else progress
    found: dict[str, tuple[int, str]] = {}
    manifest: Manifest | None = None
    try:
        with tarfile.open(fileobj=body, mode="r|") as tar:
            for member in tar:
                source = tar.extractfile(member) if member.isreg() else None
                if source is None or member.name in found or manifest is not None:
                    raise BackupError(f"the broker sent {printable(member.name)!r} unasked")
                if member.name == MANIFEST:
                    spelled = source.read(_LONGEST_MANIFEST_BYTES)
                    manifest = read_manifest(spelled)
                    with new_file(folder / MANIFEST) as file:
                        file.write(spelled)
                        os.fsync(file.fileno())
                elif is_allowed(member.name):
                    found[member.name] = _copied(source, folder / member.name, progress)
                else:
                    raise BackupError(f"the broker sent {printable(member.name)!r} unasked")
    except (tarfile.TarError, http.client.HTTPException, BackupFault) as error:
        raise BackupError(f"the backup is not whole, and was not kept: {error}") from error
    if manifest is None:
        raise BackupError("the broker ended the backup before its end; nothing was kept")
    for each in manifest.files:
        if found.pop(each.name, None) != (each.size, each.sha256):
            raise BackupError(f"{each.name} did not arrive as it was sent; nothing was kept")
        os.utime(folder / each.name, ns=(each.written_ns, each.written_ns))
    if found:
        raise BackupError("the broker sent more than it says; nothing was kept")
    sync_tree(folder)
    return manifest


def _copied(source: IO[bytes], path: Path, progress: Progress) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with new_file(path) as file:
        while data := source.read(_CHUNK_BYTES):
            digest.update(data)
            size += len(data)
            file.write(data)
            progress.add(len(data))
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


@contextlib.contextmanager
def _answer(url: str, token: str, ca: Path | None) -> Iterator[tuple[IO[bytes], int]]:
    """Give the answer, and the bytes of all files in it, 0 if the broker does not say."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
        raise click.UsageError(f"--from '{url}': write it as http://HOST:PORT or https://HOST:PORT")
    if parts.username or parts.password:
        raise click.UsageError("--from: a secret belongs into a file: --token-file FILE")
    connection: http.client.HTTPConnection
    port = parts.port or DEFAULT_PORT
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
        connection = http.client.HTTPSConnection(
            parts.hostname, port, timeout=_ANSWER_S, context=context
        )
    elif ca is not None:
        raise click.UsageError("--ca goes with https://")
    else:
        connection = http.client.HTTPConnection(parts.hostname, port, timeout=_ANSWER_S)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            connection.request("GET", "/backup", headers=headers)
            answer = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise BackupError(f"no broker answers at {url}: {error}") from error
        if answer.status != 200:
            said = printable(answer.read(_LONGEST_ANSWER_BYTES))
            raise BackupError(f"the broker at {url} refused ({answer.status}): {said}")
        said_size = answer.headers.get(SIZE_HEADER, "0")
        yield answer, int(said_size) if said_size.isdecimal() and len(said_size) < 20 else 0
    finally:
        connection.close()


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or not lines[0].strip():
        raise BackupError(f"{path} has no token in its first line")
    return lines[0].strip()
