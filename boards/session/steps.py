"""The life of one board in a run: start, flash, install, check, telemetry, stop."""

import threading
import time
from pathlib import Path
from typing import cast

from boards.bridge.bridge import ReliableBridge
from boards.errors import RigError
from boards.flash.find_board import find_board, open_repl
from boards.flash.image_identity import image_for
from boards.flash.rule import flash_in_turn
from boards.flash.target import FlashError
from boards.inventory import unresponsive
from boards.inventory.board_file import Board, load_board, missing_link
from boards.inventory.locks import BoardLock
from boards.inventory.models import Models
from boards.inventory.target import BoardHandle
from boards.mpremote_cli import copy_to_board
from boards.port_users import port_users
from boards.repl import Repl
from boards.runtime_folder import write_private
from boards.session import installation
from boards.session.board_session import SILENCE_S, BoardSession, Bridge, set_silence, start_bridge
from boards.session.broker_route import BrokerRoute
from boards.session.own_files import OwnFiles
from boards.session.plan import Job
from boards.session.reachable import require_reachable
from boards.session.reset_ladder import NotBack, bring_back
from boards.session.serial_log import SerialLog
from boards.session.telemetry import await_telemetry
from boards.session.verdicts import StepFailed
from boards.session.wifi import Wifi, join, wifi_files
from boards.session.worker_line import Reporter
from boards.virtual.board import BoardKind, VirtualBoard
from boards.virtual.board_file import LineMode, board_file

_REPL_S = 30.0
_CONSOLE_BAUD = 115200  # of the UART that a REPL is on; USB has none
_EXEC_S = 30.0
_START_ENDS_S = 8.0
_VERSION = "import sys\nprint(sys.version)"
_DYING_S = 4.0  # the worker of a rig that was killed just now still stops its bridge


