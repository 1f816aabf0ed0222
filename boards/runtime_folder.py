"""The user's folder for what does not outlive a session, and who may write where we believe.

Sockets of bridges and files of virtual boards are there. A file of a board may have a command that
switches its power, so whoever can write one can have us run what he likes. On Windows a folder in
the user's profile is the user's by what it inherits, and nothing is asked here.
"""

import contextlib
import os
import stat
import sys
import warnings
from pathlib import Path

import platformdirs

from boards.toml_file import TomlError

VARIABLE = "MOTEMQ_RUNTIME_DIR"
_OLD_VARIABLE = "MOTEMQ_RUNTIME"
_OTHERS = 0o077
_OTHERS_WRITE = 0o022


class Untrusted(TomlError):
    """Somebody else could have written it; the text says who, and what to do."""


def runtime_folder() -> Path:
    """Return this user's runtime folder; it need not exist.

    ``MOTEMQ_RUNTIME_DIR``, else ``motemq`` where the system has such folders (``XDG_RUNTIME_DIR``,
    ``/run/user/UID``, or one with the user's number in the folder for temporary files). Raises
    ``Untrusted`` if only the old variable is set: what it names would silently not be used.
    """
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if os.environ.get(_OLD_VARIABLE):
        raise Untrusted(f"{_OLD_VARIABLE} is called {VARIABLE} now; set that one instead")
    with warnings.catch_warnings():
        # That the system has none, and one for temporary files is taken, is said above.
        warnings.simplefilter("ignore")
        return platformdirs.user_runtime_path("motemq")


def make_private(folder: Path) -> None:
    """Make a folder that only this user can use, or see that it is one.

    One that was too open for reading is closed. Raises ``Untrusted``, ``OSError``.
    """
    if sys.platform == "win32":
        folder.mkdir(parents=True, exist_ok=True)
        return
    _check_way_to(folder)
    # Not exist_ok: it would follow a link, which some kernels refuse with an error of their own.
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    check_private(folder)


def write_private(file: Path, data: bytes) -> None:
    """Write a file that only this user can read; one that is there goes. Raises ``OSError``."""
    file.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    if sys.platform != "win32":
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(data)


def check_private(folder: Path, owner: int | None = None) -> None:
    """See that a folder is ``owner``'s (default: this user's) and that nobody else can write to it,
    or to the way to it.

    Symbolic links are not followed. Raises ``Untrusted``, ``FileNotFoundError``, ``OSError``.
    """
    if sys.platform == "win32":
        return
    owner = os.geteuid() if owner is None else owner
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        if folder.is_symlink() or not folder.is_dir():
            raise Untrusted(
                f"{folder} is no folder, or a symbolic link to one: others could have put it "
                f"there; remove it, or name another with {VARIABLE}"
            ) from error
        raise
    try:
        status = os.fstat(handle)
        if status.st_uid != owner:
            raise Untrusted(
                f"{folder} belongs to user {status.st_uid}, not to {owner}: what is in it is not "
                f"believed; name another folder with {VARIABLE}"
            )
        if status.st_mode & _OTHERS_WRITE:
            raise Untrusted(
                f"others can write to {folder}, so what is in it is not believed; look at what is "
                f"there, then: chmod 700 {folder}"
            )
        if status.st_mode & _OTHERS and owner == os.geteuid():
            os.fchmod(handle, 0o700)
    finally:
        os.close(handle)
    _check_way_to(folder, owner)


def check_trusted_file(file: Path) -> None:
    """See that nobody but root and this user could have written a file.

    Raises ``Untrusted``, ``OSError``.
    """
    if sys.platform == "win32":
        return
    for path in {file, file.resolve()}:
        status = path.lstat()
        if status.st_uid not in (0, os.geteuid()):
            raise Untrusted(
                f"{path}: it belongs to user {status.st_uid}, who is neither root nor you, and it "
                "has commands to be run; if you trust them, have the file belong to you"
            )
        if status.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(status.st_mode):
            raise Untrusted(
                f"{path}: others can write to it, and it has commands to be run; look at them, "
                f"then: chmod go-w {path}"
            )
        _check_way_to(path)


def _check_way_to(path: Path, owner: int | None = None) -> None:
    """Whoever can write to a folder on the way can put something else in our place there.

    ``owner`` is one who may. Not where the folder keeps others' entries safe (sticky: ``/tmp``).
    """
    if sys.platform == "win32":
        return
    trusted = {0, os.geteuid(), os.geteuid() if owner is None else owner}
    for folder in path.absolute().parents:
        try:
            status = folder.stat()
            link = folder.lstat()
        except FileNotFoundError:
            continue
        for one in (status, link):
            if one.st_uid not in trusted:
                raise Untrusted(
                    f"{path}: {folder} belongs to user {one.st_uid}, who could put anything there"
                )
        writable = status.st_mode & 0o002 or (
            status.st_mode & 0o020 and status.st_gid not in (0, os.getegid())
        )
        if writable and not status.st_mode & stat.S_ISVTX:
            raise Untrusted(
                f"{path}: others can write to {folder}, so they could put anything there; "
                f"chmod go-w {folder}"
            )
