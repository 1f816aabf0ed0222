"""fq bytes to events and back. Never raises on a peer's bytes; every violation is fatal.

The first four bytes of a connection say what it is. ``Codec`` reads either kind, in either
direction; what is sent is spelled by the functions below it.
"""

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Literal

from host_broker.protocols.fq.events import (
    Bind,
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Event,
    Heartbeat,
    HeartbeatRequest,
    Login,
    LoginAccepted,
    MessageRun,
    Status,
    StatusRequest,
    Taken,
    TooLong,
    Unbind,
    UnbindAnswer,
)
from host_broker.wire.budget import Budget
from host_broker.wire.held import FrameReader
from host_broker.wire.lengths import (
    Malformed,
    Short,
    need,
    read_bytes,
    read_long,
    read_short,
    read_string,
)
from host_broker.wire.violation import Violation

COMMAND_MAGIC = b"\xcc\x50\xca\xfe"  # R2
DATA_MAGIC = b"\xcc\x50\xfa\xce"
PEER_MAGIC = b"\xcc\x50\xfe\xed"
OLD_PEER_MAGIC = b"\xcc\x50\xfa\xde"  # A2
TAKER_MAGIC = b"\xcc\x50\xfe\xac"  # of a peer that acknowledges: ours alone

AUTH, AUTH_ANSWER = 0xAAAA, 0xAA00
HEARTBEAT, HEARTBEAT_REQUEST = 0xBEA7, 0x4848
BIND, BIND_ANSWER = 0xB170, 0xB171
UNBIND, UNBIND_ANSWER = 0x071B, 0x171B
STATUS_REQUEST, STATUS = 0xC7A7, 0x57A7
ERROR = 0xEEEE
PLAIN = 0  # the only method of AUTH (A1)

PEER_FLAG, TRANSIENT, PERMANENT = 0x0001, 0x0100, 0x0110  # of Bind (A6)
LIFE_FLAGS = 0x0110
REFUSED = 0xFFFFFFFF  # a route id

MAX_NAME = 127  # bytes of an exchange, a route, a sender, a user, a queue, a key (R25, A8, A9)
MAX_HOPS = 32
MAX_QUEUE_FIELD = 1023  # bytes: a queue's name, type and parameters
MAX_PASSWORD = 1024
MAX_TEXT = 65_535
ID_BYTES = 16  # R26
HOP_BYTES = 4
TAKER_BYTES = 8  # of the name of a peer that acknowledges
MAX_COUNTERS = 256  # of a status

_SHORT = Struct(">H")
_LONG = Struct(">I")
_NUMBER = Struct(">Q")
_COMMAND = Struct(">HH")
_MAGIC_BYTES = 4
_HEARTBEAT_BYTES = _SHORT.pack(HEARTBEAT)


