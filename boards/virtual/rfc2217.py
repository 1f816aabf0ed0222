"""A serial port by Telnet (RFC 2217), the port's side: bytes in, bytes and line changes out.

As far as programs need it that reset a chip by DTR and RTS: every setting is acknowledged, speed
and format change nothing, the modem lines are always on.
"""

import struct
from dataclasses import dataclass

_SE, _SB, _WILL, _WONT, _DO, _DONT, _IAC = 240, 250, 251, 252, 253, 254, 255
_BINARY, _SUPPRESS_GO_AHEAD, _COM_PORT = 0, 3, 44
_SUPPORTED = {_BINARY, _SUPPRESS_GO_AHEAD, _COM_PORT}
_REFUSAL = {_WILL: _DONT, _DO: _WONT}
_CONSENT = {_WILL: _DO, _DO: _WILL}

_SIGNATURE, _BAUD, _DATA_SIZE, _PARITY, _STOP_SIZE, _CONTROL = 0, 1, 2, 3, 4, 5
_LINE_STATE_MASK, _MODEM_STATE_MASK, _PURGE = 10, 11, 12
_SERVER = 100  # added to the code of an answer
_MODEM_STATE = 7
_MODEM_ON = 0xB0  # carrier, data set ready, clear to send
_CONTROL_QUERIES = {0: 1, 4: 6, 7: 9, 10: 12}  # and the answers while all is off
_DTR_ON, _DTR_OFF, _RTS_ON, _RTS_OFF = 8, 9, 11, 12
_MAX_SUBNEGOTIATION = 256  # bytes; the longest that means something here is a signature

NAME = b"MoteMQ virtual board"


@dataclass(frozen=True, slots=True)
class LinesSet:
    """The client set these lines; None: it did not mention it. True is asserted."""

    dtr: bool | None = None
    rts: bool | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What some bytes of the client were: for the board, for the client, and line changes."""

    data: bytes
    reply: bytes
    lines: tuple[LinesSet, ...]


def escape(data: bytes) -> bytes:
    """Return what the board said as it goes to the client."""
    return data.replace(b"\xff", b"\xff\xff")


class Rfc2217Port:
    """One client's Telnet connection. Nothing that it may send raises or is kept without bound."""

    def __init__(self) -> None:
        self._command: int | None = None  # WILL, WONT, DO, DONT, whose option comes next
        self._after_iac = False
        self._sub: bytearray | None = None
        self._agreed: set[tuple[int, int]] = set()
        self._dtr = self._rts = False

    def receive(self, received: bytes) -> Heard:
        """Take bytes of the client."""
        data, reply = bytearray(), bytearray()
        lines: list[LinesSet] = []
        for byte in received:
            if self._after_iac:
                self._after_iac = False
                self._take_command(byte, data, reply, lines)
            elif byte == _IAC:
                self._after_iac = True
            elif self._command is not None:
                reply += self._negotiate(self._command, byte)
                self._command = None
            else:
                self._take_byte(byte, data)
        return Heard(bytes(data), bytes(reply), tuple(lines))

    def _take_byte(self, byte: int, data: bytearray) -> None:
        if self._sub is None:
            data.append(byte)
        elif len(self._sub) < _MAX_SUBNEGOTIATION:
            self._sub.append(byte)

    def _take_command(
        self, byte: int, data: bytearray, reply: bytearray, lines: list[LinesSet]
    ) -> None:
        if byte == _IAC:
            self._take_byte(byte, data)
        elif byte in (_WILL, _WONT, _DO, _DONT):
            self._command = byte
        elif byte == _SB:
            self._sub = bytearray()
        elif byte == _SE and self._sub is not None:
            sub, self._sub = bytes(self._sub), None
            if len(sub) >= 2 and sub[0] == _COM_PORT:
                reply += self._serve(sub[1], sub[2:], lines)

    def _negotiate(self, command: int, option: int) -> bytes:
        if command in (_WONT, _DONT):
            self._agreed.discard((_WILL if command == _WONT else _DO, option))
            return b""
        if option not in _SUPPORTED:
            return bytes((_IAC, _REFUSAL[command], option))
        if (command, option) in self._agreed:
            return b""  # RFC 854: what is in force already is not acknowledged
        self._agreed.add((command, option))
        answer = bytes((_IAC, _CONSENT[command], option))
        if option == _COM_PORT and command == _WILL:
            answer += _answer(_MODEM_STATE, bytes((_MODEM_ON,)))
        return answer

    def _serve(self, code: int, value: bytes, lines: list[LinesSet]) -> bytes:
        if code == _SIGNATURE:
            return b"" if value else _answer(code, NAME)
        if code == _BAUD and len(value) == 4:
            return _answer(code, value if any(value) else struct.pack(">I", 115200))
        if code in (_DATA_SIZE, _PARITY, _STOP_SIZE) and len(value) == 1:
            current = {_DATA_SIZE: 8, _PARITY: 1, _STOP_SIZE: 1}[code]
            return _answer(code, value if value[0] else bytes((current,)))
        if code == _CONTROL and len(value) == 1:
            return _answer(code, bytes((self._control(value[0], lines),)))
        if code in (_LINE_STATE_MASK, _MODEM_STATE_MASK, _PURGE):
            return _answer(code, value)
        return b""

    def _control(self, value: int, lines: list[LinesSet]) -> int:
        if value in (_DTR_ON, _DTR_OFF):
            self._dtr = value == _DTR_ON
            lines.append(LinesSet(dtr=self._dtr))
        elif value in (_RTS_ON, _RTS_OFF):
            self._rts = value == _RTS_ON
            lines.append(LinesSet(rts=self._rts))
        elif value == 7:
            return _DTR_ON if self._dtr else _DTR_OFF
        elif value == 10:
            return _RTS_ON if self._rts else _RTS_OFF
        return _CONTROL_QUERIES.get(value, value)


def _answer(code: int, value: bytes) -> bytes:
    return bytes((_IAC, _SB, _COM_PORT, code + _SERVER)) + escape(value) + bytes((_IAC, _SE))
