"""Who may do a thing now, over all processes: one rig at a time on a board, permits for the rest.

All are kernel locks (``file_lock``). That of a board has a record besides, only text for people:
it is written after the lock is taken.
"""

import contextlib
import datetime
import getpass
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from boards.errors import RigError
from boards.file_lock import is_locked, try_lock

_LOOK_S = 0.05


class Locked(RigError):
    """Somebody else has it; the text says who, since when and what for."""


class NoPermit(RigError):
    """It was not our turn within the time."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock."""

    pid: int
    user: str
    since: str  # UTC, ISO 8601
    what: str

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.what} (process {self.pid} of {self.user}, since {self.since})"


class BoardLock:
    """The lock of one board, held from ``take`` to ``release`` or the end of the process."""

    def __init__(self, board_id: str, descriptor: int) -> None:
        self.board_id = board_id
        self._descriptor: int | None = descriptor

    @classmethod
    def take(cls, state_dir: Path, board_id: str, what: str, *, wait_s: float = 0.0) -> Self:
        """Take the board's lock, now or within ``wait_s`` seconds; ``what`` tells others what for.

        Raises ``Locked``.
        """
        path = _path(state_dir, board_id)
        descriptor = _first_of([path], wait_s)
        if descriptor is None:
            held = _read(path)
            raise Locked(f"{board_id} is in use by {held.text if held else 'another rig'}")
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        record = asdict(Holder(os.getpid(), _user(), now, what))
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(record).encode() + b"\n", 0)
        return cls(board_id, descriptor)

    def release(self) -> None:
        """Let others have the board; harmless when that was done."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a full disk must not keep the lock
                os.truncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()


def holder(state_dir: Path, board_id: str) -> Holder | None:
    """Return who holds the board's lock, None if it is free. Takes nothing."""
    path = _path(state_dir, board_id)
    if not is_locked(path):
        return None
    return _read(path) or Holder(0, "somebody", "?", "another rig")


@contextmanager
def flash_permit(
    state_dir: Path, controller: str, count: int, *, deadline_s: float
) -> Iterator[None]:
    """Be one of ``count`` that flash on the USB ``controller`` while the block lasts.

    More at once than a host controller bears and transfers fail; off the USB (``""``) there is
    none to spare. Waits up to ``deadline_s`` seconds; raises ``NoPermit``.
    """
    if not controller:
        yield
        return
    name = re.sub(r"[^A-Za-z0-9.-]", "_", controller)
    paths = [state_dir / "permits" / f"flash-{name}-{number}.lock" for number in range(count)]
    descriptor = _first_of(paths, deadline_s)
    if descriptor is None:
        raise NoPermit(
            f"{count} boards on controller {controller} are being flashed, and none was done "
            f"within {deadline_s:g} s"
        )
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def radio(state_dir: Path, *, alone: bool, deadline_s: float) -> Iterator[None]:
    """Use the air while the block lasts: ``alone`` to measure, else together with others.

    Boards that measure at once would measure each other. Who wants to be alone is waited for at
    the gate, so a stream of others cannot starve it. Raises ``NoPermit``.
    """
    folder = state_dir / "permits"
    until = time.monotonic() + deadline_s
    with contextlib.ExitStack() as stack:
        with contextlib.ExitStack() as gate:
            for name, owner in (("radio-gate", gate), ("radio", stack)):
                left = max(0.0, until - time.monotonic())
                descriptor = _first_of([folder / f"{name}.lock"], left, shared=not alone)
                if descriptor is None:
                    raise NoPermit(
                        f"the radio was not ours within {deadline_s:g} s: others measure"
                    )
                owner.callback(os.close, descriptor)
        yield


def _first_of(paths: Sequence[Path], wait_s: float, *, shared: bool = False) -> int | None:
    """Return the descriptor of the first of ``paths`` that can be locked, None if none can."""
    until = time.monotonic() + wait_s
    while True:
        for path in paths:
            if (descriptor := try_lock(path, shared=shared)) is not None:
                return descriptor
        if time.monotonic() >= until:
            return None
        time.sleep(_LOOK_S)


def _path(state_dir: Path, board_id: str) -> Path:
    return state_dir / "locks" / f"{board_id}.lock"


def _read(path: Path) -> Holder | None:
    try:
        row = json.loads(path.read_text())
        return Holder(int(row["pid"]), str(row["user"]), str(row["since"]), str(row["what"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # between its lock and its record


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