class Codec(FrameReader):
    """Reads one connection.

    ``role`` is whose bytes these are read by: a broker's connection begins with a magic, what a
    client reads says nothing of its kind, so that it is named: ``command`` or ``data``.
    ``peer_format``: of messages on a peer's connection (A3). ``max_payload`` and ``max_program``:
    bytes. ``budget``: what a long unfinished frame takes its memory from; where nothing is left
    that is a violation. ``npm_quirk``: 0000 directly behind a request for the status means nothing
    (A17). Call ``close`` at the end.
    """

    def __init__(
        self,
        role: Literal["broker", "command", "data"],
        max_payload: int,
        budget: Budget | None = None,
        *,
        max_program: int = MAX_TEXT,
        peer_format: Literal["peer", "plain"] = "peer",
        npm_quirk: bool = True,
    ) -> None:
        super().__init__(budget)
        self._role = role
        self._max_payload = max_payload
        self._max_program = max_program
        self._peer_format = peer_format
        self._npm_quirk = npm_quirk
        self._skip = 0  # bytes of a payload that is too long
        self._stopped = 0  # where what could not be read begins
        self._with_origin = role == "data"  # messages have a sender and hops
        # What is read next: a magic, a command, messages, what was taken.
        self._reads: Literal["magic", "command", "data", "taken"]
        self._reads = "magic" if role == "broker" else role
        self._expects_login = role == "broker"
        self._after_status = False

    def receive_data(self, data: bytes) -> list[Event]:
        """Take one read and return what it completes; a violation is the last event."""
        events: list[Event] = []
        if self._dead:
            return events
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            self._offset += skipped
            data = data[skipped:]
            if not data:
                return events
        whole = self._unfinished.complete(data)
        if whole is None:
            return self._hold(events)
        position, size = 0, len(whole)
        try:
            while position < size:
                if self._reads == "data":
                    position = self._messages(whole, position, events)
                else:
                    event, position = self._command(whole, position)
                    if event is not None:
                        events.append(event)
                        if type(event) is ErrorText:
                            self.close()
                            return events
        except Short as short:
            position = self._stopped
            self._unfinished.keep(whole[position:], short.needed)
        except Malformed as error:
            position = self._stopped
            events.append(Violation(error.rule, str(error), self._offset + position, fatal=True))
            self.close()
            return events
        self._offset += position
        return self._hold(events)

    # ---- greetings and commands ----

    def _command(self, data: bytes, start: int) -> tuple[Event | None, int]:
        """Read what begins at ``start``; returns it and where it ends."""
        self._stopped = start
        if self._reads == "magic":
            return self._greeting(data, start)
        if self._reads == "taken":
            number, end = read_bytes(data, start, start, _NUMBER.size)
            return Taken(*_NUMBER.unpack(number)), end
        need(data, start, start + 2)
        (code,) = _SHORT.unpack_from(data, start)
        if self._role == "command":
            return self._from_broker(code, data, start)
        if self._expects_login:
            if code != AUTH:
                raise Malformed("R7", "auth command expected")
            event, end = self._login(data, start)
            self._expects_login = False
            return event, end
        after_status, self._after_status = self._after_status, False
        position = start + 2
        if code == HEARTBEAT:
            return Heartbeat(), position
        if code == STATUS_REQUEST:
            self._after_status = self._npm_quirk
            return StatusRequest(), position
        if code == HEARTBEAT_REQUEST:
            return HeartbeatRequest(read_short(data, start, position)), position + 2
        if code == BIND:
            flags = read_short(data, start, position)
            exchange, position = _name(data, start, position + 2, "exchange")
            program, position = _text(data, start, position, self._max_program, "program")
            return Bind(flags, exchange, program), position
        if code == UNBIND:
            route = read_long(data, start, position)
            exchange, position = _name(data, start, position + 4, "exchange")
            return Unbind(route, exchange), position
        if code == 0 and after_status:
            return None, position
        raise Malformed("R11", f"the command 0x{code:04x} is unknown")

    def _greeting(self, data: bytes, start: int) -> tuple[Event, int]:
        magic = data[start : start + _MAGIC_BYTES]
        position = start + _MAGIC_BYTES
        if magic == COMMAND_MAGIC:
            self._reads = "command"
            return CommandGreeting(), position
        if magic in (DATA_MAGIC, PEER_MAGIC, OLD_PEER_MAGIC, TAKER_MAGIC):
            node = b""
            if magic in (PEER_MAGIC, TAKER_MAGIC):
                node, position = read_bytes(data, start, position, HOP_BYTES)
            key, position = _name(data, start, position, "key")
            if not key:
                raise Malformed("R4", "the key has 0 bytes")
            if magic == TAKER_MAGIC:
                taker, position = read_bytes(data, start, position, TAKER_BYTES)
                taken, position = read_bytes(data, start, position, _NUMBER.size)
                self._reads = "taken"
                return DataGreeting(key, node, True, taker, *_NUMBER.unpack(taken)), position
            self._reads = "data"
            peer = magic != DATA_MAGIC
            self._with_origin = peer and self._peer_format == "peer"
            return DataGreeting(key, node, peer), position
        known = (COMMAND_MAGIC, DATA_MAGIC, PEER_MAGIC, OLD_PEER_MAGIC, TAKER_MAGIC)
        if any(each.startswith(magic) for each in known):
            raise Short(_MAGIC_BYTES)
        raise Malformed("R3", "a connection begins with no magic of fq")

    def _login(self, data: bytes, start: int) -> tuple[Event, int]:
        if read_short(data, start, start + 2) != PLAIN:
            raise Malformed("A1", "unsupported auth method")
        user, position = _text(data, start, start + 4, MAX_NAME, "user name")
        queue, position = _text(data, start, position, MAX_QUEUE_FIELD, "queue name")
        password, position = _text(data, start, position, MAX_PASSWORD, "password")
        return Login(user, queue, password), position

    def _from_broker(self, code: int, data: bytes, start: int) -> tuple[Event, int]:
        position = start + 2
        if code == HEARTBEAT:
            return Heartbeat(), position
        if code == BIND_ANSWER:
            return BindAnswer(read_long(data, start, position)), position + 4
        if code == UNBIND_ANSWER:
            return UnbindAnswer(read_long(data, start, position)), position + 4
        if code == AUTH_ANSWER:
            key, position = _name(data, start, position, "key")
            if not key:
                raise Malformed("R4", "the key has 0 bytes")
            return LoginAccepted(key), position
        if code == ERROR:
            text, position = _text(data, start, position, MAX_TEXT, "error")
            return ErrorText(text), position
        if code == STATUS:
            counters: list[tuple[bytes, int]] = []
            while True:
                key, position = _text(data, start, position, MAX_TEXT, "key")
                if not key:
                    return Status(tuple(counters)), position
                counters.append((key, read_long(data, start, position)))
                position += 4
                if len(counters) > MAX_COUNTERS:
                    raise Malformed("R19", f"a status has more than {MAX_COUNTERS} counters")
        raise Malformed("R11", f"the answer 0x{code:04x} is unknown")

    # ---- messages ----

    def _messages(self, data: bytes, start: int, events: list[Event]) -> int:
        """Read all messages that are whole, and within the limits; returns where they end.

        One loop, whatever their routes, since this is what every message costs. What it does not
        take, ``_message`` looks at in its order.
        """
        size, most = len(data), self._max_payload
        with_origin = self._with_origin
        heads: list[bytes] = []
        origins: list[bytes] = []
        ids: list[bytes] = []
        payloads: list[bytes] = []
        head = origin = b""
        position = start
        unpack = _LONG.unpack_from
        while position < size:
            if not head or not data.startswith(head, position):
                at = position + 1 + data[position]
                if at >= size or data[position] > MAX_NAME or data[at] > MAX_NAME:
                    break
                head = data[position : at + 1 + data[at]]
            id = position + len(head)
            begin = id + ID_BYTES
            if with_origin:
                if not origin or not data.startswith(origin, begin):
                    try:
                        origin = _origin(data, position, begin)
                    except (Short, Malformed):
                        break
                begin += len(origin)
            begin += 4
            if begin > size:
                break
            (length,) = unpack(data, begin - 4)
            end = begin + length
            if end > size or length > most:
                break
            heads.append(head)
            if with_origin:
                origins.append(origin)
            ids.append(data[id : id + ID_BYTES])
            payloads.append(data[begin:end])
            position = end
        if not payloads:
            return self._message(data, start, events)
        events.append(MessageRun(heads, origins, ids, payloads))
        return position

    def _message(self, data: bytes, start: int, events: list[Event]) -> int:
        """Read one message that is not whole, too long, or malformed."""
        self._stopped = start
        at = start + 1 + data[start]
        if data[start] > MAX_NAME:
            raise Malformed("R25", f"an exchange has {data[start]} bytes, at most {MAX_NAME}")
        need(data, start, at + 1)
        if data[at] > MAX_NAME:
            raise Malformed("R25", f"a route has {data[at]} bytes, at most {MAX_NAME}")
        head_end = at + 1 + data[at]
        size_at = head_end + ID_BYTES
        if self._with_origin:
            size_at += len(_origin(data, start, size_at))
        length = read_long(data, start, size_at)
        behind = size_at + _LONG.size + length
        if length <= self._max_payload:
            raise Short(behind - start)
        exchange, route = read_head(data[start:head_end])
        id = data[head_end : head_end + ID_BYTES]
        events.append(TooLong(exchange, route, id, length))
        if behind > len(data):
            self._skip = behind - len(data)
            return len(data)
        return behind


