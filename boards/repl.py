"""A board's raw REPL under deadlines: the one module that uses mpremote's transport.

mpremote 1.29 has no stable API and bounds only the silence between bytes (a silent pty blocks it
for ever, a babbling board too). Here it is handed a serial object of ours that knows the overall
deadline and raises from inside whatever the transport is doing.
"""

import contextlib
import io
import itertools
import time
from collections.abc import Callable

from mpremote.transport import TransportError
from mpremote.transport_serial import SerialTransport

from boards.errors import RigError
from boards.serial_port import PortGone, SerialPort, Tap

OnLine = Callable[[str], None]

_ENTER_TRY_S = 3.0  # a board that is still booting loses the first Ctrl-C
_LOOK_S = 0.01
_SETTLED_S = 0.5
_OUTPUT_LIMIT = 1024 * 1024
_CLEAR_LINE = b"\3"  # in the raw REPL Ctrl-C does that, and says nothing


class ReplError(RigError):
    """A board's REPL did not do what was asked."""


class NoReply(ReplError):
    """The board did not answer within the deadline."""


class RemoteError(ReplError):
    """The code raised on the board; ``traceback`` is the board's, ``output`` what it printed."""

    def __init__(self, traceback: str, output: str) -> None:
        last = traceback.strip().splitlines()[-1:] or ["no reason given"]
        super().__init__(f"the board raised {last[0]}")
        self.traceback = traceback
        self.output = output


class Repl:
    """The raw REPL of one board, without a soft reset: the board's state is kept.

    After ``NoReply`` the REPL is in an unknown state: close it and open another.
    """

    def __init__(self, port: SerialPort) -> None:
        self._serial = _DeadlineSerial(port)
        self._transport = _Transport(self._serial)

    @classmethod
    def open(
        cls, url: str, *, deadline_s: float, baud: int = 115200, tap: Tap | None = None
    ) -> "Repl":
        """Open the port and enter the raw REPL, interrupting what runs.

        ``tap`` is shown every byte that the board sends. Raises ``PortError`` if the port cannot
        be opened, ``NoReply`` if no raw REPL answers within ``deadline_s`` seconds.
        """
        port = SerialPort.open(url, baud=baud, tap=tap)
        repl = cls(port)
        try:
            repl._enter(time.monotonic() + deadline_s, deadline_s)
        except BaseException:
            port.close()
            raise
        return repl

    def exec(
        self,
        code: str,
        *,
        deadline_s: float,
        on_line: OnLine | None = None,
        goes_on: Callable[[], bool] | None = None,
    ) -> str:
        """Run ``code`` and return what it printed.

        ``on_line`` gets every whole line as it arrives, without its end. ``goes_on`` is asked when
        the time is up: if the board is seen to go on, it has as much time again. Raises
        ``RemoteError`` for an exception on the board, ``NoReply`` if it is not done within
        ``deadline_s`` seconds, ``PortGone``.
        """
        lines = _Lines(on_line)
        self._serial.until = time.monotonic() + deadline_s
        self._serial.more_s, self._serial.goes_on = deadline_s, goes_on
        try:
            # Forget what came since the last prompt: a frame of the link that shares this line.
            self._serial.write(_CLEAR_LINE)
            with contextlib.redirect_stdout(io.StringIO()):  # the transport prints its failures
                # Not its own timeout, which is of silence: the deadline is over all.
                _, error = self._transport.exec_raw(code, timeout=None, data_consumer=lines.feed)
        except (TransportError, _Late, ValueError) as reason:
            tail = lines.text()[-200:].strip()
            raise NoReply(
                f"not done within {round(deadline_s, 1):g} s ({_text(reason)}); "
                + (f"its last words: {tail!r}" if tail else "it printed nothing")
            ) from None
        finally:
            self._serial.goes_on = None
        if error:
            raise RemoteError(error.decode(errors="replace"), lines.text())
        return lines.text()

    def close(self, *, friendly: bool = True) -> None:
        """Close the port, leaving the board at its friendly REPL."""
        try:
            if friendly:
                self._serial.until = time.monotonic() + 1.0
                self._transport.exit_raw_repl()
        except (PortGone, _Late):
            return  # a board that is gone needs no farewell
        finally:
            self._serial.close()

    def __enter__(self) -> "Repl":
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _enter(self, until: float, deadline_s: float) -> None:
        for tried in itertools.count():
            left = until - time.monotonic()
            if left <= 0:
                raise NoReply(
                    f"{self._serial.url}: no raw REPL within {round(deadline_s, 1):g} s "
                    f"({self._serial.received} bytes came); does MicroPython run there?"
                )
            self._serial.until = time.monotonic() + min(left, _ENTER_TRY_S)
            with (
                contextlib.suppress(TransportError, _Late),
                contextlib.redirect_stdout(io.StringIO()),
            ):
                self._transport.enter_raw_repl(soft_reset=False, timeout_overall=left)
                if tried:
                    # What it was told while it booted it does now, and says "raw REPL" once more.
                    self._serial.settle(_SETTLED_S)
                return