class BoardRun:
    """One board and its steps, in order; ``stop`` at any time, from any thread."""

    def __init__(self, job: Job, models: Models, report: Reporter) -> None:
        self.job = job
        self.model = models[job.board.model]
        self._models = models
        self.log = SerialLog(Path(job.log_dir) / f"{job.board.id}.serial.log")
        self._report = report
        self._started: VirtualBoard | None = None
        self._lock: BoardLock | None = None
        self._target: BoardHandle | None = None
        self._bridge: Bridge | None = None
        self._broker_route = BrokerRoute(job)
        self._session: BoardSession | None = None
        self._starting = threading.Lock()
        self._stopped = False
        self._own_files: OwnFiles | None = None
        self._is_flashing = False  # and perhaps in its loader, until a flashing has ended well
        self._is_changed = False  # by a check that had the board for a program of a user's own
        self._rig_dir = Path(job.rig_dir)
        self._wifi: Wifi | None = None  # that the board has joined

    @property
    def target(self) -> BoardHandle:
        """The board, once it is there and ours."""
        if self._target is None:
            raise StepFailed("the board was not started")
        return self._target

    def start(self, until: float) -> str:
        """Take the board's lock and find it; a virtual board of this run is started."""
        what = f"motemq rig, logs in {self.job.log_dir}"
        with self._starting:
            if self._stopped:
                raise StepFailed("the run was stopped")
            self._lock = BoardLock.take(self._rig_dir, self.job.board.id, what, wait_s=_DYING_S)
            if self.job.board.file:
                unresponsive.refuse(self._rig_dir, self.job.board.id)
                board = load_board(Path(self.job.board.file), self._models)
            else:
                board = self._start_virtual(until)
        self._target = BoardHandle(board)
        place = self._target.find()
        self._require_data_line()
        self._broker_route.open()
        url = place.serial_url or place.hub_path
        self._report.about(port=url)
        return f"{self.model.id} on {url}"

    def _require_data_line(self) -> None:
        """Raise ``StepFailed`` if there is no line for messages, or somebody else reads it.

        Two readers of one line get a part of the bytes each, and every check fails in its own way.
        """
        if missing := missing_link(self.target.board, self.job.wifi_ssid):
            raise StepFailed(f"{missing.what}: {missing.remedy}; nothing was written")
        url = self.target.data_url if self.target.board.transport == "uart" else ""
        if url and (users := port_users(url)):
            raise StepFailed(
                f"its data line {url} is open in "
                f"{', '.join(user.text for user in users)}: end that first; nothing was written"
            )

    def flash(self, until: float) -> str:
        """Put the firmware on the board by the flash rule."""
        target = self.target
        if self.model.flash.method == "none":
            self._keep_own_files(self._console_url(until))
            with self._open_repl(until) as repl:
                running = repl.exec(_VERSION, deadline_s=_EXEC_S).strip()
            self._report.about(firmware=running)
            return f"nothing to flash: {running}"
        if self.job.image_fault:
            raise FlashError(f"{self.job.image_fault}; nothing was written")
        image = image_for(target, Path(self.job.image))
        if self._lock is None:
            raise StepFailed("the board's lock is not held")
        self._is_flashing = True
        done = flash_in_turn(
            target,
            image,
            held=self._lock,
            state_dir=self._rig_dir,
            parallel=self.job.flash_parallel,
            left_s=lambda: _left(until),
            revive=self.revive,
            progress=self._report.progress,
            tap=self.log.tap,
            force=self.job.force,
            trust_ledger=self.job.trust_ledger,
            proven=self._keep_own_files,
        )
        self._is_flashing = False
        self._report.about(firmware=done.running.text)
        return ("" if done.written else "the same firmware was there: ") + done.running.text

    def _keep_own_files(self, url: str) -> None:
        """Copy what is the board's own to this host; a virtual board of the run has nothing."""
        if self._started is None and self._own_files is None:
            own_files = OwnFiles(self._rig_dir, self.target)
            with Repl.open(url, deadline_s=_REPL_S) as repl:
                own_files.keep(repl)
            self._own_files = own_files

    def revive(self) -> None:
        """Bring the board back after a failed step. Raises ``NotBack``, ``WrongBoard``.

        A board that waits to be flashed is no wedged one: it is only not flashed yet.
        """
        try:
            bring_back(self.target, tap=self.log.tap, progress=self._report.progress)
        except NotBack as error:
            if not self.target.answers():
                return
            if self.job.board.file:
                unresponsive.mark(self._rig_dir, self.target.id, str(error))
            raise

    def _start_virtual(self, until: float) -> Board:
        state_dir = Path(self.job.state_dir)
        if not self.job.keep_flash:
            (state_dir / "flash.bin").unlink(missing_ok=True)
        kind = cast(BoardKind, self.model.kind)
        self._started = VirtualBoard.start(
            kind, self.job.board.id, state_dir, timeout_s=_left(until)
        )
        mode: LineMode = "reliable" if "reliable" in self.job.board.has else "raw"
        file = state_dir / "board.toml"
        file.write_text(board_file(self._started.address, self.job.board.protocol, mode))
        return load_board(file, self._models)

    def install(self, until: float) -> str:
        """Copy the client and the node with mpremote, and compare what the board then holds."""
        url = self._console_url(until)
        self._keep_own_files(url)  # if nothing ran before it was flashed
        node_dir = Path(self.job.node_dir)
        self._will_write("main.py", (node_dir / "main.py").read_bytes())
        self._write_config(autostart=False)
        size = self._copy_node(until)
        self._join_wifi(until)
        if self.target.board.transport == "tcp":
            with self._open_repl(until) as repl:
                require_reachable(
                    repl,
                    self._broker_route.address,
                    tls=self._broker_route.certificates is not None,
                )
        self._report.progress("comparing")
        wanted = installation.digests(node_dir, self._config)
        with self._open_repl(until) as repl:
            code = installation.hash_code(wanted)
            printed = repl.exec(code, deadline_s=min(_EXEC_S, _left(until)))
        if wrong := installation.differing(wanted, printed):
            raise StepFailed(f"after the installation {wrong} on the board is not what was sent")
        return f"{len(wanted)} files, {size} bytes, verified"

    def _copy_node(self, until: float) -> int:
        return installation.copy_node(
            self._console_url(until),
            Path(self.job.node_dir),
            self._config,
            deadline_s=_left(until),
            on_line=self._tool_line,
            into=installation.root_of(self.model),
        )

    def _join_wifi(self, until: float) -> None:
        virtual = self.target.board.virtual
        if virtual is not None and virtual.ssid:
            wifi = Wifi(virtual.ssid, "")  # its LAN is no other board's
        else:
            wifi = Wifi(self.job.wifi_ssid, self.job.wifi_psk_env)
        if not wifi.ssid or "wifi" not in self.target.board.caps:
            return
        url = self._console_url(until)
        with wifi_files(wifi, Path(self.job.state_dir)) as files:
            self._will_write("boot.py", files[-1].read_bytes())
            copy_to_board(url, folders=[], files=files, deadline_s=_left(until))
        self._report.progress(f"joining {wifi.ssid}")
        with self._open_repl(until) as repl:
            join(repl, wifi)
        self._wifi = wifi

    def open_session(self, until: float) -> BoardSession:
        """Open the console and the bridge for checks."""
        self._start_bridge()
        self._session = BoardSession(
            plan=self.job.board,
            target=self.target,
            broker=self.job.fmqp,
            log=self.log,
            bridge=self._bridge,
            repl=self._open_repl(until),
            broker_route=self._broker_route,
            own_files=self._own_files,
            rejoin=self._rejoin,
        )
        return self._session

    def _rejoin(self, repl: Repl) -> None:
        if self._wifi is not None:
            join(repl, self._wifi)

    def close_session(self) -> None:
        """Close the console that checks used."""
        if self._session is not None:
            self._is_changed = self._session.is_changed
            self._session.repl.close()
            self._session = None

    def telemetry(self, until: float) -> str:
        """Let the board run by itself and count what arrives. Raises ``CheckFailed``."""
        self._start_bridge()
        if self._bridge is not None:
            # The last check's session must be over, or the node's first words are dropped.
            if not self._bridge.wait_idle(_left(until)):
                raise StepFailed("the bridge's last session did not end; the board still sends")
            set_silence(self._bridge, SILENCE_S)
        if self._is_changed:
            self._copy_node(until)
            self._join_wifi(until)
        self._send_config(until, autostart=True)
        return await_telemetry(
            self.job,
            self.target,
            self.log,
            self._bridge,
            until=until,
            progress=self._report.progress,
        )

    def stop(self) -> None:
        """Stop the bridge and the board; harmless when they never ran.

        A board that is just starting is waited for, so that it can be seen to end.
        """
        if self._starting.acquire(timeout=_START_ENDS_S):
            self._stopped = True
            self._starting.release()
        self._stop_bridge()
        self._broker_route.close()
        if self._started is not None:
            self._started.stop()
            self._started = None
        self.log.close()
        if self._lock is not None:
            self._lock.release()

    def restore(self, until: float) -> None:
        """Leave a board of the desk at its REPL, with its own files as they were before."""
        if self.job.board.has & {"console"}:
            self._stop_bridge()
        if self._own_files is None:
            return
        try:
            if self._is_flashing:
                self.revive()
            with open_repl(self.target, deadline_s=min(_REPL_S, _left(until))) as repl:
                self._own_files.restore(repl)
        except RigError as error:
            raise StepFailed(
                f"its own main.py and boot.py stay on this host until it answers: {error}; get "
                f"them back with: motemq rig recover {self.target.id}"
            ) from error

    def _send_config(self, until: float, *, autostart: bool) -> None:
        self._write_config(autostart=autostart)
        copy_to_board(
            self._console_url(until),
            folders=[],
            files=[self._config],
            deadline_s=_left(until),
            on_line=self._tool_line,
            into=installation.root_of(self.model),
        )

    def _console_url(self, until: float) -> str:
        left = min(_REPL_S, _left(until))
        return find_board(self.target, "running", deadline_s=left).serial_url

    def _open_repl(self, until: float) -> Repl:
        return open_repl(self.target, deadline_s=min(_REPL_S, _left(until)), tap=self.log.tap)

    def _start_bridge(self) -> None:
        if self.target.board.transport == "tcp" or self._bridge is not None:
            return
        if self.target.board.transport == "console":
            self._share_console()
            return
        if not self.target.data_url or self.model.uart is None:
            raise StepFailed(f"{self.model.id} has a UART, but its data line is nowhere")
        self._bridge = start_bridge(
            self.target.data_url,
            self.model.uart.baud,
            self._broker_route.address,
            reliable="reliable" in self.job.board.has,
            report=self._report.bridge_line,
        )

    def _share_console(self) -> None:
        """Have the bridge carry messages and the console over the board's one cable."""
        bridge = ReliableBridge(
            self.target.own_port(),
            _CONSOLE_BAUD,
            *self._broker_route.address,
            console=True,
            locate=self.target.own_port,
            report=self._report.bridge_line,
        ).start()
        self._bridge = bridge
        self.target.console_url = bridge.console_url

    def _stop_bridge(self) -> None:
        if self._bridge is not None:
            self._bridge.stop()
            self._bridge = None
        if self._target is not None:
            self._target.console_url = ""

    @property
    def _config(self) -> Path:
        certificates = self._broker_route.certificates
        if certificates is None:
            return Path(self.job.state_dir) / "node.json"
        # It has the board's key: it goes with the run, which the folder of its report does not.
        folder = certificates.folder / self.job.board.id
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / "node.json"

    def _write_config(self, *, autostart: bool) -> None:
        uart = self.model.uart if self.target.board.transport == "uart" else None
        about = self.job.board, uart, self._broker_route.address
        certificates = self._broker_route.certificates
        text = installation.node_config(*about, autostart=autostart, certificates=certificates)
        write_private(self._config, text.encode())
        self._will_write("node.json", text.encode())

    def _will_write(self, name: str, content: bytes) -> None:
        if self._own_files is not None:
            self._own_files.will_write(name, content)

    def _tool_line(self, line: str) -> None:
        self.log.mark(line)
        self._report.progress(line[:60])


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise StepFailed("the step's time was up")
    return left
