"""Virtual boards that stay on the desk when the shell that put them there has gone.

Below one folder of the user: ``desk/ID.toml`` is the board's file as the rig reads it,
``boards/ID/`` its flash, log and lock, ``lan/`` the access point's. What runs is known by kernel
locks, never by files that could be stale: a board that was killed holds none.
"""

import contextlib
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from boards.virtual.address import (
    BoardAddress,
    BoardKind,
    command,
    has_network,
    read_address,
)
from boards.virtual.board_file import LineMode, Protocol, board_file
from boards.virtual.control import BoardControl, BoardError, BoardState
from boards.virtual.lan import process as lan_process
from boards.virtual.lan.client import LanControl
from boards.virtual.lifetime import handle, holder

_START_S = 60.0
_ASKED_S = 2.0  # each, for the control port, SIGTERM and SIGKILL
_LOOK_S = 0.02
_EXIT_S = 10.0  # for a process to end that has left its folder
_ADDRESS = "address.json"
_PREFIXES = {"rp2040": "vpico", "rp2040w": "vpicow", "esp32": "vesp32"}

_T = TypeVar("_T")
Preload = Callable[[BoardKind, Path], None]


@dataclass(frozen=True, slots=True)
class Seen:
    """One board of the desk: its address, and its state if it runs (None: its process is gone)."""

    address: BoardAddress
    pid: int | None
    state: BoardState | None