def _origin(data: bytes, start: int, position: int) -> bytes:
    """Return the sender and the hops of a message, with their lengths."""
    need(data, start, position + 1)
    sender_length = data[position]
    if sender_length > MAX_NAME:
        raise Malformed("R25", f"a sender has {sender_length} bytes, at most 127")
    at = position + 1 + sender_length
    need(data, start, at + 1)
    if data[at] > MAX_HOPS:
        raise Malformed("R24", f"a message has {data[at]} hops, at most {MAX_HOPS}")
    origin, _ = read_bytes(data, start, position, 2 + sender_length + HOP_BYTES * data[at])
    return origin


def _text(data: bytes, start: int, position: int, most: int, what: str) -> tuple[bytes, int]:
    """Read bytes with their length before them; what is too long is not waited for."""
    if read_short(data, start, position) > most:
        raise Malformed("R7", f"{what} is too long")
    return read_string(data, start, position)


def _name(data: bytes, start: int, position: int, what: str) -> tuple[bytes, int]:
    length = read_short(data, start, position)
    if length > MAX_NAME:
        raise Malformed("R25", f"{what} has {length} bytes, at most {MAX_NAME}")
    return read_string(data, start, position)


# ---- what is sent ----


def _spell_text(text: bytes, most: int, what: str) -> bytes:
    if len(text) > most:
        raise ValueError(f"{what} has {len(text)} bytes, at most {most} are allowed")
    return _SHORT.pack(len(text)) + text


