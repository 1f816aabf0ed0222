"""MicroMsg2 bytes to events and back. Never raises on a peer's bytes; every violation is fatal."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Literal

from host_broker.protocols.micromsg2.events import (
    ErrorFrame,
    Event,
    Extension,
    ExtensionFrame,
    Handshake,
    MessageFrame,
    MessageRun,
)
from host_broker.protocols.micromsg2.grammar import (
    GrammarError,
    read_command,
    read_extensions,
    spell_command,
    spell_extensions,
)
from host_broker.wire.budget import Budget
from host_broker.wire.held import FrameReader
from host_broker.wire.lengths import Malformed, Short, need, read_bytes, read_long, read_string
from host_broker.wire.violation import Violation

COMMAND, EXTENSION, ERROR, LARGE, CONTINUED = 1, 2, 4, 8, 16  # R16
MAX_FRAGMENT = 1024 * 1024  # bytes of one message frame's payload that we send (R20, A18)
MAX_SMALL = 255  # bytes; a longer payload needs LARGE
MAX_IDENTITY = 255  # bytes
MAX_LIST = 65535  # bytes of an extension list

_TYPE = COMMAND | EXTENSION | ERROR
_KNOWN = _TYPE | LARGE | CONTINUED
_SHORT = Struct(">H")
_LONG = Struct(">I")
_LAST_NUMBER = 65535  # then comes 1 (R22)
_MESSAGE = Struct(">BHB")  # flags, sequence, length of the destination
_HEAD = Struct(">BH")  # flags, sequence
_SIZES = [bytes([size]) for size in range(256)]


class Codec(FrameReader):
    """Reads one connection: the handshake messages of the peer, then its frames.

    ``role`` is whose bytes these are read by: a server reads two handshake messages, a client one.
    ``max_payload``: bytes of a frame; ``bus.max_body``. ``budget``: what a long unfinished frame
    takes its memory from; where nothing is left that is a violation.
    ``extension_flag_4``: once the handshake is over, 4 says EXTENSION, as the document's examples
    print it, and nobody can say ERROR (A1). ``runs``: frames that are alike come as one
    ``MessageRun``. Call ``close`` at the end.
    """

    def __init__(
        self,
        role: Literal["server", "client"],
        max_payload: int = MAX_FRAGMENT,
        budget: Budget | None = None,
        *,
        extension_flag_4: bool = False,
        runs: bool = False,
    ) -> None:
        super().__init__(budget)
        self._handshakes_left = 2 if role == "server" else 1
        self._max_payload = max_payload
        self._extension_flag_4 = extension_flag_4
        self._runs = runs

    def receive_data(self, data: bytes) -> list[Event]:
        """Take one read and return what it completes; a violation or an ERROR is the last event."""
        events: list[Event] = []
        if self._dead:
            return events
        whole = self._unfinished.complete(data)
        if whole is None:
            return self._hold(events)
        position, size = 0, len(whole)
        while position < size:
            if self._runs and whole[position] == 0 and not self._handshakes_left:
                run = self._run(whole, position)
                if run is not None:
                    events.append(run[0])
                    position = run[1]
                    continue
            try:
                event, end = self._take(whole, position)
            except Short as short:
                self._unfinished.keep(whole[position:], short.needed)
                break
            except (Malformed, GrammarError) as error:
                events.append(
                    Violation(error.rule, str(error), self._offset + position, fatal=True)
                )
                self.close()
                return events
            events.append(event)
            position = end
            if type(event) is ErrorFrame:
                self.close()
                return events
        self._offset += position
        return self._hold(events)

    def _run(self, data: bytes, start: int) -> tuple[MessageRun, int] | None:
        """Read frames that are alike; None if there are not two of them at ``start``."""
        size = len(data)
        if start + _MESSAGE.size >= size:
            return None
        _, sequence, length = _MESSAGE.unpack_from(data, start)
        # Where the payload's length is, and what is before it, but for flags and number.
        at = _MESSAGE.size + length + _SHORT.size
        if data[start + at - 2 : start + at] != b"\0\0":
            return None  # it has properties, or is not whole
        alike = data[start + 3 : start + at]
        most = self._max_payload
        payloads: list[bytes] = []
        position, number = start, sequence
        while position + at < size:
            begin = position + at + 1
            end = begin + data[begin - 1]
            if (
                end > size
                or end == begin
                or end - begin > most
                or data[position]
                or data[position + 1] << 8 | data[position + 2] != number
                or data[position + 3 : begin - 1] != alike
            ):
                break
            payloads.append(data[begin:end])
            position = end
            number = number % _LAST_NUMBER + 1
        if len(payloads) < 2:
            return None
        return MessageRun(sequence, alike[1:-2], payloads), position

    def _take(self, data: bytes, start: int) -> tuple[Event, int]:
        """Read what begins at ``start``; returns it and where it ends."""
        flags = data[start]
        if self._handshakes_left:
            if flags in (ERROR, ERROR | LARGE):  # A5
                return self._error(data, start, flags)
            return self._handshake(data, start)
        if not flags & ~(LARGE | CONTINUED):
            return self._message(data, start, flags)
        kind = flags & _TYPE
        if flags & ~_KNOWN or kind not in (COMMAND, EXTENSION, ERROR):
            raise Malformed("R16", f"flags 0x{flags:02x} name no type of frame")
        if flags & CONTINUED:
            raise Malformed("R19", f"flags 0x{flags:02x}: only messages are continued")
        if kind == COMMAND:
            text, end = self._payload(data, start, start + 1, flags)
            return read_command(text), end
        if kind == EXTENSION or self._extension_flag_4:
            return self._extension(data, start, flags)
        return self._error(data, start, flags)

    def _handshake(self, data: bytes, start: int) -> tuple[Event, int]:
        if data[start] == 0:
            # Not read any further: a message frame that came too early would have it wait.
            raise Malformed("R5", "a handshake begins with the major version, which is never 0")
        need(data, start, start + 4)
        major, minor, flags, length = data[start : start + 4]
        identity, end = read_bytes(data, start, start + 4, length)
        if not identity.isascii():
            raise Malformed("R11", f"the identity {identity!r} is not ASCII")
        required, end = read_string(data, start, end)
        optional, end = read_string(data, start, end)
        event = Handshake(
            major,
            minor,
            identity.decode(),
            read_extensions(required),
            read_extensions(optional),
            flags,
        )
        self._handshakes_left -= 1
        return event, end

    def _message(self, data: bytes, start: int, flags: int) -> tuple[Event, int]:
        need(data, start, start + _MESSAGE.size)
        _, sequence, length = _MESSAGE.unpack_from(data, start)
        destination, end = read_bytes(data, start, start + _MESSAGE.size, length)
        properties, end = read_string(data, start, end)
        payload, end = self._payload(data, start, end, flags)
        event = MessageFrame(sequence, destination, properties, payload, flags & CONTINUED != 0)
        return event, end

    def _extension(self, data: bytes, start: int, flags: int) -> tuple[Event, int]:
        need(data, start, start + 2)
        index = data[start + 1]
        if index == 0:
            raise Malformed("R23", "an extension frame has index 0, the first extension is 1")
        payload, end = self._payload(data, start, start + 2, flags)
        return ExtensionFrame(index, payload), end

    def _error(self, data: bytes, start: int, flags: int) -> tuple[Event, int]:
        text, end = self._payload(data, start, start + 1, flags)
        return ErrorFrame(text.decode(errors="replace")), end

    def _payload(self, data: bytes, start: int, position: int, flags: int) -> tuple[bytes, int]:
        """Read a payload with its length, of four bytes if LARGE says so (R18, A19)."""
        if flags & LARGE:
            length = read_long(data, start, position)
            position += 4
        else:
            need(data, start, position + 1)
            length = data[position]
            position += 1
        if length > self._max_payload:
            reason = f"a payload of {length} bytes is longer than bus.max_body, {self._max_payload}"
            raise Malformed("bus.max_body", reason)
        return read_bytes(data, start, position, length)


def spell_handshake(handshake: Handshake) -> bytes:
    """Spell a handshake message; ValueError if something in it is too long or not ASCII."""
    identity = handshake.identity.encode("ascii")
    if len(identity) > MAX_IDENTITY:
        raise ValueError(
            f"an identity is at most {MAX_IDENTITY} bytes, this one has {len(identity)}"
        )
    parts = [bytes([handshake.major, handshake.minor, handshake.flags, len(identity)]), identity]
    for extensions in (handshake.required, handshake.optional):
        parts += _spell_list(extensions)
    return b"".join(parts)


def _spell_list(extensions: Iterable[Extension]) -> tuple[bytes, bytes]:
    text = spell_extensions(extensions)
    if len(text) > MAX_LIST:
        raise ValueError(f"a list of extensions is at most {MAX_LIST} bytes, this is {len(text)}")
    return _SHORT.pack(len(text)), text


def fragments(payload: bytes) -> Iterator[tuple[bytes, bool]]:
    """Cut a payload into those of its frames (R20); whether each is continued (R19)."""
    size = len(payload)
    if size <= MAX_FRAGMENT:
        yield payload, False
        return
    for position in range(0, size, MAX_FRAGMENT):
        end = position + MAX_FRAGMENT
        yield payload[position:end], end < size


def spell_message(
    sequence: int, destination: bytes, properties: bytes, payload: bytes, continued: bool = False
) -> bytes:
    """Spell one message frame.

    ValueError if the destination is above 255 bytes, or the properties are above 65535.
    """
    if len(destination) > 255 or len(properties) > 65535:
        raise ValueError(
            f"a destination of {len(destination)} bytes and properties of {len(properties)}; "
            "at most 255 and 65535 are allowed"
        )
    flags, length = _length(payload)
    if continued:
        flags |= CONTINUED
    return b"".join(
        (
            _MESSAGE.pack(flags, sequence, len(destination)),
            destination,
            _SHORT.pack(len(properties)),
            properties,
            length,
            payload,
        )
    )


def spell_messages(sequence: int, destination: bytes, payloads: Sequence[bytes]) -> bytes:
    """Spell message frames without properties, numbered one by one from ``sequence``.

    ValueError as of ``spell_message``, and for a payload that needs fragments.
    """
    if len(destination) > 255 or any(len(payload) > MAX_FRAGMENT for payload in payloads):
        raise ValueError("a destination of more than 255 bytes, or a payload of more than 1 MiB")
    alike = bytes([len(destination)]) + destination + b"\0\0"
    parts: list[bytes] = []
    head = _HEAD.pack
    for payload in payloads:
        size = len(payload)
        if size > MAX_SMALL:
            parts += (head(LARGE, sequence), alike, _LONG.pack(size), payload)
        else:
            parts += (head(0, sequence), alike, _SIZES[size], payload)
        sequence = sequence % _LAST_NUMBER + 1
    return b"".join(parts)


def spell_command_frame(name: str, arguments: Iterable[tuple[str, bytes]] = ()) -> bytes:
    """Spell a command frame; name and keys are FIELDs."""
    text = spell_command(name, arguments)
    flags, length = _length(text)
    return bytes([COMMAND | flags]) + length + text


def spell_extension(index: int, payload: bytes) -> bytes:
    """Spell a frame for the extension of this index, 1 to 255."""
    flags, length = _length(payload)
    return bytes([EXTENSION | flags, index]) + length + payload


def spell_error(reason: str) -> bytes:
    """Spell an ERROR frame; a longer reason ends after 255 bytes, as some read no more (A4)."""
    text = reason.encode("utf-8", "replace")[:MAX_SMALL].decode(errors="ignore").encode()
    return bytes([ERROR, len(text)]) + text


def _length(payload: bytes) -> tuple[int, bytes]:
    """Return the flags and the length field of a payload: LARGE iff it is above 255 bytes."""
    size = len(payload)
    return (LARGE, _LONG.pack(size)) if size > MAX_SMALL else (0, bytes([size]))
