"""The ways to the chip's UART 0: ``socket://``, a pseudo-terminal, ``rfc2217://``.

They are one wire with three plugs: what the chip says is heard at all of them. Only RFC 2217
carries DTR and RTS, and with them EN and IO0.
"""

import selectors
import socket
from collections.abc import Callable

from boards.virtual.esp32.serial_line import SerialLine, Wire
from boards.virtual.pty_relay import PtyRelay
from boards.virtual.rfc2217 import LinesSet, Rfc2217Port, escape

_BETWEEN_BYTES = 8 * 1024


class SerialPorts:
    """Calls ``on_data`` with what programs send, ``on_lines`` when they change DTR or RTS.

    Its owner runs the selector and calls ``tick`` now and then with the time in seconds.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_data: Callable[[bytes], None],
        on_lines: Callable[[LinesSet], None],
    ) -> None:
        self._on_data = on_data
        self._on_lines = on_lines
        self._tcp = SerialLine(selector, on_data)
        self._telnet = SerialLine(selector, self._telnet_received, self._telnet_client)
        self._session = Rfc2217Port()
        chip, terminal = socket.socketpair()
        # Little lies between the chip and the terminal: a program has to read all of it first.
        chip.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BETWEEN_BYTES)
        self._relay = PtyRelay(selector, terminal)
        self._to_relay = Wire(selector, chip, on_data, lambda: None)

    @property
    def urls(self) -> dict[str, str]:
        """What pyserial opens, by kind of port."""
        return {
            "socket": f"socket://127.0.0.1:{self._tcp.port}",
            "pty": self._relay.path,
            "rfc2217": f"rfc2217://127.0.0.1:{self._telnet.port}",
        }

    @property
    def is_busy(self) -> bool:
        """True while a program has much to read: the chip's UART waits, as at its baud rate."""
        return self._tcp.is_busy or self._telnet.is_busy or self._to_relay.is_busy

    def send(self, data: bytes) -> None:
        """Say something to every program that listens."""
        self._tcp.send(data)
        self._telnet.send(escape(data))
        self._to_relay.send(data)

    def tick(self, now: float) -> None:
        """Notice that nobody reads the terminal, or a connection."""
        # Not what waits for the relay: that knows whether anybody reads its terminal.
        for plug in (self._relay, self._tcp, self._telnet):
            plug.tick(now)

    def close(self) -> None:
        """Pull all plugs: connections end, the terminal hangs up."""
        self._tcp.close()
        self._telnet.close()
        self._to_relay.close()
        self._relay.close()

    def _telnet_client(self, there: bool) -> None:
        self._session = Rfc2217Port()
        if not there:
            self._on_lines(LinesSet(dtr=False, rts=False))  # a closed port releases its lines

    def _telnet_received(self, data: bytes) -> None:
        heard = self._session.receive(data)
        self._telnet.send(heard.reply)
        for lines in heard.lines:
            self._on_lines(lines)
        if heard.data:
            self._on_data(heard.data)