def spell_greeting(event: CommandGreeting | DataGreeting) -> bytes:
    """Spell the first bytes of a connection; ValueError for a key or a node that cannot be."""
    if isinstance(event, CommandGreeting):
        return COMMAND_MAGIC
    if not event.key:
        raise ValueError("a key has 1 to 127 bytes")
    key = _spell_text(event.key, MAX_NAME, "a key")
    if event.taker:
        if len(event.taker) != TAKER_BYTES or len(event.node) != HOP_BYTES:
            raise ValueError(f"a taker of {len(event.taker)}, a node of {len(event.node)} bytes")
        return TAKER_MAGIC + event.node + key + event.taker + _NUMBER.pack(event.taken)
    if not event.peer:
        magic = DATA_MAGIC
    elif not event.node:
        magic = OLD_PEER_MAGIC
    elif len(event.node) == HOP_BYTES:
        magic = PEER_MAGIC + event.node
    else:
        raise ValueError(f"a node has {HOP_BYTES} bytes, not {len(event.node)}")
    return magic + key


def spell_taken(number: int) -> bytes:
    """Spell that all is kept up to the message of this number."""
    return _NUMBER.pack(number)


def spell_login(user: bytes, queue: bytes, password: bytes) -> bytes:
    """Spell a login; ``queue`` as in ``Login``. ValueError for what is too long."""
    return b"".join(
        (
            _COMMAND.pack(AUTH, PLAIN),
            _spell_text(user, MAX_NAME, "a user name"),
            _spell_text(queue, MAX_QUEUE_FIELD, "a queue with type and parameters"),
            _spell_text(password, MAX_PASSWORD, "a password"),
        )
    )


def spell_login_accepted(key: bytes) -> bytes:
    """Spell the answer to a login."""
    return _SHORT.pack(AUTH_ANSWER) + _spell_text(key, MAX_NAME, "a key")


def spell_heartbeat() -> bytes:
    """Spell a heartbeat."""
    return _HEARTBEAT_BYTES


def spell_heartbeat_request(milliseconds: int) -> bytes:
    """Spell a request for heartbeats, 0 to 65535 milliseconds apart."""
    return _COMMAND.pack(HEARTBEAT_REQUEST, milliseconds)


def spell_bind(flags: int, exchange: bytes, program: bytes) -> bytes:
    """Spell a request for a binding; ValueError for what is too long."""
    return b"".join(
        (
            _COMMAND.pack(BIND, flags),
            _spell_text(exchange, MAX_NAME, "an exchange"),
            _spell_text(program, MAX_TEXT, "a program"),
        )
    )


