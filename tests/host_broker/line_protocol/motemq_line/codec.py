"""Lines to events, and what the broker says to lines. Never raises on a peer's bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from host_broker.bus.publication import Properties, property_fault, topic_fault
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

_SMALL = 4 * 1024  # bytes; a shorter unfinished line is what a connection costs anyway
_MAX_DIGITS = 18
_MAX_QUEUE_NAME = 255  # bytes
_MAX_NUMBER = 64  # bytes; what is longer is compared with no number
_OPERATORS = (b"contains", b"=", b"<", b">")


@dataclass(frozen=True, slots=True)
class Condition:
    """A filter of the bus: compares the body, or the property ``name``, with a value."""

    name: str  # "body", or that of a property
    operator: bytes
    value: bytes

    def __call__(self, topic: bytes, properties: Properties, body: bytes) -> bool:
        """Whether the publication is wanted; one that cannot be compared is not."""
        found = body if self.name == "body" else properties.get(self.name)
        if found is None:
            return False
        if self.operator == b"contains":
            return self.value in found
        if self.operator == b"=":
            return self.value == found
        if len(found) > _MAX_NUMBER:
            return False
        try:
            number, limit = float(found), float(self.value)
        except ValueError:
            return False
        return number > limit if self.operator == b">" else number < limit


@dataclass(frozen=True, slots=True)
class Pub:
    """``pub``, ``keep`` or ``will``: a publication, kept for later subscribers, or a last will."""

    verb: bytes
    topic: bytes
    properties: dict[str, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class Sub:
    """``sub TOPIC [where NAME OPERATOR VALUE]``."""

    topic: bytes
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Unsub:
    """``unsub NUMBER``, as the answer to ``sub`` said it."""

    number: int


@dataclass(frozen=True, slots=True)
class Put:
    """``put QUEUE [NAME=VALUE …] : BODY``."""

    queue: bytes
    properties: dict[str, bytes]
    body: bytes


@dataclass(frozen=True, slots=True)
class Take:
    """``take QUEUE CREDIT``: give me messages, at most so many that I have not acknowledged."""

    queue: bytes
    credit: int


@dataclass(frozen=True, slots=True)
class Ack:
    """``ack QUEUE NUMBER``: a message is done with."""

    queue: bytes
    number: int


@dataclass(frozen=True, slots=True)
class Leave:
    """``leave QUEUE``: give me no more; what I did not acknowledge is for others."""

    queue: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """``ping``."""


@dataclass(frozen=True, slots=True)
class Quit:
    """``quit``: the end, without a last will."""


Event = Pub | Sub | Unsub | Put | Take | Ack | Leave | Ping | Quit | Violation


class _Mistake(ValueError):
    """What is wrong with a line, and how to write it."""


class Codec:
    """Reads one connection's lines.

    ``max_line``: a longer line is skipped (bytes). ``max_errors``: so many violations end the
    connection. ``budget``: what a long unfinished line takes its memory from; one that finds none
    left is skipped. Call ``close`` at the end.
    """

    def __init__(self, max_line: int, max_errors: int, budget: Budget | None = None) -> None:
        self._max_line = max_line
        self._errors_left = max_errors
        self._budget = budget
        self._taken = 0  # bytes of the budget
        self._kept = bytearray()  # the beginning of an unfinished line
        self._skipping = False  # the rest of a line
        self._offset = 0  # of the line that is being read, from the connection's start

    def receive_data(self, data: bytes) -> list[Event]:
        """Take one read; returns the lines it completes. Nothing comes after a fatal violation."""
        events: list[Event] = []
        *lines, rest = data.split(b"\n")
        for line in lines:
            if self._kept:
                line = bytes(self._kept) + line
                self._forget()
            if not self._skipping and self._errors_left:
                self._read(line, events)
            self._skipping = False
            self._offset += len(line) + 1
        if self._skipping or not self._errors_left:
            self._offset += len(rest)
            return events
        self._kept += rest
        if len(self._kept) > self._max_line:
            self._wrong(events, "line.max_line", f"a line is longer than {self._max_line} bytes")
        elif not self._hold():
            reason = "all clients together hold as much as bus.max_held_bytes allows"
            self._wrong(events, "bus.max_held_bytes", reason)
        else:
            return events
        self._skipping = True
        self._offset += len(self._kept)
        self._forget()
        return events

    def close(self) -> None:
        """Forget what is unfinished."""
        self._errors_left = 0
        self._forget()

    def _read(self, line: bytes, events: list[Event]) -> None:
        if len(line) > self._max_line:
            self._wrong(events, "line.max_line", f"a line is longer than {self._max_line} bytes")
            return
        verb, _, rest = line.removesuffix(b"\r").partition(b" ")
        if not verb:
            return  # an empty line says nothing
        read = _READ.get(verb)
        if read is None:
            known = b", ".join(_READ).decode()
            self._wrong(events, "syntax", f"no verb {_text(verb)}; there are: {known}")
            return
        try:
            events.append(read(verb, rest))
        except _Mistake as mistake:
            self._wrong(events, "syntax", str(mistake))

    def _wrong(self, events: list[Event], rule: str, reason: str) -> None:
        self._errors_left -= 1
        fatal = not self._errors_left
        events.append(Violation(rule, reason, self._offset, fatal))

    def _hold(self) -> bool:
        """Take the memory of an unfinished line; False if none is left."""
        if self._budget is None or len(self._kept) <= _SMALL:
            return True
        if not self._budget.take(len(self._kept) - self._taken):
            return False
        self._taken = len(self._kept)
        return True

    def _forget(self) -> None:
        self._kept.clear()
        if self._budget is not None:
            self._budget.give(self._taken)
        self._taken = 0


# ---- lines to events ----


def _pub(verb: bytes, rest: bytes) -> Event:
    topic, properties, body = _message(verb, rest)
    return Pub(verb, _topic(topic), properties, body)


def _sub(verb: bytes, rest: bytes) -> Event:
    topic, where, condition = rest.partition(b" where ")
    return Sub(_topic(_word(topic)), _condition(condition) if where else None)


def _unsub(verb: bytes, rest: bytes) -> Event:
    return Unsub(_number(rest))


def _put(verb: bytes, rest: bytes) -> Event:
    queue, properties, body = _message(verb, rest)
    return Put(_queue(queue), properties, body)


def _take(verb: bytes, rest: bytes) -> Event:
    queue, _, credit = rest.partition(b" ")
    return Take(_queue(_word(queue)), _number(credit))


def _ack(verb: bytes, rest: bytes) -> Event:
    queue, _, number = rest.partition(b" ")
    return Ack(_queue(_word(queue)), _number(number))


def _leave(verb: bytes, rest: bytes) -> Event:
    return Leave(_queue(_word(rest)))


def _ping(verb: bytes, rest: bytes) -> Event:
    return Ping()


def _quit(verb: bytes, rest: bytes) -> Event:
    return Quit()


_READ: dict[bytes, Callable[[bytes, bytes], Event]] = {
    b"pub": _pub,
    b"keep": _pub,
    b"will": _pub,
    b"sub": _sub,
    b"unsub": _unsub,
    b"put": _put,
    b"take": _take,
    b"ack": _ack,
    b"leave": _leave,
    b"ping": _ping,
    b"quit": _quit,
}
VERBS = tuple(_READ)


def _message(verb: bytes, rest: bytes) -> tuple[bytes, dict[str, bytes], bytes]:
    """Read ``NAME [NAME=VALUE …] : BODY``; the body is the rest of the line, empty or not."""
    head, colon, body = (rest + b" ").partition(b" : ")
    if not colon:
        raise _Mistake(f"write it as {verb.decode()} NAME [PROPERTY=VALUE ...] : BODY")
    name, *words = head.split(b" ")
    properties: dict[str, bytes] = {}
    for word in words:
        key, equals, value = word.partition(b"=")
        if not equals:
            raise _Mistake(f"the property {_text(word)} must be NAME=VALUE")
        properties[_utf8(unquote_to_bytes(key))] = unquote_to_bytes(value)
    if fault := property_fault(properties):
        raise _Mistake(fault)
    return _word(name), properties, unquote_to_bytes(body[:-1])


def _condition(text: bytes) -> Condition:
    name, _, rest = text.partition(b" ")
    operator, _, value = rest.partition(b" ")
    if operator not in _OPERATORS or not value:
        raise _Mistake("write it as where body|PROPERTY contains|=|<|> VALUE")
    value = unquote_to_bytes(value)
    if operator in (b"<", b">"):
        try:
            float(value[:_MAX_NUMBER])
        except ValueError:
            raise _Mistake(f"{_text(value)} is no number") from None
    return Condition(_utf8(_word(name)), operator, value)


def _topic(topic: bytes) -> bytes:
    if fault := topic_fault(topic):
        raise _Mistake(fault)
    return topic


def _queue(name: bytes) -> bytes:
    if not 0 < len(name) <= _MAX_QUEUE_NAME:
        raise _Mistake(f"a queue's name has 1 to {_MAX_QUEUE_NAME} bytes, not {len(name)}")
    return name


def _word(word: bytes) -> bytes:
    if b" " in word:
        raise _Mistake(f"a space in {_text(word)}: write it as %20")
    return unquote_to_bytes(word)


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _MAX_DIGITS or not int(text):
        raise _Mistake(f"{_text(text)} must be a whole number above 0")
    return int(text)


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _Mistake(f"{_text(raw)} is not UTF-8") from None


def _text(raw: bytes) -> str:
    """Return some of a peer's bytes, printable and on one line."""
    return ascii(raw[:40].decode(errors="replace"))


