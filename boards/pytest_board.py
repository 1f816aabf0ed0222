"""A board as a test sees it; what the fixtures of ``pytest_plugin`` are made of."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from boards.flash.find_board import find_board, open_repl
from boards.flash.image_identity import image_for, image_of
from boards.flash.rule import flash_in_turn
from boards.inventory import unresponsive
from boards.inventory.locks import BoardLock
from boards.inventory.rig_file import Rig
from boards.inventory.target import BoardHandle
from boards.repl import Repl
from boards.serial_port import PortError
from boards.session.app_board import AppBoard
from boards.session.board_session import start_bridge
from boards.session.installation import copy_folder, root_of, stage_client
from boards.session.own_files import OwnFiles
from boards.session.reset_ladder import admit
from boards.session.run_brokers import host_and_number
from boards.session.serial_log import SerialLog

_FLASH_S = 180.0
_INSTALL_S = 120.0
_REPL_S = 20.0
_LOCK_S = 600.0


class RigBoard(AppBoard):
    """One board of the desk, ours for the session."""

    def __init__(
        self, target: BoardHandle, log: SerialLog, firmware_sha: str, own_files: OwnFiles
    ) -> None:
        super().__init__(target, log, own_files)
        self.caps = target.board.caps
        self.firmware_sha = firmware_sha

    @property
    def log_path(self) -> Path:
        """The file of all that the board has said in this session."""
        return self.log.path

    @contextmanager
    def bridge(self, broker: str) -> Iterator[None]:
        """Join the board's UART to ``broker`` (HOST:PORT) while the block lasts.

        Raw or with the reliable link, as the board's file says (docs/bridge.md). Raises
        ``PortError``.
        """
        uart, url = self.target.model.uart, self.target.data_url
        if uart is None or not url:
            raise PortError(
                f"{self.id}: no line to bridge: its file names none under [link] serial_url"
            )
        bridge = start_bridge(
            url,
            uart.baud,
            host_and_number(broker),
            reliable=self.target.board.mode == "reliable",
            report=lambda line: self.log.mark(f"bridge: {line}"),
        )
        try:
            yield
        finally:
            bridge.stop()

    def tail(self, count: int) -> list[str]:
        """Return the last lines that the board said."""
        return self.log.path.read_text(encoding="utf-8").splitlines()[-count:]


class BoardPool:
    """The boards of this session: who asks for one that is ours already, shares it."""

    def __init__(self, rig: Rig, *, out: Path, flash: bool) -> None:
        self._rig, self._out, self._flash = rig, out, flash
        self._users: dict[str, int] = {}
        self._stacks: dict[str, ExitStack] = {}
        self._boards: dict[str, RigBoard] = {}

    @contextmanager
    def board(self, id: str) -> Iterator[RigBoard]:
        """Hold a board while the block lasts. Raises like ``take_board``."""
        if id not in self._boards:
            stack = ExitStack()
            taken = take_board(self._rig, id, out=self._out, flash=self._flash)
            self._boards[id] = stack.enter_context(taken)
            self._stacks[id] = stack
        self._users[id] = self._users.get(id, 0) + 1
        try:
            yield self._boards[id]
        finally:
            self._users[id] -= 1
            if not self._users[id]:
                del self._boards[id]
                self._stacks.pop(id).close()


@contextmanager
def take_board(rig: Rig, id: str, *, out: Path, flash: bool) -> Iterator[RigBoard]:
    """Lock a board, flash it by the flash rule, install the client; give it back at the end.

    With ``flash`` False it only has to answer and be the one. Waits up to ten minutes for others.
    Raises ``Locked``, ``Unresponsive``, ``FlashError``, ``ToolError``, ``ReplError``.
    """
    (out / "logs").mkdir(parents=True, exist_ok=True)
    log = SerialLog(out / "logs" / f"{id}.serial.log")
    target = BoardHandle(rig.board(id))
    lock = BoardLock.take(rig.state_dir, id, "pytest --rig", wait_s=_LOCK_S)
    try:
        sha = ""
        own_files = OwnFiles(rig.state_dir, target)
        try:
            if flash:
                sha = _prepare(rig, target, lock, log, out / "client" / id, own_files)
            else:
                admit(target, tap=log.tap, progress=log.mark, state_dir=rig.state_dir)
                with open_repl(target, deadline_s=_REPL_S) as repl:
                    own_files.keep(repl)
            board = RigBoard(target, log, sha, own_files)
            try:
                yield board
            finally:
                board.close()
        finally:
            if own_files.is_taken:
                with open_repl(target, deadline_s=_REPL_S) as repl:
                    own_files.restore(repl)
    finally:
        lock.release()
        log.close()


def _prepare(
    rig: Rig,
    target: BoardHandle,
    held: BoardLock,
    log: SerialLog,
    folder: Path,
    own_files: OwnFiles,
) -> str:
    def keep(url: str) -> None:
        with Repl.open(url, deadline_s=_REPL_S) as repl:
            own_files.keep(repl)

    unresponsive.refuse(rig.state_dir, target.id)
    board = target.board
    path = image_of(board.image, board.file.parent, log.mark, lock=rig.firmware_lock)
    image = image_for(target, path)
    flash_in_turn(
        target,
        image,
        held=held,
        state_dir=rig.state_dir,
        parallel=rig.flash_parallel,
        left_s=lambda: _FLASH_S,
        tap=log.tap,
        proven=keep,
    )
    if not own_files.is_taken:  # nothing ran on it before it was flashed
        keep(find_board(target, "running", deadline_s=_REPL_S).serial_url)
    stage_client(folder)
    into = root_of(target.model)
    url = target.place().serial_url
    copy_folder(url, folder, deadline_s=_INSTALL_S, on_line=log.mark, into=into)
    return image.sha256