def spell_bind_answer(route: int) -> bytes:
    """Spell the answer to ``Bind``."""
    return _SHORT.pack(BIND_ANSWER) + _LONG.pack(route)


def spell_unbind(route: int, exchange: bytes) -> bytes:
    """Spell a request to end a binding; ValueError if the exchange is too long."""
    return b"".join(
        (_SHORT.pack(UNBIND), _LONG.pack(route), _spell_text(exchange, MAX_NAME, "an exchange"))
    )


def spell_unbind_answer(route: int) -> bytes:
    """Spell the answer to ``Unbind``."""
    return _SHORT.pack(UNBIND_ANSWER) + _LONG.pack(route)


def spell_status_request() -> bytes:
    """Spell a request for the counters."""
    return _SHORT.pack(STATUS_REQUEST)


def spell_status(counters: Iterable[tuple[bytes, int]]) -> bytes:
    """Spell counters, each modulo 2**32."""
    parts = [_SHORT.pack(STATUS)]
    for key, value in counters:
        parts += (_SHORT.pack(len(key)), key, _LONG.pack(value & 0xFFFFFFFF))
    parts.append(b"\0\0")
    return b"".join(parts)


def spell_error(text: str) -> bytes:
    """Spell the broker's last word."""
    raw = text.encode("utf-8", "replace")[:MAX_TEXT]
    return _SHORT.pack(ERROR) + _SHORT.pack(len(raw)) + raw


def read_head(head: bytes) -> tuple[bytes, bytes]:
    """Return the exchange and the route that ``spell_head`` spelled."""
    end = 1 + head[0]
    return head[1:end], head[end + 1 :]


def read_origin(origin: bytes) -> tuple[bytes, bytes]:
    """Return the sender and the hops (4 bytes each) that ``spell_origin`` spelled."""
    end = 1 + origin[0]
    return origin[1:end], origin[end + 1 :]


def spell_head(exchange: bytes, route: bytes) -> bytes:
    """Spell what a message begins with; ValueError for what is too long."""
    if len(exchange) > MAX_NAME or len(route) > MAX_NAME:
        raise ValueError(
            f"an exchange of {len(exchange)} and a route of {len(route)} bytes; "
            f"at most {MAX_NAME} are allowed"
        )
    return b"".join((bytes([len(exchange)]), exchange, bytes([len(route)]), route))


def spell_origin(sender: bytes, hops: bytes) -> bytes:
    """Spell a message's sender and hops, those of the format that peers and clients get.

    ValueError for what is too long, or hops that are not 4 bytes each.
    """
    if len(sender) > MAX_NAME or len(hops) > MAX_HOPS * HOP_BYTES or len(hops) % HOP_BYTES:
        raise ValueError(f"a sender of {len(sender)} and hops of {len(hops)} bytes")
    return b"".join((bytes([len(sender)]), sender, bytes([len(hops) // HOP_BYTES]), hops))


def spell_message(exchange: bytes, route: bytes, id: bytes, payload: bytes) -> bytes:
    """Spell a message as a client sends it (R21); ValueError for what is too long."""
    return spell_run(spell_head(exchange, route), b"", [id], [payload])


def spell_run(head: bytes, origin: bytes, ids: Sequence[bytes], payloads: Sequence[bytes]) -> bytes:
    """Spell messages of one exchange and route (``spell_head``).

    ``origin`` is b"" as a client sends them, ``spell_origin`` as everybody else does (R22).
    ValueError for ids that have not 16 bytes, and payloads of 4 GiB.
    """
    pack = _LONG.pack
    parts: list[bytes] = []
    for id, payload in zip(ids, payloads, strict=True):
        if len(id) != ID_BYTES or len(payload) >= 1 << 32:
            raise ValueError(f"an id of {len(id)} bytes, not {ID_BYTES}, or a payload of 4 GiB")
        parts += (head, id, origin, pack(len(payload)), payload)
    return b"".join(parts)
