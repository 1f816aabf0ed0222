"""A backup of the broker that runs, by HTTP: a tar of one moment (``backup_format``)."""

import asyncio
import contextlib
import hashlib
import logging
import os
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path

from aiohttp import web

from host_broker.backup_format import MANIFEST, SIZE_HEADER, BackedUpFile, Manifest
from host_broker.net.http.mistake import mistake
from host_broker.net.http.principals import HttpAccess
from host_broker.net.journal.scan import JournalError
from host_broker.net.journal.snapshot import Snapshot, SnapshotFile
from host_broker.net.journal.writer import Journal
from host_broker.net.storage.message_store import MessageStoreError

_CHUNK_BYTES = 256 * 1024  # of a backup that are in memory
_TAKE_S = 60.0  # for the journal's thread to come to it
_MODE = 0o600
_log = logging.getLogger(__name__)


def routes(
    journal: Journal | None, access: HttpAccess, more: Callable[[], Iterable[SnapshotFile]]
) -> web.RouteTableDef:
    """Return the page; ``more``: files beside the data folder's, as they are just now.

    A backup has everything that the journal has, and hashes of passwords: it is for those who may
    administrate, and, where there are no users, who may read the journal.
    """
    table = web.RouteTableDef()
    one_at_a_time = asyncio.Lock()

    @table.get("/backup", allow_head=False)  # it would have a body
    async def backup(request: web.Request) -> web.StreamResponse:
        refusal = access.refusal(request, "journal", "**")
        if refusal is None and not access.is_open:
            refusal = access.refusal(request, "admin", "backup")
        if refusal is not None:
            return refusal
        if journal is None:
            return mistake(404, "there is nothing to back up: this broker keeps nothing (--data)")
        if one_at_a_time.locked():
            return mistake(503, "another backup is being made; try again when it is done")
        async with one_at_a_time, contextlib.AsyncExitStack() as stack:
            try:
                snapshot = await stack.enter_async_context(journal.snapshot(_TAKE_S))
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="motemq-backup-"))
                files = await asyncio.to_thread(_all_of, snapshot, Path(folder), more)
            except TimeoutError:
                return mistake(503, "the journal cannot be written now; try again")
            except (JournalError, MessageStoreError, OSError, sqlite3.Error) as error:
                return mistake(500, f"the backup failed: {error}")
            size = str(sum(file.size for file in files))
            response = web.StreamResponse(
                headers={"Content-Type": "application/x-tar", SIZE_HEADER: size}
            )
            try:
                await response.prepare(request)
                async for data in _tar(str(journal.reader.identity), snapshot.nexts, files):
                    if data:
                        await response.write(data)
                await response.write_eof()
            except ConnectionError:
                pass  # who asked has gone
            except OSError as error:
                # The answer has begun: that it is not whole is all that can still be said.
                _log.error("the backup failed: %s", error)
                if request.transport is not None:
                    request.transport.abort()
            return response

    return table


def _all_of(
    snapshot: Snapshot, folder: Path, more: Callable[[], Iterable[SnapshotFile]]
) -> list[SnapshotFile]:
    files = [*snapshot.files, *more()]
    copy = folder / "retained.sqlite"
    if snapshot.copy_retained(copy):
        files.append(SnapshotFile(copy.name, copy.stat().st_size, time.time_ns(), copy))
    snapshot.close()  # SQLite's log does not grow any longer
    return files


async def _tar(
    identity: str, nexts: Sequence[int], files: Sequence[SnapshotFile]
) -> AsyncIterator[bytes]:
    """Give the bytes of the tar; a file that is shorter than it was is an ``OSError``."""
    taken_ns = time.time_ns()
    backed_up = []
    for file in files:
        yield _header(file.name, file.size, file.written_ns)
        digest = hashlib.sha256()
        if file.content is not None:
            digest.update(file.content)
            yield file.content
        else:
            handle = await asyncio.to_thread(os.open, file.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for at in range(0, file.size, _CHUNK_BYTES):
                    size = min(_CHUNK_BYTES, file.size - at)
                    yield await asyncio.to_thread(_read, handle, size, at, digest)
            finally:
                os.close(handle)
        yield _padding(file.size)
        entry = BackedUpFile(file.name, file.size, file.written_ns, digest.hexdigest())
        backed_up.append(entry)
    manifest = Manifest(identity, taken_ns, nexts, backed_up).spelled()
    yield _header(MANIFEST, len(manifest), taken_ns) + manifest + _padding(len(manifest))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _read(handle: int, size: int, at: int, digest: "hashlib._Hash") -> bytes:
    data = os.pread(handle, size, at)
    if len(data) != size:
        raise OSError("a file of the journal is shorter than it was")
    digest.update(data)
    return data


def _header(name: str, size: int, written_ns: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, written_ns // 1_000_000_000, _MODE
    return member.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)
