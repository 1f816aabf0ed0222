"""A board that runs somebody's own program: install it, start it, read what it says, ask it.

Nothing of ours has to be on the board. The console stays open between the calls, so that nothing
of what the board says is lost; ``exec`` and ``install`` stop the program, ``reset`` starts it.
"""

import codecs
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath

from boards.flash.find_board import find_board, open_repl
from boards.inventory.target import BoardHandle
from boards.repl import NoReply, Repl, ReplError
from boards.serial_port import PortError, PortGone, SerialPort
from boards.session.installation import copy_folder, differing, digests, hash_code, root_of
from boards.session.own_files import NAMES, OwnFiles
from boards.session.serial_log import SerialLog
from host_broker.scratch_folder import scratch_folder

INSTALL_S = 120.0
REPL_S = 30.0
_SOFT_RESET = b"\x04"  # Ctrl-D at the prompt
_SETTLED_S = 0.1
_FORGET_S = 2.0  # of one that never stops talking
_WRITE_S = 5.0
_ANSWER_S = 10.0  # for a board whose RESET can be pressed instead
_GOES_S = 1.0  # until a board that resets itself has stopped answering
_QUIET_S = 0.5  # silence after which a line is taken to have no end
_LOOK_S = 0.1
_KEPT = 256 * 1024  # characters that nothing has matched yet
_LAST_WORDS = 10  # lines
_CACHE = "__pycache__"


class NotSaid(AssertionError):
    """The board did not say what was expected of it; the text has its last words."""


class NotInstalled(ReplError):
    """After an installation a file on the board is not what was sent."""


