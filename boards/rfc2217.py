"""RFC 2217 from the client's side, without I/O: a serial port behind Telnet (RFC 854).

pyserial's client reads in a thread into an unbounded queue, one object per byte, and offers no
descriptor; this one is bytes in, bytes out, so that its owner waits for it like for any socket.
"""

import struct
from collections.abc import Callable

IAC, SB, SE = 255, 250, 240
WILL, WONT, DO, DONT = 251, 252, 253, 254
_BINARY, _ECHO, _GO_AHEAD, COM_PORT = 0, 1, 3, 44
_WE_DO = (_BINARY, _GO_AHEAD, COM_PORT)
_THEY_DO = (_BINARY, _GO_AHEAD, _ECHO, COM_PORT)

SET_BAUD, SET_DATA_BITS, SET_PARITY, SET_STOP_BITS, SET_CONTROL = 1, 2, 3, 4, 5
_SUSPEND, _RESUME = 8, 9
_SERVER = 100  # what the server says has the number of the client's command, plus this
_NO_FLOW_CONTROL, _RTS_CTS, _DTR_ON, _RTS_ON = 1, 3, 8, 11
# SET-CONTROL's numbers for off and on, by pyserial's names.
_LINES = {"break_condition": (6, 5), "dtr": (9, 8), "rts": (12, 11)}

# The longest sub-negotiation that we know is a signature of some ten bytes; a longer one is noise.
_SUB_LIMIT = 256
# All that we ever have to say takes some 100 bytes.
_REPLIES_LIMIT = 4096
_IAC = bytes([IAC])


class TelnetError(Exception):
    """The far end broke the rules of Telnet; the connection is of no use any more."""


