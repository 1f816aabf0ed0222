"""What running bridges say of themselves: one unix socket per process, one JSON object per caller.

The sockets are in the user's runtime folder, for the user only, and nothing is written while
nobody asks.
"""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from boards.runtime_folder import Untrusted, check_private, make_private

_PREFIX, _SUFFIX = "bridge-", ".sock"
_ANSWER_S = 2.0
_ANSWER_LIMIT = 4 * 1024 * 1024
_REQUEST_LIMIT = 4096
_LOOK_S = 0.5
_NO_SOCKETS = "bridges are asked by unix sockets, which Python does not have on Windows"


class StatusError(Exception):
    """The runtime folder cannot be used; the text says why."""


class StatusServer:
    """Answers with ``snapshot()`` as long as the ``with`` block lasts; called from its thread."""

    def __init__(
        self,
        folder: Path,
        snapshot: Callable[[], dict[str, Any]],
        end: Callable[[str], str] = lambda name: "",
    ) -> None:
        """``end`` takes the port of that name from its program, and returns which that was.

        Raises ``StatusError``.
        """
        self._path = folder / f"{_PREFIX}{os.getpid()}{_SUFFIX}"
        self._snapshot = snapshot
        self._end = end
        self._listener = _unix_socket()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bridge-status", daemon=True)

    def __enter__(self) -> Self:
        """Begin to answer. Raises ``StatusError``."""
        try:
            make_private(self._path.parent)
            self._path.unlink(missing_ok=True)  # of an earlier process with our number
            self._listener.bind(str(self._path))
            self._path.chmod(0o600)
            self._listener.listen(8)
        except OSError as error:
            self._listener.close()
            raise StatusError(
                f"no status socket at {self._path}: {error.strerror or error}; "
                "--runtime-dir names another folder"
            ) from None
        except Untrusted as error:
            self._listener.close()
            raise StatusError(f"{error}, or by --runtime-dir") from None
        self._listener.settimeout(_LOOK_S)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self._thread.join(_ANSWER_S + _LOOK_S)
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                caller, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            with caller, contextlib.suppress(OSError):
                caller.settimeout(_ANSWER_S)
                caller.sendall(json.dumps(self._answer(_request(caller))).encode())

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if isinstance(name := request.get("end"), str):
            return {"ended": self._end(name)}
        return self._snapshot()


def end_holder(folder: Path, name: str) -> list[str]:
    """Have each running bridge take the port ``name`` from the program that has it; return those.

    Raises ``StatusError``.
    """
    answers = _ask(folder, {"end": name})
    return [str(answer["ended"]) for answer in answers if answer.get("ended")]


def ask_all(folder: Path) -> list[dict[str, Any]]:
    """Return what each running bridge process of this user says, by process number.

    Sockets that killed processes left are removed. Raises ``StatusError``.
    """
    return sorted(_ask(folder, {}), key=lambda answer: int(answer.get("pid", 0)))


def _ask(folder: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    answers = []
    try:
        check_private(folder, _owner_of(folder))
        paths = sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}"))
    except FileNotFoundError:
        return []
    except Untrusted as error:
        raise StatusError(f"{error}, or by --runtime-dir") from None
    except OSError as error:
        raise StatusError(f"cannot look into {folder}: {error.strerror}") from error
    for path in paths:
        with _unix_socket() as asking:
            asking.settimeout(_ANSWER_S)
            try:
                asking.connect(str(path))
                asking.sendall(json.dumps(request).encode() + b"\n")
                answers.append(json.loads(_all_of(asking)))
            except ConnectionRefusedError:
                with contextlib.suppress(OSError):
                    path.unlink()
            except (OSError, ValueError):
                continue  # it is just ending, or hangs: it says nothing
    return answers


def _owner_of(folder: Path) -> int | None:
    """Return whose the folder may be: ours, but root may ask anybody's bridges."""
    if sys.platform == "win32":
        raise StatusError(_NO_SOCKETS)
    return folder.lstat().st_uid if os.geteuid() == 0 else None


def _unix_socket() -> socket.socket:
    if sys.platform == "win32":
        raise StatusError(_NO_SOCKETS)
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def _request(caller: socket.socket) -> dict[str, Any]:
    """Return what is asked for; an older program says nothing, and wants the state."""
    said = b""
    with contextlib.suppress(TimeoutError):
        caller.settimeout(_LOOK_S)
        while b"\n" not in said and len(said) <= _REQUEST_LIMIT:
            if not (more := caller.recv(_REQUEST_LIMIT)):
                break
            said += more
    caller.settimeout(_ANSWER_S)
    try:
        request = json.loads(said)
    except (ValueError, RecursionError):
        return {}
    return request if isinstance(request, dict) else {}


def _all_of(asking: socket.socket) -> bytes:
    answer = b""
    while chunk := asking.recv(65536):
        answer += chunk
        if len(answer) > _ANSWER_LIMIT:
            raise ValueError("too long")
    return answer