class AppBoard:
    """One board, and the program of a user on it.

    ``own_files``: those that were on the board before and will be put back.
    """

    def __init__(
        self, target: BoardHandle, log: SerialLog, own_files: OwnFiles | None = None
    ) -> None:
        self.target = target
        self.id = target.id
        self.log = log
        self._own_files = own_files
        self._is_off = False
        self._port: SerialPort | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._said = ""  # since the last match

    @property
    def serial_url(self) -> str:
        """The console, for pyserial and mpremote. Raises ``NotThere``."""
        return self.target.place().serial_url

    def install(
        self,
        folder: str | Path,
        files: Mapping[str, str | bytes] | None = None,
        *,
        timeout_s: float = INSTALL_S,
    ) -> None:
        """Copy all that is in ``folder`` into the root of the board's filesystem, and compare.

        ``files``: more of them, the path on the board to the content, instead of those of that
        name in ``folder``: what differs between boards and brokers. Caches and hidden files stay
        here, and whatever else is on the board stays there. The program that runs is stopped; the
        new one starts at the next ``reset``. Raises ``OSError`` for what cannot be read here,
        ``ValueError`` for a path that leads elsewhere, ``ToolError``, ``NotInstalled``,
        ``NotThere``, ``PortError``, ``ReplError``.
        """
        until = time.monotonic() + timeout_s
        with scratch_folder("motemq-app-") as scratch:
            staged = scratch / "app"
            shutil.copytree(folder, staged, ignore=_stays_here)
            for name, content in (files or {}).items():
                _lay(staged, name, content)
            for name in NAMES:
                if self._own_files is not None and (staged / name).is_file():
                    self._own_files.will_write(name, (staged / name).read_bytes())
            self._hang_up()
            url = find_board(self.target, "running", deadline_s=_left(until)).serial_url
            into = root_of(self.target.model)
            copy_folder(url, staged, deadline_s=timeout_s, on_line=self.log.mark, into=into)
            wanted = digests(staged)
        with self.repl(deadline_s=_left(until)) as repl:
            printed = repl.exec(hash_code(wanted), deadline_s=_left(until))
        if wrong := differing(wanted, printed):
            raise NotInstalled(f"{self.id}: {wrong} on the board is not what was sent")

    def reset(self) -> None:
        """Start the board anew: RESET where that is within reach, else ``machine.reset()``.

        A board whose USB is its own is restarted softly, as Ctrl-D does: with a reset its port
        would go, and nobody could hear how its program begins; only one that answers no Ctrl-C has
        its RESET pressed, where it can be. ``expect`` hears what it says from its start. Raises
        ``BoardError``, ``NotThere``, ``PortError``, ``ReplError``.
        """
        buttons = self.target.buttons
        if self.target.place().own_usb and self._restart_softly(or_not=buttons is not None):
            return
        if buttons is not None:
            self._forget(self._console(REPL_S))
            buttons.reset()
            return
        repl = self.repl()
        self._forget(None)
        try:
            repl.exec("import machine\nmachine.reset()", deadline_s=_GOES_S)
        except (NoReply, PortGone):
            return  # it went without a farewell
        finally:
            repl.close(friendly=False)
        raise ReplError(f"{self.id}: it was told to reset itself and goes on")

    def _restart_softly(self, *, or_not: bool) -> bool:
        """Do it; with ``or_not`` return False if the board answers no Ctrl-C."""
        try:
            self.repl(deadline_s=_ANSWER_S if or_not else REPL_S).close()
        except NoReply:
            if or_not:
                return False
            raise
        port = self._console(REPL_S)
        self._forget(port, quiet_s=_SETTLED_S)  # the prompt's own words
        port.write_all(_SOFT_RESET, _WRITE_S)
        return True

    def power(self, *, on: bool) -> None:
        """Cut the board's power, or give it back: it starts as after a reset.

        ``expect`` then hears what it says from there on. Raises ``BoardError``, and ``PowerError``
        for a board whose file has no ``[power]``.
        """
        if self.target.buttons is not None:  # its console stays powered
            port = self._console(REPL_S)
            self.target.power(on=on)
            if not on:
                self._forget(port)
        else:
            if not on:
                self._hang_up()
            self.target.power(on=on)
            self._forget(None)
        self._is_off = not on

    def expect(self, pattern: str | re.Pattern[str], *, timeout_s: float = 30.0) -> re.Match[str]:
        """Wait until the board has said something in which ``pattern`` is found; return the match.

        What comes before the match is passed over, what comes after it is for the next call.
        A line is looked at when it has ended, or nothing more of it comes. Raises ``NotSaid`` when
        ``timeout_s`` seconds are over; ``NotThere``, ``PortError`` if the board is then not there.
        """
        wanted = re.compile(pattern)
        began = time.monotonic()
        spoke = began
        while True:
            now = time.monotonic()
            is_over = now > began + timeout_s
            # What has no end of line may still grow: the number at its end, for one.
            whole = len(self._said) if is_over or now > spoke + _QUIET_S else 0
            match = wanted.search(self._said, 0, max(whole, self._said.rfind("\n") + 1))
            if match:
                self._said = self._said[match.end() :]
                return match
            if is_over:
                raise NotSaid(self._unsaid(wanted.pattern, timeout_s))
            if self.listen(_LOOK_S, back_s=began + timeout_s - now):
                spoke = time.monotonic()

    def listen(self, timeout_s: float, *, back_s: float = REPL_S) -> bytes:
        """Return what the board says, after waiting up to ``timeout_s`` for the first of it.

        A board whose port is away, as while it resets, has ``back_s`` seconds to be back. Raises
        ``NotThere``, ``PortError``.
        """
        try:
            return self._console(back_s).read(timeout_s)
        except PortGone:
            self._hang_up()
            return b""

    def exec(self, code: str, *, timeout_s: float = REPL_S) -> str:
        """Stop the program, run Python on the board and return what that printed.

        Raises ``RemoteError`` (``traceback``) for what the code raised, ``NoReply``, ``NotThere``,
        ``PortError``.
        """
        until = time.monotonic() + timeout_s
        with self.repl(deadline_s=timeout_s) as repl:
            return repl.exec(code, deadline_s=_left(until))

    def repl(self, *, deadline_s: float = REPL_S) -> Repl:
        """Open the raw REPL, to be used in a ``with`` block. Raises as ``exec`` does."""
        self._hang_up()
        return open_repl(self.target, deadline_s=deadline_s, tap=self._hear)

    def close(self) -> None:
        """Let go of the console; a board without power gets it back."""
        if self._is_off:
            self.power(on=True)
        self._hang_up()

    def _console(self, limit_s: float) -> SerialPort:
        """Return the open console, waiting up to ``limit_s`` for a board on its way back."""
        until = time.monotonic() + limit_s
        while self._port is None:
            left_s = max(0.0, until - time.monotonic())
            place = find_board(self.target, "running", deadline_s=left_s)
            try:
                self._port = SerialPort.open(place.serial_url, tap=self._hear)
            except PortError:  # it is there, and not ours yet
                if time.monotonic() > until:
                    raise
                time.sleep(_LOOK_S)
        return self._port

    def _hang_up(self) -> None:
        if self._port is not None:
            self._port.close()
            self._port = None

    def _hear(self, data: bytes) -> None:
        self.log.tap(data)
        # An end of line may come in two halves.
        said = (self._said + self._decoder.decode(data)).replace("\r\n", "\n")
        self._said = said[-_KEPT:]

    def _forget(self, port: SerialPort | None, *, quiet_s: float = 0.0) -> None:
        """Pass over what was said until now, also what waits in the port, or comes at once."""
        until = time.monotonic() + _FORGET_S
        while port is not None and port.read(quiet_s) and time.monotonic() < until:
            pass
        self._said = ""

    def _unsaid(self, pattern: str, timeout_s: float) -> str:
        lines = self._said.splitlines()[-_LAST_WORDS:]
        last = "its last words:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
        return (
            f"{self.id} did not say {pattern!r} within {timeout_s:g} s; "
            f"{last or 'it said nothing'}\n(all that it said: {self.log.path})"
        )


def is_installed(path: PurePath) -> bool:
    """Return whether ``install`` copies a file: caches, hidden files and folders stay here."""
    return not any(name == _CACHE or name.startswith(".") for name in path.parts)


def _stays_here(_folder: str, names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_installed(PurePath(name))]


def _lay(folder: Path, name: str, content: str | bytes) -> None:
    place = PurePosixPath(name.removeprefix("/"))
    if not place.parts or ".." in place.parts or place.is_absolute():
        raise ValueError(f"{name!r} is no path on the board")
    path = folder / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _left(until: float) -> float:
    return max(0.1, until - time.monotonic())
