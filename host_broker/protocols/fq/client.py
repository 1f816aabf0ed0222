"""fq's client side: a queue with its bindings, and messages both ways, by two connections.

Topics are ``EXCHANGE/ROUTE``, as on the bus (``topics``). A pattern is

- ``EXCHANGE/ROUTE``: that route; ``EXCHANGE/BEGINNING*``: all routes that begin so;
- ``EXCHANGE/prefix:…`` or ``EXCHANGE/exact:…``: a program of fq, with its rule.

The filter of a subscription is a rule (``payload_prefix("x")``); of several, with a semicolon
between them, all must pass. A binding belongs to the queue: who ends a subscription to a public
queue ends it for all its clients; who only closes the connection does not.

The command connection comes first. The key that answers its login opens the data connection, of
whose messages the broker acknowledges none; but the status of a client tells how many have been
read. So that is what ``sync`` asks, until all have.

Why so long: it is one state machine.
"""

import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from ipaddress import IPv4Address
from struct import Struct

from host_broker.client_errors import (
    BadArgument,
    ClientError,
    ConnectionLost,
    Refused,
    callers_mistakes,
)
from host_broker.client_session import (
    Ability,
    Active,
    Channel,
    ClientSession,
    Closed,
    Done,
    Event,
    Failed,
    Message,
    Messages,
    Opens,
    PropertyValue,
    Publication,
    Ready,
    Setup,
    Subscription,
)
from host_broker.protocols.fq.codec import (
    HOP_BYTES,
    PERMANENT,
    REFUSED,
    TRANSIENT,
    Codec,
    read_origin,
    spell_bind,
    spell_greeting,
    spell_head,
    spell_heartbeat,
    spell_heartbeat_request,
    spell_login,
    spell_status_request,
    spell_unbind,
)
from host_broker.protocols.fq.events import (
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    LoginAccepted,
    MessageRun,
    Status,
    UnbindAnswer,
)
from host_broker.protocols.fq.programs import (
    ALWAYS,
    Operation,
    Parsed,
    ProgramError,
    Rule,
    parse,
    spell,
)
from host_broker.protocols.fq.remembered import Remembered
from host_broker.protocols.fq.topics import Topics
from host_broker.wire.violation import Violation

SENDER, HOPS, ID = "fq.sender", "fq.hops", "fq.id"  # properties of messages that come
HEARTBEAT_S = 2.0
MISSED = 3  # intervals without a word, after which the broker is taken for dead

_LARGEST_PAYLOAD = 256 * 1024 * 1024  # bytes: as much as fqd takes
_LARGEST_HEARTBEAT_S = 65.535  # as many milliseconds fill its 16 bits
_FIRST_LOOK_S = 0.001  # between one status and the next, while something is awaited
_LONGEST_LOOK_S = 0.05
_MAX_NAMES = 8192  # topics whose text is remembered
_TURN = 1 << 32  # counters of a status begin again there
_USER = "motemq"  # of an address that names none, where nothing else says who it is
_TYPES = ("mem", "disk")
_WORDS = ("private", "public", "drop", "block", "permanent", "transient")
_BACKLOG = re.compile("backlog=-?[0-9]{1,10}")
_LIVES = {"": 0, "permanent": PERMANENT, "transient": TRANSIENT}
_PROGRAM = ("prefix:", "exact:")
_BETWEEN = re.compile(r';(?=(?:[^"]|"(?:[^"\\]|\\.)*")*\Z)', re.DOTALL)  # not within quotes
_SEMICOLON = "%3B"  # of a filter, as the command line says it
_NUMBER = Struct(">Q")
_LENGTH = Struct(">I")


class _State(Enum):
    WAIT_KEY = auto()
    WAIT_DATA = auto()  # until the broker has the data connection, and has bound
    READY = auto()
    CLOSED = auto()