# ---- what the broker says ----


def spell_message(
    subscriptions: Sequence[int], topic: bytes, properties: Properties, body: bytes
) -> bytes:
    """Spell ``msg NUMBER[,NUMBER …] TOPIC [NAME=VALUE …] : BODY``."""
    ids = b",".join([b"%d" % each for each in subscriptions])
    return b"msg %s %s\n" % (ids, _spelled(topic, properties, body))


def spell_job(
    queue: bytes, number: int, redelivered: bool, properties: Properties, body: bytes
) -> bytes:
    """Spell ``job NUMBER QUEUE [NAME=VALUE …] : BODY``; ``again`` instead of ``job`` if a consumer
    had it before."""
    verb = b"again" if redelivered else b"job"
    return b"%s %d %s\n" % (verb, number, _spelled(queue, properties, body))


def spell_ok(number: int | None = None) -> bytes:
    """Spell ``ok``, with the number of a new subscription."""
    return b"ok\n" if number is None else b"ok %d\n" % number


def spell_error(reason: str) -> bytes:
    """Spell ``err REASON``."""
    return b"err %s\n" % reason.encode()


def _spelled(name: bytes, properties: Properties, body: bytes) -> bytes:
    words = [_quoted(name)]
    words += [_quoted(key.encode()) + b"=" + _quoted(value) for key, value in properties.items()]
    return b" ".join(words) + b" : " + _quoted_line(body)


def _quoted_line(raw: bytes) -> bytes:
    return raw.replace(b"%", b"%25").replace(b"\n", b"%0A").replace(b"\r", b"%0D")


def _quoted(raw: bytes) -> bytes:
    return _quoted_line(raw).replace(b" ", b"%20").replace(b"=", b"%3D").replace(b":", b"%3A")
