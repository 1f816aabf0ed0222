"""LightMQ bytes to events and back. Never raises on a peer's bytes; every violation is fatal."""

from collections.abc import Callable
from struct import Struct
from typing import Literal

from host_broker.protocols.lightmq.dialects import DIALECTS, DialectName
from host_broker.protocols.lightmq.events import (
    Connack,
    Connect,
    Event,
    Ping,
    Pong,
    Send,
    SendResp,
)
from host_broker.wire.budget import Budget
from host_broker.wire.held import FrameReader
from host_broker.wire.lengths import Malformed
from host_broker.wire.violation import Violation

MAX_CLIENT_ID = 255  # bytes
MAX_SEND = 65463  # bytes of data we send (R16); up to 65532 are accepted (A6)
MAX_SENDRESP = 65464  # bytes of data we send (R17); up to 65533 are accepted (A6)

_FRAME = Struct(">BH")
_ID = Struct(">H")
_SEND = Struct(">HB")
_SEND_HEAD = Struct(">BHHB")  # opcode, length, id, flags
_RESPONSE_HEAD = Struct(">BHH")


class Codec(FrameReader):
    """Reads and spells one connection's frames. ``role`` is whose bytes these are read by.

    ``budget``: what a long unfinished frame takes its memory from; where nothing is left that is a
    violation. Call ``close`` at the end.
    """

    def __init__(
        self,
        role: Literal["server", "client"],
        dialect: DialectName = "spec",
        budget: Budget | None = None,
    ) -> None:
        super().__init__(budget)
        numbers = self._numbers = DIALECTS[dialect]
        self._readers: dict[int, Callable[[bytes], Event]] = {
            numbers.ping: _ping,
            numbers.pong: _pong,
            numbers.send: _send,
            numbers.sendresp: _sendresp,
        }
        if role == "server":
            self._readers[numbers.connect] = _connect
        else:
            self._readers[numbers.connack] = self._connack

    def receive_data(self, data: bytes) -> list[Event]:
        """Take one read and return the frames it completes; a violation is the last event ever."""
        whole = None if self._dead else self._unfinished.complete(data)
        if whole is None:
            return [] if self._dead else self._hold([])
        events: list[Event] = []
        position, size, needed = 0, len(whole), 3
        while size - position >= 3:
            opcode, length = _FRAME.unpack_from(whole, position)
            end = position + 3 + length
            reader = self._readers.get(opcode)
            if reader is None:
                events.append(self._unreadable(opcode, position))
                return events
            if end > size:
                needed = end - position
                break
            try:
                events.append(reader(whole[position + 3 : end]))
            except Malformed as error:
                self._dead = True
                at = self._offset + position
                events.append(Violation(error.rule, str(error), at, fatal=True))
                return events
            position = end
        self._offset += position
        if position < size:
            self._unfinished.keep(whole[position:], needed)
        return self._hold(events)

    def _unreadable(self, opcode: int, position: int) -> Violation:
        self._dead = True
        if opcode in (self._numbers.connect, self._numbers.connack):
            name = "CONNECT" if opcode == self._numbers.connect else "CONNACK"
            rule, reason = "R21", f"{name} came from the wrong side"
        else:
            rule, reason = "R4", f"opcode 0x{opcode:02x} is reserved"
        return Violation(rule, reason, self._offset + position, fatal=True)

    def _connack(self, payload: bytes) -> Event:
        if len(payload) != 1:
            raise Malformed("R10", f"CONNACK has {len(payload)} bytes instead of one")
        code = payload[0]
        if code < self._numbers.accepted:
            raise Malformed("R11", f"CONNACK code {code} is forbidden in this dialect")
        return Connack(code, accepted=code == self._numbers.accepted)

    def connect(self, client_id: str) -> bytes:
        """Spell CONNECT; ValueError if the ClientID is empty or above 255 bytes of UTF-8."""
        raw = client_id.encode()
        if not 0 < len(raw) <= MAX_CLIENT_ID:
            raise ValueError(
                f"a ClientID is 1 to {MAX_CLIENT_ID} bytes of UTF-8, this one is {len(raw)}"
            )
        return self._frame(self._numbers.connect, bytes([len(raw)]) + raw)

    def connack(self, code: int) -> bytes:
        """Spell CONNACK with a code as on the wire (``Dialect.accepted``, ``refused``)."""
        return self._frame(self._numbers.connack, bytes([code]))

    def ping(self, id: int) -> bytes:
        """Spell PING."""
        return self._frame(self._numbers.ping, _ID.pack(id))

    def pong(self, id: int) -> bytes:
        """Spell PONG for the PING of the same id."""
        return self._frame(self._numbers.pong, _ID.pack(id))

    def send(self, id: int, data: bytes) -> bytes:
        """Spell SEND, flags 0; ValueError if the data is above 65463 bytes (R16)."""
        if len(data) > MAX_SEND:
            raise ValueError(f"a SEND carries at most {MAX_SEND} bytes, not {len(data)}")
        return _SEND_HEAD.pack(self._numbers.send, len(data) + 3, id, 0) + data

    def sendresp(self, id: int, data: bytes) -> bytes:
        """Spell SENDRESP; ValueError if the data is above 65464 bytes (R17)."""
        if len(data) > MAX_SENDRESP:
            raise ValueError(f"a SENDRESP carries at most {MAX_SENDRESP} bytes, not {len(data)}")
        return _RESPONSE_HEAD.pack(self._numbers.sendresp, len(data) + 2, id) + data

    @staticmethod
    def _frame(opcode: int, payload: bytes) -> bytes:
        return _FRAME.pack(opcode, len(payload)) + payload


def _connect(payload: bytes) -> Event:
    if not payload:
        raise Malformed("R19", "CONNECT has no payload")
    if payload[0] != len(payload) - 1:
        raise Malformed(
            "R19", f"CONNECT says {payload[0]} bytes of ClientID and has {len(payload) - 1}"
        )
    if len(payload) == 1:
        raise Malformed("R19", "the ClientID is empty")
    try:
        return Connect(payload[1:].decode())
    except UnicodeDecodeError as error:
        raise Malformed("R19", "the ClientID is not UTF-8") from error


def _ping(payload: bytes) -> Event:
    if len(payload) != 2:
        raise Malformed("R12", f"PING has {len(payload)} bytes instead of 2")
    return Ping(_ID.unpack(payload)[0])


def _pong(payload: bytes) -> Event:
    if not payload:
        return Pong(None)
    if len(payload) != 2:
        raise Malformed("R13", f"PONG has {len(payload)} bytes instead of 2")
    return Pong(_ID.unpack(payload)[0])


def _send(payload: bytes) -> Event:
    if len(payload) < 3:
        raise Malformed("R14", f"SEND has {len(payload)} bytes, its id and flags need 3")
    id, flags = _SEND.unpack_from(payload)
    return Send(id, flags, payload[3:])


def _sendresp(payload: bytes) -> Event:
    if len(payload) < 2:
        raise Malformed("R17", f"SENDRESP has {len(payload)} bytes, its id needs 2")
    return SendResp(_ID.unpack_from(payload)[0], payload[2:])