@dataclass(slots=True)
class _Binding:
    """One binding of the queue. ``route`` is None until it is answered. ``waiting``: subscriptions
    that are to be told; ``numbers``: all whose it is. Of one without any, the end is due."""

    exchange: bytes
    program: bytes
    route: int | None = None
    numbers: set[int] = field(default_factory=set)
    waiting: list[int] = field(default_factory=list)
    of_address: bool = False


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a pattern means."""

    exchange: bytes
    program: Parsed


class _DataConnection(Channel):
    """Messages both ways; the broker says nothing else there."""

    heard = True  # it need not say anything: the other connection has shown who it is

    def __init__(self, where: str, key: bytes) -> None:
        super().__init__(where)
        self._key = key
        self._codec = Codec("data", _LARGEST_PAYLOAD)
        self._topics = Topics()
        self._names = Remembered(self._named, _MAX_NAMES)
        self._origins = Remembered(self._origin, _MAX_NAMES)

    def begin(self, now: float) -> Sequence[Event]:
        self._out.insert(0, spell_greeting(DataGreeting(self._key)))
        return ()

    def send(self, message: bytes) -> None:
        """Have a message be sent."""
        self._out.append(message)

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        messages: list[Message] = []
        received_ns = int(now * 1e9)
        for event in self._codec.receive_data(data):
            if type(event) is MessageRun:
                messages += self._messages(event, received_ns)
            elif isinstance(event, Violation):
                broken = self.broken(f"the broker broke fq ({event.rule}: {event.reason})")
                return [Messages(messages), broken] if messages else [broken]
        return [Messages(messages)] if messages else []

    def _messages(self, run: MessageRun, received_ns: int) -> list[Message]:
        names, origins = self._names, self._origins
        return [
            Message(names[head], payload, received_ns, properties={**origins[origin], ID: identity})
            for head, origin, identity, payload in zip(
                run.heads, run.origins, run.ids, run.payloads, strict=True
            )
        ]

    def _named(self, head: bytes) -> str:
        return self._topics.by_head[head].topic.decode()

    def _origin(self, origin: bytes) -> dict[str, PropertyValue]:
        sender, hops = read_origin(origin)
        return {SENDER: _text(sender), HOPS: _hops(hops)}


class FqClientSession(ClientSession):
    """One client of an fq broker, with the queue that its address names.

    ``fq://USER@HOST/QUEUE/TYPE:PARAMETERS``; without a queue the broker makes one of its own for
    this client. Options of the address: ``exchange``, the only one that is published and subscribed
    to; ``program``, bound at once; ``bind``, ``permanent`` or ``transient``, how bindings are made;
    ``heartbeat``, seconds between heartbeats, each way, 0: none; ``token_file``, the password.
    """

    can = frozenset({Ability.FILTER, Ability.WILDCARD})
    handshake = "did not accept both connections"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.options
        self._exchange = options.get("exchange", "")
        self._program = options.get("program", "")
        if self._program and not self._exchange:
            raise BadArgument(f"{setup.where}: a program needs an exchange=NAME")
        if self._program and not self._program.startswith(_PROGRAM):
            raise BadArgument(
                f"{setup.where}: '{self._program}' is no program of fq; write e.g. prefix:a. or "
                'exact:"a.b"'
            )
        self._flags = self._read_flags()
        self._interval_s = self._read_heartbeat()
        password = options.get("token_file", "").strip()
        user = setup.user or ("" if setup.proves else _USER)
        with callers_mistakes():
            self._login = spell_login(_bytes(user), self._queue(), _bytes(password))
        self._state = _State.WAIT_KEY
        self._codec = Codec("command", _LARGEST_PAYLOAD)
        self._data: _DataConnection | None = None
        self._topics = Topics()
        self._heads: dict[str, bytes] = {}
        self._routes: dict[str, bytes] = {}
        self._patterns: dict[str, _Wanted] = {}
        self._bindings: dict[tuple[bytes, bytes], _Binding] = {}
        # Answers come in the order of the questions (R12).
        self._asked: deque[_Binding | Callable[[Status, float], Sequence[Event]] | None] = deque()
        self._syncs: dict[int, int] = {}  # operation: how many messages the broker is to have read
        self._published = 0
        self._number = int.from_bytes(setup.random_bytes(8), "big")
        self._tail = setup.random_bytes(8)
        self._looks = False  # a status is awaited, or due
        self._look_at: float | None = None
        self._pause_s = _FIRST_LOOK_S
        self._beat_at: float | None = None
        self._heard_at = 0.0
        if self._program:
            self._wanted(self._address_pattern())  # a program that is none is said at once

    # ---- the connection ----

    def begin(self, now: float) -> Sequence[Event]:
        self._out += [spell_greeting(CommandGreeting()), self._login]
        return ()

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        self.heard = True
        self._heard_at = now
        events: list[Event] = []
        for event in self._codec.receive_data(data):
            if self._state is _State.CLOSED:
                break
            events += self._taken(event, now)
        self._set_deadline()
        return events

    def receive_end(self, error: ConnectionLost) -> ClientError:
        self._state = _State.CLOSED
        self.next_deadline = None
        return error

    def tick(self, now: float) -> Sequence[Event]:
        if self._state is _State.CLOSED:
            return ()
        if self._look_at is not None and now >= self._look_at:
            self._look_at = None
            self._ask_status()
        if self._beat_at is not None and now >= self._beat_at:
            if now - self._beat_at > self._interval_s:
                # We could not read meanwhile; what the broker said may be waiting.
                self._heard_at = now
            if now - self._heard_at > MISSED * self._interval_s:
                return [
                    self._ends(
                        ConnectionLost(
                            f"{self.setup.where} sent no heartbeat for {now - self._heard_at:.1f} s"
                        )
                    )
                ]
            self._out.append(spell_heartbeat())
            self._beat_at = now + self._interval_s
        self._set_deadline()
        return ()

    # ---- commands ----

    def publish(self, publication: Publication, now: float) -> None:
        self.require({Ability.RETAIN: publication.retain, Ability.WILL: publication.will})
        if publication.properties:
            raise self.not_supported(Ability.PROPERTIES)
        head = self._heads.get(publication.topic) or self._head(publication.topic)
        payload = publication.payload
        if len(payload) > _LARGEST_PAYLOAD:
            raise BadArgument(f"a message of fq has at most {_LARGEST_PAYLOAD} bytes")
        self._number += 1
        self._published += 1
        identity = _NUMBER.pack(self._number & 0xFFFFFFFFFFFFFFFF) + self._tail
        if self._data is not None:
            self._data.send(b"".join((head, identity, _LENGTH.pack(len(payload)), payload)))

    def sync(self, operation: int, now: float) -> str:
        self._syncs[operation] = self._published
        self._look(now)
        return "did not read all messages"

    def ping(self, operation: int, now: float) -> str:
        self._asked.append(lambda status, came: [Done(operation, came - now)])
        self._out.append(spell_status_request())
        return "did not answer a request for the status"

    def forget(self, operation: int) -> None:
        self._syncs.pop(operation, None)

    def subscribe(self, subscription: Subscription, now: float) -> Sequence[Event]:
        self.require(
            {
                Ability.FEEDBACK: subscription.feedback,
                Ability.UNCOUNTED: subscription.uncounted and bool(subscription.feedback),
            }
        )
        bindings = [self._binding(each) for each in self._programs(subscription)]
        number = subscription.number
        unknown = False
        for binding in bindings:
            is_new = not binding.numbers and binding.route is None and not binding.waiting
            binding.numbers.add(number)
            if binding.route is None:
                unknown = True
                binding.waiting.append(number)
                if is_new and not binding.of_address:
                    self._bind(binding)
        return [Active(number)] if subscription.confirm and not unknown else ()

    def unsubscribe(self, subscription: Subscription, now: float) -> None:
        for key in self._programs(subscription):
            binding = self._bindings.get(key)
            if binding is not None:
                binding.numbers.discard(subscription.number)
                self._unbind_unused(binding)

    def matches(self, pattern: str, topic: str) -> bool:
        """Whether the route is one for which the program may hold; its rule asks for payloads."""
        wanted = self._patterns.get(pattern) or self._wanted(pattern)
        address = self._topics.read(_bytes(topic))
        program = wanted.program
        if address.exchange != wanted.exchange:
            return False
        if program.exact:
            return address.route == program.prefix
        return address.route.startswith(program.prefix)

    def misread(self, pattern: str) -> str:
        exchange, slash, route = pattern.partition("/")
        if not slash:
            return f"'{pattern}' is the exchange {exchange} without a route; all are '{pattern}/*'"
        if not route.startswith(_PROGRAM) and "*" in route[:-1]:
            return f"'*' stands for a route's end only; '{pattern}' has it as a character"
        for odd in ("#", "+"):
            if not route.startswith(_PROGRAM) and odd in re.split(r"[./]", route):
                begins = f"{exchange}/{route.partition(odd)[0]}*"
                return f"'{odd}' is no wildcard here but a character; '*' ends a route: '{begins}'"
        return ""

    def everything(self, levels: int | None = None) -> tuple[str, ...]:
        """All of the address's exchange, or what its program wants."""
        if not self._exchange:
            raise BadArgument(
                f"{self.setup.where}: no pattern is for all exchanges; add ?exchange=NAME to the "
                "address, or give EXCHANGE/*"
            )
        return (self._address_pattern(),)

    # ---- what comes ----

    def _taken(self, event: object, now: float) -> Sequence[Event]:
        if isinstance(event, Violation):
            return [self._breaks(f"the broker broke fq ({event.rule}: {event.reason})")]
        if isinstance(event, ErrorText):
            return [self._refused(event.text)]
        if isinstance(event, LoginAccepted):
            return self._accepted(event, now)
        if not isinstance(event, BindAnswer | UnbindAnswer | Status):
            return ()  # a heartbeat
        if not self._asked:
            return [self._breaks("the broker answered what was not asked")]
        asked = self._asked.popleft()
        if isinstance(event, BindAnswer) and isinstance(asked, _Binding):
            return self._bound(asked, event.route, now)
        if isinstance(event, UnbindAnswer) and asked is None:
            return ()
        if isinstance(event, Status) and callable(asked):
            return asked(event, now)
        return [self._breaks("the broker answered in another order than it was asked")]

    def _accepted(self, event: LoginAccepted, now: float) -> Sequence[Event]:
        if self._state is not _State.WAIT_KEY:
            return [self._breaks("the broker accepted the login twice")]
        self._state = _State.WAIT_DATA
        self._data = _DataConnection(self.setup.where, event.key)
        if self._interval_s:
            self._out.append(spell_heartbeat_request(round(self._interval_s * 1000)))
            self._beat_at = now + self._interval_s
        if self._program:
            wanted = self._wanted(self._address_pattern())
            binding = self._binding((wanted.exchange, spell(wanted.program)))
            binding.of_address = True
            self._bind(binding)
        self._look(now)
        return [Opens(self._data)]

    def _bound(self, binding: _Binding, route: int, now: float) -> Sequence[Event]:
        waiting, binding.waiting = binding.waiting, []
        if route == REFUSED:
            self._bindings.pop((binding.exchange, binding.program), None)
            error = Refused(
                f"{self.setup.where} refused the binding of {_text(binding.program)!r} to the "
                f"exchange {_text(binding.exchange)!r}",
                of_name=False,
            )
            if binding.of_address:
                return [self._ends(error)]
            return [Failed(number, error) for number in waiting]
        binding.route = route
        self._unbind_unused(binding)
        return [
            Active(number)
            for number in waiting
            if all(
                other.route is not None or number not in other.numbers
                for other in self._bindings.values()
            )
        ]

    def _heard_status(self, status: Status, now: float) -> Sequence[Event]:
        counters = dict(status.counters)
        read = counters.get(b"msgs_in")
        if read is not None:
            read += counters.get(b"size_dropped", 0)  # those have been read, too
        events: list[Event] = []
        if self._state is _State.WAIT_DATA:
            bound = all(each.route is not None for each in self._bindings.values())
            if read is not None and bound:
                self._state = _State.READY
                events.append(Ready())
        if read is not None:
            for operation, wanted in list(self._syncs.items()):
                # Counters begin again; nobody has half of all numbers under way.
                if (read - wanted) % _TURN < _TURN // 2:
                    del self._syncs[operation]
                    events.append(Done(operation))
        if self._state is _State.WAIT_DATA or self._syncs:
            self._look_at = now + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LONGEST_LOOK_S)
        else:
            self._looks = False
        return events

    def _refused(self, text: bytes) -> Closed:
        reason = f"{self.setup.where} refused: {_text(text).strip()}"
        if self._state is _State.READY:
            return self._ends(ConnectionLost(reason))
        return self._ends(Refused(reason))

    def _breaks(self, reason: str) -> Closed:
        self._state = _State.CLOSED
        self.next_deadline = None
        return self.broken(reason)

    def _ends(self, error: ClientError) -> Closed:
        self._state = _State.CLOSED
        self.next_deadline = None
        return Closed(error)

    # ---- what goes ----

    def _bind(self, binding: _Binding) -> None:
        self._asked.append(binding)
        self._out.append(spell_bind(self._flags, binding.exchange, binding.program))

    def _unbind_unused(self, binding: _Binding) -> None:
        """End a binding that nobody wants any more, once its route is known."""
        if binding.numbers or binding.of_address or binding.route is None:
            return
        self._bindings.pop((binding.exchange, binding.program), None)
        self._asked.append(None)
        self._out.append(spell_unbind(binding.route, binding.exchange))

    def _look(self, now: float) -> None:
        """Ask for the status until it says what is awaited."""
        self._pause_s = _FIRST_LOOK_S
        if not self._looks or self._look_at is not None:
            self._looks = True
            self._look_at = None
            self._ask_status()
        self._set_deadline()

    def _ask_status(self) -> None:
        self._asked.append(self._heard_status)
        self._out.append(spell_status_request())

    def _set_deadline(self) -> None:
        if self._state is not _State.CLOSED:
            due = [each for each in (self._look_at, self._beat_at) if each is not None]
            self.next_deadline = min(due, default=None)

    # ---- texts ----

    def _head(self, topic: str) -> bytes:
        """Return how a message begins; it is remembered, as programs have few topics."""
        address = self._topics.read(_bytes(topic))
        self._require_exchange(address.exchange, topic)
        with callers_mistakes():
            head = spell_head(address.exchange, address.route)
        if len(self._heads) >= _MAX_NAMES:
            self._heads.clear()
        self._heads[topic] = head
        return head

    def _require_exchange(self, exchange: bytes, topic: str) -> None:
        if not exchange:
            raise BadArgument(f"'{topic}' names no exchange; a topic of fq is EXCHANGE/ROUTE")
        only = self._exchange
        if only and exchange != _bytes(only):
            raise BadArgument(
                f"'{topic}' is of the exchange {_text(exchange)!r}, and the address is for "
                f"{only!r} only; write {only}/ROUTE"
            )

    def _address_pattern(self) -> str:
        level = self._topics.of(_bytes(self._exchange), b"").topic.decode()
        return f"{level}/{self._program or 'prefix:'}"

    def _wanted(self, pattern: str) -> _Wanted:
        level, _, said = pattern.partition("/")
        exchange = self._topics.read(_bytes(level)).exchange
        self._require_exchange(exchange, pattern)
        if said.startswith(_PROGRAM):
            try:
                program = parse(_bytes(said))
            except ProgramError as error:
                raise BadArgument(f"'{said}' is no program of fq: {error}") from error
        elif said.endswith("*"):
            program = Parsed(self._route(said[:-1]))
        else:
            program = Parsed(self._route(said), exact=True)
        with callers_mistakes():
            spell_bind(0, exchange, spell(program))
        if len(self._patterns) >= _MAX_NAMES:
            self._patterns.clear()
        wanted = self._patterns[pattern] = _Wanted(exchange, program)
        return wanted

    def _route(self, said: str) -> bytes:
        """Return the route that a topic of an exchange stands for."""
        return self._topics.read(b"x/" + _bytes(said)).route if said else b""

    def _programs(self, subscription: Subscription) -> list[tuple[bytes, bytes]]:
        """Return exchange and program of each binding that a subscription needs."""
        rules = [_rule(text) for text in _BETWEEN.split(subscription.filter) if text.strip()]
        found = []
        for pattern in subscription.patterns:
            wanted = self._patterns.get(pattern) or self._wanted(pattern)
            rule = wanted.program.rule
            for each in rules:
                rule = each if rule == ALWAYS else Operation("&&", rule, each)
            program = Parsed(wanted.program.prefix, wanted.program.exact, rule)
            found.append((wanted.exchange, spell(program)))
        return found

    def _binding(self, key: tuple[bytes, bytes]) -> _Binding:
        binding = self._bindings.get(key)
        if binding is None:
            binding = self._bindings[key] = _Binding(*key)
        return binding

    def _queue(self) -> bytes:
        """Return the queue of the address as a login says it (R10)."""
        name, slash, how = self.setup.words.partition("/")
        if not slash:
            return _bytes(name)
        kind, _, parameters = how.partition(":")
        if kind not in _TYPES:
            raise BadArgument(
                f"{self.setup.where}: a queue is {' or '.join(_TYPES)}, not '{kind}'; write e.g. "
                f"{name or 'QUEUE'}/mem:private,drop"
            )
        for each in parameters.split(",") if parameters else ():
            if each not in _WORDS and not _BACKLOG.fullmatch(each):
                raise BadArgument(
                    f"{self.setup.where}: '{each}' says nothing of a queue; there are "
                    f"{', '.join(_WORDS)} and backlog=NUMBER"
                )
        return _bytes(name) + b"\0" + _bytes(how)

    def _read_flags(self) -> int:
        said = self.setup.options.get("bind", "")
        if said not in _LIVES:
            raise BadArgument(
                f"{self.setup.where}: bindings are permanent or transient, not '{said}'"
            )
        return _LIVES[said]

    def _read_heartbeat(self) -> float:
        said = self.setup.options.get("heartbeat", str(HEARTBEAT_S))
        try:
            seconds = float(said)
        except ValueError:
            seconds = -1.0
        if seconds != 0 and not 0.05 <= seconds <= _LARGEST_HEARTBEAT_S:
            raise BadArgument(
                f"{self.setup.where}: the heartbeat is 0, or 0.05 to {_LARGEST_HEARTBEAT_S}, in "
                f"seconds, not '{said}'"
            )
        return seconds


def _rule(text: str) -> Rule:
    """Read one filter: a rule without a program."""
    rule = text.replace(_SEMICOLON, ";").strip()
    try:
        return parse(b"prefix: " + _bytes(rule)).rule
    except ProgramError as error:
        raise BadArgument(f"'{rule}' is no rule of fq: {error}") from error


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _hops(raw: bytes) -> str:
    """Return the brokers that a message passed, the latest first, and the client's address."""
    each = range(0, len(raw), HOP_BYTES)
    return " ".join(str(IPv4Address(raw[begin : begin + HOP_BYTES])) for begin in each)
