"""Brokers to take messages from (R45 to R47): ours connects to them as a client that is a peer.

A *link* is one login at another broker, for all rows of ``upstream`` that say the same one. It has
two connections, as every client; when one ends, both do, and both are made again after a pause that
doubles. What comes is published here as the other broker's client has published it there, with our
name in front of the others in its hops; what has our name there already has been here (R46).
Hops end circles, but not two ways from one broker to another: what has come by one link and comes
by another one again is left out, too (``Copies``).

With a queue on disk there and a data folder here, what comes is acknowledged when it is kept: with
what it puts into our queues on disk it is remembered up to where we have the other queue, and that
is what we say when we connect again. So nothing is lost with a broker, and nothing comes twice.

``Peering`` decides which links there are, and when to connect; ``PeerCommands`` and
``PeerMessages`` are the two sessions.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from host_broker.bus.commands import (
    Command,
    Complain,
    Dial,
    Discard,
    Disconnect,
    Remember,
    Send,
    Wake,
)
from host_broker.bus.publication import Properties
from host_broker.outputs import ConnectionId
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.fq.codec import (
    HOP_BYTES,
    MAX_HOPS,
    PEER_FLAG,
    PERMANENT,
    REFUSED,
    TAKER_BYTES,
    Codec,
    read_origin,
    spell_bind,
    spell_greeting,
    spell_heartbeat,
    spell_heartbeat_request,
    spell_login,
    spell_status_request,
    spell_taken,
    spell_unbind,
)
from host_broker.protocols.fq.configuration import Upstream
from host_broker.protocols.fq.events import (
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    LoginAccepted,
    MessageRun,
    Status,
    TooLong,
    UnbindAnswer,
)
from host_broker.protocols.fq.pages import read_place
from host_broker.protocols.fq.remembered import Remembered
from host_broker.protocols.fq.session import ACKNOWLEDGES, HOPS, MAX_ORIGINS, SENDER, relayed
from host_broker.protocols.fq.shared import FqShared
from host_broker.wire.violation import Violation

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 10.0
BEAT_S = 1.0
MISSED_BEATS = 3
MAX_COPIES = 65_536  # messages that are remembered
MAX_SAID = 100  # complaints of a link that does not come about
LOGIN_S = 10.0  # from dialing to the answers of login and status

_WELCOME_BYTES = TAKER_BYTES + 8  # a name, a number
_ALL = b"prefix:"  # the program of a row without one
_REMEMBERED = b"fq/upstream/"  # what is remembered of links begins so


@dataclass(frozen=True, slots=True)
class Login:
    """Where and as whom a link connects."""

    host: str
    port: int
    source: bytes
    password: bytes = field(repr=False)
    tls: str | None = None

    def __str__(self) -> str:
        user = self.source.decode(errors="backslashreplace")
        scheme = "" if self.tls is None else "fqs://"
        return f"the upstream {scheme}{self.host}:{self.port} as {user!r}"

    @property
    def remembered(self) -> bytes:
        """The name under which it is remembered up to where we have the queue there."""
        words = repr((self.host, self.port, self.source)).encode()
        return _REMEMBERED + hashlib.sha256(words).hexdigest()[:32].encode()

    def dial(self, tag: "Tag") -> Dial:
        """Return how to connect."""
        return Dial(self.host, self.port, tag, tls=self.tls)


@dataclass(slots=True)
class _Bound:
    """A binding at the other broker. ``route``: None until it is answered."""

    exchange: bytes
    program: bytes
    permanent: bool
    route: int | None = None
    wanted: bool = True


@dataclass(slots=True, eq=False)
class Link:
    """One login. ``due``: when to connect, None while a connection is there or being made."""

    login: Login
    rows: frozenset[Upstream]
    due: float | None = 0.0
    pause_s: float = FIRST_PAUSE_S
    wanted: bool = True
    commands: ConnectionId = 0
    messages: ConnectionId = 0
    said: set[str] = field(default_factory=set)  # what was wrong since it was last there

    def complain(self, text: str) -> list[Command]:
        """Say what is wrong with it: once, as it is tried again and again."""
        if text in self.said or len(self.said) >= MAX_SAID:
            return []
        self.said.add(text)
        return [Complain(text)]


@dataclass(frozen=True, slots=True)
class Tag:
    """What is dialed: a link's first connection, or (``key``) its second one. ``acknowledges``: the
    other broker wants to know what we have kept."""

    link: Link
    key: bytes = b""
    acknowledges: bool = False


# Exchange and route, sender, origin, the sender's half of the id, and the payload's hash.
_Key = tuple[bytes, bytes, bytes, bytes, int]


class Copies:
    """Which messages have come lately, and by which links.

    Nobody promises that ids differ, so what comes several times by one link is several messages.
    Only as often as another link has brought it already, it is a copy. What begins at different
    brokers is never one: programs that count from 1 say the same id and the same words there.
    """

    def __init__(self) -> None:
        self._seen: dict[_Key, dict[Link, int]] = {}

    def without(self, run: MessageRun, link: Link) -> MessageRun:
        """Return a run without what is a copy."""
        said = {each: read_origin(each) for each in run.origins}
        whose = {each: (sender, origin(hops)) for each, (sender, hops) in said.items()}
        new = [
            place
            for place, (head, each, id, payload) in enumerate(
                zip(run.heads, run.origins, run.ids, run.payloads, strict=True)
            )
            # The last 8 bytes of an id are not the sender's: queues on disk write there (R26).
            if self._is_new((head, *whose[each], id[:8], hash(payload)), link)
        ]
        return run if len(new) == len(run.ids) else run.only(new)

    def _is_new(self, key: _Key, link: Link) -> bool:
        came = self._seen.get(key)
        if came is None:
            if len(self._seen) >= MAX_COPIES:
                del self._seen[next(iter(self._seen))]
            self._seen[key] = {link: 1}
            return True
        most = max(came.values())
        count = came[link] = came.get(link, 0) + 1
        return count > most


class Peering:
    """The links of one broker.

    ``home`` is the connection of this process whose session dials, and that is woken when
    something is due: it calls ``tick`` and looks at ``next_deadline``. ``chance`` returns 0 to 1.
    """

    def __init__(self, server: FqShared, chance: Callable[[], float]) -> None:
        self.home: ConnectionId = 0
        self._server = server
        self._chance = chance
        self._links: dict[Login, Link] = {}
        self._copies = Copies()
        self._has_begun = False

    @property
    def server(self) -> FqShared:
        """What all fq connections share."""
        return self._server

    @property
    def links(self) -> Sequence[Link]:
        """All links, connected or not."""
        return tuple(self._links.values())

    @property
    def next_deadline(self) -> float | None:
        """When ``tick`` wants to be called, None = never."""
        due = [link.due for link in self._links.values() if link.due is not None]
        return min(due, default=None)

    def changed(self, upstreams: frozenset[Upstream]) -> list[Command]:
        """Take all rows of upstream: links that no row is for end, new ones are due at once."""
        wanted: dict[Login, set[Upstream]] = {}
        for row in upstreams:
            login = Login(row.host, row.port, row.source, row.password, row.tls)
            wanted.setdefault(login, set()).add(row)
        commands: list[Command] = []
        if not self._has_begun:
            self._has_begun = True
            names = {login.remembered for login in wanted}
            commands += [
                Remember(name, None)
                for name in sorted(self._server.context.remembered)
                if name.startswith(_REMEMBERED) and name not in names
            ]
        for login, link in list(self._links.items()):
            if login not in wanted:
                link.wanted = False
                link.due = None
                del self._links[login]
                if link.commands:
                    reason = "its rows of upstream are gone"
                    commands.append(Disconnect(reason, connection=link.commands))
        for login, rows in wanted.items():
            known = self._links.get(login)
            if known is None:
                self._links[login] = Link(login, frozenset(rows))
            elif known.rows != rows:
                known.rows = frozenset(rows)
                if known.commands:
                    commands.append(Wake(known.commands))
        return commands

    def tick(self, now: float) -> list[Command]:
        """Connect what is due."""
        commands: list[Command] = []
        for link in self._links.values():
            if link.due is not None and link.due <= now:
                link.due = None
                commands.append(link.login.dial(Tag(link)))
        return commands

    def not_reached(self, link: Link, reason: str, now: float) -> list[Command]:
        """A first connection could not be made: later again."""
        self._retry(link, now)
        if not link.wanted:
            return []
        return link.complain(f"fq: {link.login} cannot be reached: {reason}")

    def dialed(self, connection: ConnectionId, tag: Tag, now: float) -> Session:
        """Begin one of the two connections of a link."""
        if tag.key:
            return PeerMessages(self, tag, connection)
        return PeerCommands(self, tag.link, connection, now)

    def new_of(self, run: MessageRun, link: Link) -> MessageRun:
        """Return what of a run has not come by another link."""
        return run if len(self._links) < 2 else self._copies.without(run, link)

    def lost(self, link: Link, now: float) -> list[Command]:
        """The first connection of a link has ended: the second one ends, and both come again."""
        commands: list[Command] = []
        if link.messages:
            reason = "its other connection has ended"
            commands.append(Disconnect(reason, connection=link.messages))
        link.commands = link.messages = 0
        self._retry(link, now)
        return [*commands, Wake(self.home)]

    def _retry(self, link: Link, now: float) -> None:
        if not link.wanted:
            return
        # A random half less, so that many brokers do not all come back at once.
        link.due = now + link.pause_s * (0.5 + self._chance() / 2)
        link.pause_s = min(2 * link.pause_s, LONGEST_PAUSE_S)


class PeerCommands(Session):
    """The first connection of a link: login, bindings, heartbeats."""

    def __init__(self, peering: Peering, link: Link, connection: ConnectionId, now: float) -> None:
        self.client = str(link.login)
        self.deadline: float | None = now + LOGIN_S
        self._peering = peering
        self._link = link
        self._codec = Codec("command", peering.server.max_payload)
        self._is_in = False
        self._key = b""  # of the second connection, as long as it is not dialed
        self._answers_by = now + LOGIN_S
        self._ended = False
        self._next_beat = 0.0
        self._last_heard = now
        self._bound: dict[tuple[bytes, bytes], _Bound] = {}
        self._asked: deque[_Bound | None] = deque()  # answers come in this order (R12)
        link.commands = connection

    def opened(self, now: float) -> Sequence[Command]:
        """Log in."""
        login = self._link.login
        if not self._link.wanted:
            return self._end("its rows of upstream are gone")
        try:
            user, queue = _user_and_queue(login.source)
            words = spell_login(user, queue, login.password)
        except ValueError as error:
            complaints = self._link.complain(f"fq.sqlite: {login}: {error}")
            return [*complaints, *self._end(str(error))]
        return [Send(spell_greeting(CommandGreeting()) + words)]

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        self._last_heard = now
        commands: list[Command] = []
        for event in self._codec.receive_data(data):
            if self._ended:
                break
            commands += self._taken(event, now)
        return commands

    def _taken(self, event: object, now: float) -> Sequence[Command]:
        link = self._link
        if isinstance(event, Violation):
            return self._end(f"{event.rule}: {event.reason}")
        if isinstance(event, ErrorText):
            text = event.text.decode(errors="backslashreplace").strip()
            return [*link.complain(f"fq: {link.login} says: {text}"), *self._end(text)]
        if isinstance(event, LoginAccepted) and not self._is_in:
            self._is_in = True
            self._next_beat = now + BEAT_S
            self.deadline = self._next_beat
            commands: list[Command] = [Send(spell_heartbeat_request(round(BEAT_S * 1000)))]
            if not self._peering.server.context.stores:
                return [*commands, *self._bind(), link.login.dial(Tag(link, event.key))]
            self._key = event.key
            return [*commands, Send(spell_status_request()), *self._bind()]
        if isinstance(event, Status):
            return self._dial_second((ACKNOWLEDGES, 1) in event.counters)
        if isinstance(event, BindAnswer):
            # Answers come in order: an old fqd has no status for who has no second connection.
            return [*self._dial_second(False), *self._answered(event.route)]
        if isinstance(event, UnbindAnswer) and self._asked:
            self._asked.popleft()
        return NOTHING

    def _dial_second(self, acknowledges: bool) -> Sequence[Command]:
        """Have the second connection, if it is not there or being made."""
        key, self._key = self._key, b""
        return [self._link.login.dial(Tag(self._link, key, acknowledges))] if key else NOTHING

    def _answered(self, route: int) -> Sequence[Command]:
        bound = self._asked.popleft() if self._asked else None
        if bound is None:
            return self._end("R12: it answers what it was not asked")
        if route == REFUSED:
            self._bound.pop((bound.exchange, bound.program), None)
            return self._link.complain(
                f"fq: {self._link.login} refuses the program {bound.program!r} of the "
                f"exchange {bound.exchange!r}"
            )
        bound.route = route
        return NOTHING if bound.wanted else self._unbind(bound)

    def _bind(self) -> list[Command]:
        """Bind and unbind, so that it is as the rows say."""
        commands: list[Command] = []
        wanted = {(row.exchange, row.program or _ALL): row for row in self._link.rows}
        for key, bound in list(self._bound.items()):
            if key not in wanted:
                bound.wanted = False
                del self._bound[key]
                if bound.route is not None:
                    commands += self._unbind(bound)
        for (exchange, program), row in sorted(wanted.items(), key=lambda each: each[0]):
            known = self._bound.get((exchange, program))
            if known is not None and known.permanent == row.permanent:
                continue
            flags = PEER_FLAG | (PERMANENT if row.permanent else 0)
            try:
                words = spell_bind(flags, exchange, program)
            except ValueError as error:
                commands += self._link.complain(f"fq.sqlite: {self._link.login}: {error}")
                continue
            bound = _Bound(exchange, program, row.permanent)
            self._bound[exchange, program] = bound
            self._asked.append(bound)
            commands.append(Send(words))
        return commands

    def _unbind(self, bound: _Bound) -> list[Command]:
        self._asked.append(None)
        return [Send(spell_unbind(bound.route or 0, bound.exchange))]

    def not_reached(self, tag: object, reason: str, now: float) -> Sequence[Command]:
        """The second connection could not be made: both are made again later."""
        return self._end(f"its second connection cannot be made: {reason}")

    def tick(self, now: float) -> Sequence[Command]:
        """Beat; end a broker that is silent; do what the rows say now."""
        if self._ended:
            self.deadline = None
            return NOTHING
        if not self._is_in:
            if self.deadline is not None and now >= self.deadline:
                return self._end(f"it did not answer the login within {LOGIN_S:g} s")
            return NOTHING
        if self._key and now >= self._answers_by:
            return self._end(f"it did not answer the status within {LOGIN_S:g} s")
        commands = self._bind()
        if now >= self._next_beat:
            late_s = now - self._next_beat
            if late_s > BEAT_S:
                self._last_heard = now  # we could not read either
            if now - self._last_heard > MISSED_BEATS * BEAT_S:
                return self._end("it sent no heartbeat")
            commands.append(Send(spell_heartbeat()))
            self._next_beat = now + BEAT_S
            if self._link.messages:
                # Only now: there are brokers that let us in, and then end it at once.
                self._link.pause_s = FIRST_PAUSE_S
                self._link.said.clear()
        self.deadline = self._next_beat
        return commands

    def closed(self, now: float) -> Sequence[Command]:
        """End the other connection, too."""
        self._ended = True
        self._codec.close()
        return self._peering.lost(self._link, now)

    def _end(self, reason: str) -> list[Command]:
        self._ended = True
        self.deadline = None
        return [Disconnect(f"{self._link.login}: {reason}")]


class PeerMessages(Session):
    """The second connection of a link, by which messages come."""

    def __init__(self, peering: Peering, tag: Tag, connection: ConnectionId) -> None:
        self._link = link = tag.link
        self.client = str(link.login)
        self._peering = peering
        self._server = server = peering.server
        self._key = tag.key
        self._acknowledges = tag.acknowledges
        self._name = link.login.remembered
        self._taker = bytes(TAKER_BYTES)
        self._welcome = b""  # what the other broker says before messages, as far as it has come
        self._codec = Codec("data", server.max_payload, server.context.held)
        self._relayed = Remembered(self._relay, MAX_ORIGINS)
        link.messages = connection

    def opened(self, now: float) -> Sequence[Command]:
        """Begin as a peer, unless the first connection has ended meanwhile."""
        if not self._link.commands:
            return [Disconnect("its other connection has ended")]
        greeting = DataGreeting(self._key, self._server.node, peer=True)
        if not self._acknowledges:
            return [Send(spell_greeting(greeting))]
        known = self._server.context.remembered.get(self._name, bytes(_WELCOME_BYTES))
        self._taker = known[:TAKER_BYTES]
        taken = int.from_bytes(known[TAKER_BYTES:], "big")
        # What is said here is done with there: it waits until it is kept here.
        greeting = replace(greeting, taker=self._taker, taken=taken)
        return [self._remember(taken), Send(spell_greeting(greeting))]

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read: publish what has not been here, and acknowledge all of it."""
        commands: list[Command] = []
        taken = 0
        if self._acknowledges and len(self._welcome) < _WELCOME_BYTES:
            missing = _WELCOME_BYTES - len(self._welcome)
            self._welcome += data[:missing]
            data = data[missing:]
            if len(self._welcome) < _WELCOME_BYTES:
                return NOTHING
            # If it is not what we have said, this is another queue than the one that we had.
            self._taker = self._welcome[:TAKER_BYTES]
            commands.append(Remember(self._name, self._welcome))
        for event in self._codec.receive_data(data):
            if isinstance(event, MessageRun | TooLong) and self._acknowledges:
                taken = read_place(event.id if isinstance(event, TooLong) else event.ids[-1])
                commands.append(self._remember(taken))
            if type(event) is MessageRun:
                commands += self._published(event)
            elif isinstance(event, TooLong):
                commands.append(Discard("fq.max_payload"))
            elif isinstance(event, Violation):
                commands.append(Disconnect(f"{self._link.login}: {event.rule}: {event.reason}"))
        return [*commands, Send(spell_taken(taken))] if taken else commands

    def _remember(self, taken: int) -> Command:
        """Return how to remember up to where we have the queue, with what comes next."""
        return Remember(self._name, self._taker + taken.to_bytes(8, "big"))

    def _published(self, run: MessageRun) -> Sequence[Command]:
        origins = self._relayed
        places = [at for at, origin in enumerate(run.origins) if origins[origin] is not None]
        if len(places) < len(run.ids):
            run = run.only(places)
        return relayed(self._server, self._peering.new_of(run, self._link), origins, None)

    def _relay(self, origin: bytes) -> Properties | None:
        """Return the properties of what has come with an origin; None: it has been here."""
        sender, said = read_origin(origin)
        hops = relayed_hops(said, self._server.node)
        return None if hops is None else {SENDER: sender, HOPS: hops}

    def closed(self, now: float) -> Sequence[Command]:
        """End the first connection, too."""
        self._codec.close()
        link = self._link
        link.messages = 0
        if not link.commands:
            return NOTHING
        return [Disconnect("its other connection has ended", connection=link.commands)]


def relayed_hops(hops: bytes, node: bytes) -> bytes | None:
    """Return the hops of a message that has come from a peer; None if it has been here before.

    The first one is the peer itself, which may have any name; the oldest of too many falls off.
    """
    if any(hops[at : at + HOP_BYTES] == node for at in range(HOP_BYTES, len(hops), HOP_BYTES)):
        return None
    return (node + hops)[: MAX_HOPS * HOP_BYTES]


def origin(hops: bytes) -> bytes:
    """Return of hops what is the same by whichever way a message comes: the oldest one, its client.

    Of a client on its broker's own machine, whose address says nothing, the broker, too.
    """
    client = hops[-HOP_BYTES:]
    return hops[-2 * HOP_BYTES :] if client[:1] in (b"\x7f", b"\0") else client


def _user_and_queue(source: bytes) -> tuple[bytes, bytes]:
    """Return what a login says of ``user/queue/type:params`` (R10)."""
    user, _, rest = source.partition(b"/")
    name, slash, how = rest.partition(b"/")
    return user, name + b"\0" + how if slash else name