class _Late(Exception):
    """The overall deadline has passed, whatever the transport was waiting for."""


class _Transport(SerialTransport):  # type: ignore[misc]  # mpremote has no types
    """mpremote's transport on a serial object that is open already."""

    def __init__(self, serial: "_DeadlineSerial") -> None:
        # Not super().__init__: it would open the port, and swallow why it cannot.
        self.in_raw_repl = False
        self.use_raw_paste = True
        self.device_name = serial.url
        self.mounted = False
        self.serial = serial
        self.is_pty = False  # True makes read_until block in read(1), deaf to any deadline


class _DeadlineSerial:
    """What mpremote's transport uses of pyserial, under one overall deadline (``until``)."""

    def __init__(self, port: SerialPort) -> None:
        self.url = port.url
        self.until = 0.0
        self.more_s = 0.0  # that it has again where ``goes_on`` says so
        self.goes_on: Callable[[], bool] | None = None
        self.received = 0
        self._port = port
        self._ahead = bytearray()

    def inWaiting(self) -> int:  # pyserial's name
        """Return how many bytes can be read, after looking at the port for a moment."""
        if not self._ahead:
            self._fill(_LOOK_S)
        return len(self._ahead)

    def settle(self, quiet_s: float) -> None:
        """Forget what comes, but for its last byte, a prompt, until nothing has come for
        ``quiet_s`` seconds; raises ``_Late``."""
        before = -1
        while self.received != before:
            before = self.received
            del self._ahead[:-1]
            self._fill(quiet_s)

    def read(self, size: int = 1) -> bytes:
        """Return exactly ``size`` bytes; raises ``_Late``."""
        while len(self._ahead) < size:
            self._fill(0.2)
        data = bytes(self._ahead[:size])
        del self._ahead[:size]
        return data

    def write(self, data: bytes) -> int:
        """Write all of ``data``; raises ``_Late``."""
        try:
            self._port.write_all(data, self._left())
        except TimeoutError:
            raise _Late("it takes no more input") from None
        return len(data)

    def close(self) -> None:
        """Close the port."""
        self._port.close()

    def _fill(self, wait_s: float) -> None:
        data = self._port.read(min(wait_s, self._left()))
        self.received += len(data)
        self._ahead += data

    def _left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0 and self.goes_on is not None and self.goes_on():
            left = self.more_s
            self.until = time.monotonic() + left
        if left <= 0:
            raise _Late("no end of the output")
        return left


class _Lines:
    """Cuts the output, which comes byte by byte, into lines; keeps a bounded copy."""

    def __init__(self, on_line: OnLine | None) -> None:
        self._on_line = on_line
        self._all = bytearray()
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        if data == b"\x04":  # the end of the output, in band
            return
        if len(self._all) < _OUTPUT_LIMIT:
            self._all += data
        if self._on_line is None:
            return
        self._line += data
        if data == b"\n":
            line = self._line.decode(errors="replace").rstrip("\r\n")
            self._line.clear()
            self._on_line(line)

    def text(self) -> str:
        return self._all.decode(errors="replace").replace("\r\n", "\n")


def _text(reason: Exception) -> str:
    return str(reason) or type(reason).__name__
