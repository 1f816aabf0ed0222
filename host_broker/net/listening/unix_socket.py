"""Bind a unix socket: private, replacing what a killed broker left, removed at the end."""

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from host_broker.address import Address
from host_broker.net.listening.listen_error import ListenError

_PRIVATE = "600"
_CONNECT_S = 1.0


def bind_unix(address: Address, backlog: int) -> socket.socket:
    """Return a listening unix socket at ``address.path``.

    Only its owner may connect, unless the option ``mode`` (octal, e.g. ``660``) says otherwise. A
    socket nobody listens on is replaced; anything else in the way is left alone. Raises
    ``ListenError``.
    """
    mode = _mode(address)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _bind(listening, address.path)
        # Nobody can connect before listen(), hence nobody before it has its mode.
        os.chmod(address.path, mode)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise ListenError(f"cannot listen on {address}: {_reason(error, address.path)}") from error
    except ListenError:
        listening.close()
        raise
    return listening


def remove_unix(listening: socket.socket, inode: int) -> None:
    """Remove the file of a listener of ours, unless it is no longer the one with ``inode``."""
    path = listening.getsockname()
    with contextlib.suppress(OSError):  # somebody else has removed it, or its folder
        if os.stat(path).st_ino == inode:
            os.unlink(path)


def _mode(address: Address) -> int:
    text = address.options.get("mode", _PRIVATE)
    try:
        mode = int(text, 8)
    except ValueError:
        mode = -1
    if not 0 <= mode <= 0o777:
        raise ListenError(f"{address}: mode is '{text}', it must be octal, e.g. 660")
    return mode


def _bind(listening: socket.socket, path: str) -> None:
    try:
        listening.bind(path)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or not _is_stale(path):
            raise
        os.unlink(path)
        listening.bind(path)


def _is_stale(path: str) -> bool:
    """Whether ``path`` is a socket that nobody listens on."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(_CONNECT_S)
        try:
            caller.connect(path)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False  # e.g. its queue is full: somebody is there
    return False


def _reason(error: OSError, path: str) -> str:
    if error.errno == errno.EADDRINUSE:
        if stat.S_ISSOCK(Path(path).lstat().st_mode):
            return "another process listens there; stop it or choose another path"
        return "this file is no socket; remove it or choose another path"
    # bind() tells only in words that a path is too long (108 bytes on Linux).
    return error.strerror or str(error)