class Desk:
    """The virtual boards below ``folder``, which is made when the first one comes."""

    def __init__(self, folder: Path) -> None:
        self._files = folder / "desk"
        self._boards = folder / "boards"
        self._lan = folder / "lan"
        self._leashes: list[int] = []  # the standard inputs of boards that end with us

    def up(
        self,
        kinds: Sequence[BoardKind],
        *,
        blank: bool,
        attached: bool = False,
        lan: bool = False,
        preload: Preload,
    ) -> list[BoardAddress]:
        """Start one board of each of ``kinds``; it stays until ``down``.

        ``attached``: or until our process ends, however that may be. ``lan``: those that have a
        network have it on a LAN of the desk's own, which begins with the first and ends with the
        last of them. Ids are the lowest that are
        free. A board finds the flash that the last one of its id had;
        where there is none, or with ``blank``, it is made anew: erased, or filled by ``preload``.
        Raises ``BoardError``, after taking down what was started already.
        """
        with self._locked():
            self._tidy()
            with ExitStack() as undo:
                started = []
                undo.callback(self._end_lan)
                host = self._begin_lan(attached) if lan else ""
                for kind in kinds:
                    address = self._start(kind, blank, attached, host, preload)
                    undo.callback(self._stop, address.id)
                    started.append(address)
                undo.pop_all()
            return started

    def down(self, ids: Sequence[str] = (), *, forget: bool = False) -> list[str]:
        """Stop these boards, all of them if none is named; return which were on the desk.

        ``forget``: their flash goes too. Raises ``BoardError`` for an id that is not there, and
        if a process does not end.
        """
        with self._locked():
            there = self._ids()
            unknown = [id for id in ids if id not in there]
            if unknown:
                names = ", ".join(there) or "none"
                raise BoardError(f"there is no virtual board {unknown[0]!r} up; up: {names}")
            chosen = list(ids) or there
            for id in chosen:
                self._stop(id)
                if forget:
                    shutil.rmtree(self._boards / id, ignore_errors=True)
            self._end_lan()
            return chosen

    def boards(self) -> list[Seen]:
        """Return the boards of the desk by id, those too whose process is gone."""
        return [self._look(id) for id in self._ids()]

    def lan(self) -> LanControl | None:
        """Return the desk's LAN, None if there is none."""
        return LanControl(self._lan) if holder(self._lan) else None

    def _begin_lan(self, attached: bool) -> str:
        """Start the access point unless it is there; return our address on its LAN."""
        if (there := self.lan()) is not None:
            return str(there.state()["host"])
        self._lan.mkdir(parents=True, exist_ok=True)
        with self._leashed(attached) as leash:
            host = _spawn(
                lan_process.command(self._lan),
                self._lan / lan_process.LOG,
                leash,
                lambda stdout: lan_process.read_host(stdout, self._lan),
            )
        for id in self._ids():  # boards whose LAN was killed are on this one from now on
            if (address := self._address(id)).lan:
                _write(self._files / f"{id}.toml", _file(address, host))
        return host

    def _end_lan(self) -> None:
        """Stop the access point if no board is left that could join."""
        there = self.lan()
        if there is None or any(self._address(id).lan for id in self._ids()):
            return
        process = handle(self._lan)
        with contextlib.suppress(BoardError):
            there.stop()
        _end(self._lan, process, "the LAN")

    def _ids(self) -> list[str]:
        return sorted(path.stem for path in self._files.glob("*.toml"))

    def _look(self, id: str) -> Seen:
        state_dir = self._boards / id
        address = self._address(id)
        pid = holder(state_dir)
        state = None
        if pid is not None:
            with contextlib.suppress(BoardError):  # it is just ending
                state = BoardControl(address.control_port, timeout_s=_ASKED_S).state()
        return Seen(address, pid, state)

    def _address(self, id: str) -> BoardAddress:
        data = json.loads((self._boards / id / _ADDRESS).read_text())
        folders = {key: Path(data[key]) if data[key] else None for key in ("bootsel_dir", "lan")}
        return BoardAddress(**{**data, **folders})

    def _start(
        self, kind: BoardKind, blank: bool, attached: bool, host: str, preload: Preload
    ) -> BoardAddress:
        id = self._free_id(kind)
        state_dir = self._boards / id
        if blank:
            shutil.rmtree(state_dir, ignore_errors=True)
        elif not (state_dir / "flash.bin").exists():
            preload(kind, state_dir)
        state_dir.mkdir(parents=True, exist_ok=True)
        lan = self._lan if host and has_network(kind) else None
        with self._leashed(attached) as leash:
            address = _spawn(
                command(kind, id, state_dir, lan),
                state_dir / "board.log",
                leash,
                lambda stdout: read_address(kind, id, stdout, state_dir, _START_S),
            )
        _write(state_dir / _ADDRESS, json.dumps(asdict(address), default=str) + "\n")
        _write(self._files / f"{id}.toml", _file(address, host))
        return address

    @contextmanager
    def _leashed(self, attached: bool) -> Iterator[int | None]:
        """A standard input that ends with our process, None for what is to outlive us."""
        if not attached:
            yield None
            return
        leash, held = os.pipe()
        self._leashes.append(held)
        try:
            yield leash
        finally:
            os.close(leash)

    def _tidy(self) -> None:
        """Forget boards whose process is gone."""
        for id in self._ids():
            if holder(self._boards / id) is None:
                (self._files / f"{id}.toml").unlink()

    def _free_id(self, kind: BoardKind) -> str:
        prefix = _PREFIXES.get(kind, kind)
        number = 1
        while (
            self._files.joinpath(f"{prefix}-{number}.toml").exists()
            or holder(self._boards / f"{prefix}-{number}") is not None
        ):
            number += 1
        return f"{prefix}-{number}"

    def _stop(self, id: str) -> None:
        state_dir = self._boards / id
        process = handle(state_dir)
        if holder(state_dir) is not None:
            control = BoardControl(self._address(id).control_port, timeout_s=_ASKED_S)
            with contextlib.suppress(BoardError):  # it may hang, or be ending: then by its process
                control.stop()
        _end(state_dir, process, f"virtual board {id!r}")
        (self._files / f"{id}.toml").unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One change of the desk at a time."""
        self._files.mkdir(parents=True, exist_ok=True)
        with (self._files / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _spawn(argv: list[str], log: Path, leash: int | None, read: Callable[[int], _T]) -> _T:
    """Start a process that belongs to no shell: a session of its own, no terminal.

    ``leash``: its standard input, whose end is its own; without, it has none to end with. ``read``
    gets the descriptor of its output, and returns what that says once it is ready.
    """
    read_end, write_end = os.pipe()
    stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    argv = [*argv, *(["--detached"] if leash is None else [])]
    stdin = (
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        if leash is None
        else (os.POSIX_SPAWN_DUP2, leash, 0)
    )
    try:
        pid = os.posix_spawn(
            argv[0],
            argv,
            dict(os.environ),
            file_actions=[
                stdin,
                (os.POSIX_SPAWN_DUP2, write_end, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ],
            setsid=True,
        )
    finally:
        os.close(write_end)
        os.close(stderr)
    try:
        return read(read_end)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    finally:
        os.close(read_end)


def _end(folder: Path, process: BinaryIO | None, what: str) -> None:
    """Wait for the process that holds ``folder`` to end, which it was asked to; else make it."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        pid = holder(folder)
        # It holds the lock, so this id is its own; it leads a process group of its own.
        if number is not None and pid:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
        if _await_end(folder):
            break
    else:
        raise BoardError(f"{what}: process {holder(folder)} does not end")
    if process is not None:  # what holds its folder no more may still be ending
        with process:
            select.select([process], [], [], _EXIT_S)


def _await_end(state_dir: Path) -> bool:
    deadline = time.monotonic() + _ASKED_S
    while holder(state_dir) is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(_LOOK_S)
    return True


def _file(address: BoardAddress, host: str) -> str:
    """Return the board's file. Protocols and modes alternate: four boards have every pair."""
    number = int(address.id.rpartition("-")[2])
    protocol: Protocol = "fmqp" if number % 2 else "lightmq"
    mode: LineMode = "reliable" if number // 2 % 2 else "raw"
    return board_file(address, protocol, mode, host=host, ssid=lan_process.SSID)


def _write(path: Path, text: str) -> None:
    staged = path.with_name(f".{path.name}.new")
    staged.write_text(text)
    staged.rename(path)