class ComPortClient:
    """One connection: ``receive`` takes what came, ``escape`` makes data fit to be sent.

    ``replies`` collects what is to be sent beside the data, in order; its owner empties it.
    ``answers`` maps a command, e.g. ``SET_BAUD``, to the value that the server has confirmed.
    """

    def __init__(self) -> None:
        self.replies = bytearray()
        self.answers: dict[int, int] = {}
        self.suspended = False  # the server asks us to send no data for now
        self.refused = False  # the server knows Telnet, but no serial ports
        self._ours = dict.fromkeys((_BINARY, COM_PORT), "asked")
        self._theirs = dict.fromkeys((_BINARY, _GO_AHEAD), "asked")
        self._state: Callable[[int, bytearray], None] = self._data
        self._verb = 0
        self._sub = bytearray()
        self._configured: tuple[int, bool] | None = None
        for option in self._ours:
            self._say(WILL, option)
        for option in self._theirs:
            self._say(DO, option)

    def configure(self, baud: int, *, rtscts: bool) -> None:
        """Ask for ``baud`` bits/s, 8N1, DTR and RTS on, once the server agrees to RFC 2217."""
        self._configured = (baud, rtscts)
        if self._ours.get(COM_PORT) == "on":
            self._send_settings()

    def set(self, name: str, value: int) -> None:
        """Set ``baudrate`` in bits/s, or ``dtr``, ``rts``, ``break_condition`` to 0 or 1.

        Other names do nothing: the rest of a port is 8N1 for good.
        """
        if name == "baudrate":
            self._set(SET_BAUD, struct.pack(">I", value))
        elif name in _LINES:
            self._set(SET_CONTROL, bytes([_LINES[name][bool(value)]]))

    def receive(self, data: bytes) -> bytes:
        """Return the serial port's bytes in ``data``. Raises ``TelnetError``."""
        out = bytearray()
        position = 0
        while position < len(data):
            if self._state == self._data:
                # Nearly all bytes are data: they are not looked at one by one.
                found = data.find(_IAC, position)
                end = len(data) if found < 0 else found
                out += data[position:end]
                position = end
                if found < 0:
                    break
            self._state(data[position], out)
            position += 1
            if len(self.replies) > _REPLIES_LIMIT:
                raise TelnetError("it asks more than it hears the answers of")
        return bytes(out)

    @staticmethod
    def escape(data: bytes) -> bytes:
        """Return ``data`` as it is sent: 0xFF is doubled."""
        return data.replace(_IAC, _IAC * 2)

    def _data(self, byte: int, out: bytearray) -> None:
        if byte == IAC:
            self._state = self._command
        else:
            out.append(byte)

    def _command(self, byte: int, out: bytearray) -> None:
        self._state = self._data
        if byte == IAC:
            out.append(IAC)
        elif byte == SB:
            self._sub.clear()
            self._state = self._sub_data
        elif byte in (WILL, WONT, DO, DONT):
            self._verb = byte
            self._state = self._option
        # All other commands (NOP, GA, break …) mean nothing to us.

    def _option(self, option: int, _out: bytearray) -> None:
        self._state = self._data
        if self._verb in (DO, DONT):
            before = self._ours.get(option)
            self._agree(self._ours, option, self._verb == DO, option in _WE_DO, WILL, WONT)
            if option == COM_PORT:
                self.refused = self._verb == DONT
                if self._ours.get(option) == "on" != before:
                    self._send_settings()
        else:
            self._agree(self._theirs, option, self._verb == WILL, option in _THEY_DO, DO, DONT)

    def _agree(
        self, states: dict[int, str], option: int, wanted: bool, can: bool, yes: int, no: int
    ) -> None:
        # Only changes are answered, or two polite ends would never stop (RFC 854).
        state = states.get(option, "off")
        if wanted and can:
            if state == "off":
                self._say(yes, option)
            states[option] = "on"
        elif wanted:
            self._say(no, option)
        else:
            if state == "on":
                self._say(no, option)
            states.pop(option, None)  # never one entry for each number that somebody makes up

    def _sub_data(self, byte: int, _out: bytearray) -> None:
        if byte == IAC:
            self._state = self._sub_command
            return
        self._sub.append(byte)
        if len(self._sub) > _SUB_LIMIT:
            raise TelnetError(f"a sub-negotiation of more than {_SUB_LIMIT} bytes")

    def _sub_command(self, byte: int, _out: bytearray) -> None:
        if byte == IAC:
            self._sub.append(IAC)
            self._state = self._sub_data
        elif byte == SE:
            self._state = self._data
            self._sub_negotiated(bytes(self._sub))
        else:
            raise TelnetError(f"0x{byte:02x} after IAC within a sub-negotiation")

    def _sub_negotiated(self, text: bytes) -> None:
        if len(text) < 2 or text[0] != COM_PORT or text[1] < _SERVER:
            return
        command, value = text[1] - _SERVER, text[2:]
        if command == _SUSPEND:
            self.suspended = True
        elif command == _RESUME:
            self.suspended = False
        elif SET_BAUD <= command <= SET_CONTROL:
            self.answers[command] = int.from_bytes(value, "big")

    def _send_settings(self) -> None:
        if self._configured is None:
            return
        baud, rtscts = self._configured
        self._set(SET_BAUD, struct.pack(">I", baud))
        for command, value in (
            (SET_DATA_BITS, 8),
            (SET_PARITY, 1),  # none
            (SET_STOP_BITS, 1),
            (SET_CONTROL, _RTS_CTS if rtscts else _NO_FLOW_CONTROL),
            # DTR before RTS, as pyserial does: the other order resets an ESP32.
            (SET_CONTROL, _DTR_ON),
        ):
            self._set(command, bytes([value]))
        if not rtscts:  # else the line is the hardware's
            self._set(SET_CONTROL, bytes([_RTS_ON]))

    def _set(self, command: int, value: bytes) -> None:
        self.replies += bytes([IAC, SB, COM_PORT, command]) + self.escape(value) + bytes([IAC, SE])

    def _say(self, verb: int, option: int) -> None:
        self.replies += bytes([IAC, verb, option])
