"""One UMQ connection on the broker's side: who it is, its calls, its topics, its silence."""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from weakref import proxy

from host_broker.access.principal import Principal
from host_broker.access.sessions import LoginSession, LoginSessions, of_this_host
from host_broker.access.web import Origin, bearer, is_foreign, is_misled, is_token
from host_broker.bus.commands import (
    Authenticate,
    Command,
    Discard,
    Disconnect,
    Pace,
    Ponged,
    Reply,
    Unsubscribe,
)
from host_broker.bus.commands import Send as SendBytes
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.outputs import ConnectionId
from host_broker.pages import PageAnswer, PageRequest
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.umq.calls import Calls
from host_broker.protocols.umq.codec import REJECTED
from host_broker.protocols.umq.events import (
    Call,
    ClearAttribute,
    Event,
    Fatal,
    Hello,
    SetAttribute,
)
from host_broker.protocols.umq.events import Unsubscribe as UnsubscribeEvent
from host_broker.protocols.umq.peer import Peer, PeerLimits
from host_broker.protocols.umq.shared import UmqShared
from host_broker.protocols.umq.updates import Topic, Updates, spelled
from host_broker.protocols.umq.websocket import (
    NORMAL,
    PATH,
    TOO_BIG,
    Ended,
    Item,
    Malformed,
    PongFrame,
    TooLong,
    Upgrade,
    WebSocket,
)
from host_broker.wire.violation import Violation

_MOST_PINGS = 100  # of a client in one read; more are discarded packets


class _State(Enum):
    WAIT_REQUEST = auto()
    WAIT_HELLO = auto()
    LOGGING_IN = auto()
    OPEN = auto()
    CLOSED = auto()


class UmqSession(Session):
    """Answers the broker's calls (``Calls``), tells what is published (``Updates``)."""

    def __init__(self, shared: UmqShared, connection: ConnectionId, now: float) -> None:
        settings = shared.settings
        self.client = ""
        self.label = ""
        self.deadline: float | None = now + settings.handshake_timeout_s
        self.connection = connection
        self.shared = shared
        self.peer = Peer("server", _limits(shared), shared.held)
        self.updates = Updates(
            settings.max_waiting_updates,
            settings.max_waiting_bytes,
            shared.held,
            shared.dropped,
        )
        self._socket = WebSocket("server", settings.max_text, shared.max_attachment, shared.held)
        self._calls = Calls(proxy(self))  # or only the collector of garbage would end both
        self._state = _State.WAIT_REQUEST
        self._request: Upgrade | None = None  # until it is known who that is
        self._is_reading = False  # what the client has said is being done
        self._web_session: LoginSession | None = None  # by which it is who it is
        self._silent_until: float | None = self.deadline
        self._pinged = False  # a pong is awaited
        self._is_pacing = False
        self._is_leaving = False  # nothing will drain any more

    # ---- what the broker asks ----

    def received(self, data: bytes, now: float) -> Iterable[Command]:
        """Take one read. Each message is looked at when what the one before it asks for is done."""
        self._socket.feed(data)
        return self._read(now)

    def _read(self, now: float) -> Iterator[Command]:
        """Do what has come, up to the end or to a login that takes its time."""
        self._is_reading = True
        pings = self._socket.pings
        try:
            for item in self._socket.items():
                yield from self._with_sends(self._take(item, now))
                if self._state in (_State.CLOSED, _State.LOGGING_IN):
                    break
        finally:
            self._is_reading = False
        if self._state is _State.OPEN:
            self._pinged = False
            self._allow_silence(now)
        pings = self._socket.pings - pings
        yield from self._done([Discard("umq.ping", pings, pings)] if pings > _MOST_PINGS else [])

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Have publications told as soon as the client has taken what came before."""
        if isinstance(delivery, QueueDelivery) or self._state is not _State.OPEN:
            return NOTHING
        commands = list(self._calls.heard(delivery))
        self.updates.add(delivery, now, self.shared.wall_ms())
        if self._is_leaving:
            commands += self._told(inf)
        elif not self._is_pacing and self.updates.due(now):
            self._is_pacing = True
            commands.append(Pace())
        return self._done(commands)

    def drained(self, now: float) -> Sequence[Command]:
        """Tell more: the client has taken what it was sent."""
        self._is_pacing = False
        if self._state is not _State.OPEN:
            return NOTHING
        commands = list(self._told(now))
        if commands:
            self._is_pacing = True
            commands.append(Pace())
        self._set_deadline()
        return commands

    def tick(self, now: float) -> Sequence[Command]:
        """End a silent client, and calls that take too long; tell what had to wait for its time."""
        if self._web_session is not None and not self._web_sessions.lasts(self._web_session, now):
            return self._done(self._over())
        commands: list[Command] = []
        if self._silent_until is not None and now >= self._silent_until:
            commands += self._too_silent(now)
        commands += self._calls.tick(now)
        if self._state is _State.OPEN and not self._is_pacing and self.updates.due(now):
            self._is_pacing = True
            commands.append(Pace())
        return self._done(commands)

    def ping(self, tag: int, now: float) -> Sequence[Command] | None:
        """Send a ping of the WebSocket."""
        if self._state is not _State.OPEN:
            return None
        self._socket.ping(b"%d" % tag)
        return self._done([])

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """End the topics of which the client may hear no more; calls have answers of their own."""
        commands: list[Command] = []
        if action == "subscribe":
            for subscription in list(self.updates.topics.values()):
                if any(each.topic == topic for each in subscription.parts):
                    commands += self.end_topic(subscription)
        return self._done(commands)

    def closed(self, now: float) -> Sequence[Command]:
        """If the broker stops, say all that still waits, and from now on everything at once: wills
        are yet to come."""
        self.deadline = self._silent_until = None
        self._is_leaving = True
        if self._state is not _State.OPEN or not self.shared.view.is_ending:
            self._close()
            return NOTHING
        return self._told(inf)

    # ---- the WebSocket ----

    def _take(self, item: Item, now: float) -> list[Command]:
        match item:
            case str() | bytes():
                session = self._web_session
                if session is not None and not self._web_sessions.use(session, now):
                    return self._over()
                events = self.peer.receive(item)
                return [command for event in events for command in self._said(event, now)]
            case Upgrade():
                return [*self._upgrade(item)]
            case PongFrame(payload) if payload.isdigit() and len(payload) < 20:
                return [Ponged(int(payload))]
            case Malformed(status, reason, headers):
                self._socket.refuse(status, _mistake(reason), headers)
                return self._end(f"it is no request for a WebSocket: {reason}")
            case TooLong(limit, most):
                reason = f"{limit}: a message is longer than {most} bytes"
                self.peer.end(REJECTED, reason)
                return self._end(reason, TOO_BIG)
            case Ended(code, reason):
                return self._end(f"the client has closed: {code} {reason}")
            case _:
                return []

    def _upgrade(self, request: Upgrade) -> Sequence[Command]:
        """Judge a request as HTTP does, and let it in or not."""
        view = self.shared.view
        peer = view.peer_of(self.connection)
        origin = Origin(
            request.all("origin"),
            request.all("sec-fetch-site"),
            request.host,
            encrypted=peer.encrypted,
            here=peer.loopback,
            unix=peer.uid is not None,
        )
        status, reason = 0, ""
        if is_foreign(origin):
            status, reason = 403, "this is a request of a page of another site"
        elif is_misled(origin, view.http.hosts):
            names = "what other names lead here says http.hosts"
            status, reason = 403, f"ask for 127.0.0.1 or localhost; {names}"
        elif request.target.partition("?")[0] != PATH:
            status, reason = 404, f"there is only {PATH}"
        if status:
            self._socket.refuse(status, _mistake(reason))
            return self._end(f"its request is refused: {reason}")
        wanted = self.shared.settings.subprotocol
        self._request = request
        self._state = _State.WAIT_HELLO
        self._socket.accept(wanted if wanted in request.subprotocols else None)
        return NOTHING

    # ---- UMQ ----

    def _said(self, event: Event | Violation, now: float) -> Sequence[Command]:
        match event:
            case Hello():
                return self._login(event, now)
            case Call():
                return self._calls.call(event, now)
            case UnsubscribeEvent():
                return self.end_topic(self.updates.topics[event.topic])
            case SetAttribute() | ClearAttribute():
                named = self.peer.attributes.get("name")
                self.label = "" if named is None else named.value
                return NOTHING
            case Fatal():
                return self._end(f"the client has said F {event.code} {event.text}"[:200])
            case Violation(fatal=True):
                return self._end(f"{event.rule}: {event.reason}")
            case Violation():
                return [Discard(event.rule)]
            case _:
                return NOTHING

    def end_topic(self, subscription: Topic) -> Sequence[Command]:
        """Say D, and have no more of it; as soon as it is made."""
        if not subscription.is_made:
            subscription.is_unwanted = True
            return []
        self.updates.end(subscription)
        self.peer.close_topic(subscription.id)
        number = subscription.id
        return [Unsubscribe(each.topic, number, each.prefix) for each in subscription.parts]

    def _login(self, hello: Hello, now: float) -> Sequence[Command]:
        """Find out who it is: as the edge knows, by the hello, by the request."""
        credentials = self._credentials(hello, now)
        if isinstance(credentials, str):
            return self._refuse(credentials)
        self._state = _State.LOGGING_IN

        def answer(name: str, why: str, now: float) -> Iterable[Command]:
            if self._state is not _State.LOGGING_IN:
                return NOTHING
            if why:
                return self._refuse("Authorization failed")
            return self._welcome(hello.version, name, now)

        found = credentials
        return [Authenticate(found.user, answer, found.password, found.token, found.known)]

    def _credentials(self, hello: Hello, now: float) -> "_Credentials | str":
        """Return what ``Authenticate`` is to look at, or why nobody is to look."""
        view, request = self.shared.view, self._request
        assert request is not None  # noqa: S101 - for mypy; there is no hello without one
        self._request = None  # its head may be long
        found = _read_hello(hello)
        if isinstance(found, str):
            return found
        authorization = request.all("authorization")
        if found.is_empty:
            found = _of_header(authorization)
        principal = view.principal_of(self.connection)
        if view.is_open:
            token = view.http.token
            shown = found.token is not None and is_token(found.token, token)
            if token and not shown and not self._has_web_session(request, now):
                return "send the token that belongs to http.token"
            is_here = view.peer_of(self.connection).loopback
            if not (token or is_here or principal.is_known):
                return "without http.token, only programs on this machine may ask"
            return _Credentials(found.user)
        if found.is_empty and not principal.is_known and self._has_web_session(request, now):
            assert self._web_session is not None  # noqa: S101 - for mypy
            return _Credentials(known=self._web_session.principal)
        return found

    def _has_web_session(self, request: Upgrade, now: float) -> bool:
        """Look for the session of the broker's pages that the cookies of the request tell; this
        connection lasts as long as it."""
        cookies: Sequence[str] = request.all("cookie")
        if self.shared.view.peer_of(self.connection).encrypted:
            cookies = of_this_host(cookies)
        self._web_session = self._web_sessions.of_cookies(cookies, now)
        if self._web_session is None:
            return False
        self._web_session.connections.add(self.connection)
        return True

    @property
    def _web_sessions(self) -> LoginSessions:
        return self.shared.view.web_sessions

    def _welcome(self, version: int, name: str, now: float) -> Iterable[Command]:
        principal = self.shared.view.principal_of(self.connection)
        self.client = name if principal.is_known or principal.client else ""
        known = None if principal.kind == "anonymous" else principal.client or principal.name
        said = {
            "broker": self.shared.version,
            "principal": known,
            "max_text": self.shared.settings.max_text,
            "max_attachment": self.shared.max_attachment,
        }
        self.peer.welcome(version, spelled(said))
        self._state = _State.OPEN
        self._allow_silence(now)
        return self._done([]) if self._is_reading else self._go_on(now)

    def _go_on(self, now: float) -> Iterator[Command]:
        """Say welcome, and do what has come meanwhile."""
        yield from self._done([])
        yield from self._read(now)

    def _refuse(self, reason: str) -> Sequence[Command]:
        self.peer.end(REJECTED, reason)
        return self._done(self._end(f"login: {reason}"))

    def _over(self) -> list[Command]:
        """End with the session of the broker's pages."""
        reason = "the session is over"
        self.peer.end(REJECTED, reason)
        return self._end(reason)

    # ---- what they are made of ----

    def _told(self, now: float) -> Sequence[Command]:
        """Send the next updates, of what was retained all that is here: the broker gives more of it
        as that is taken, so it would become ever more. To one that is leaving, all there are."""
        while True:
            for topic, payload, attachments in self.updates.take(now):
                self.peer.update(topic.id, payload, attachments)
            if not (self.updates.tells_kept or (self._is_leaving and self.updates.due(now))):
                break
        self._calls.told()
        return self._flushed()

    def answered(self, commands: Sequence[Command] = ()) -> Sequence[Command]:
        """Return what was done later for a call, with what is said of it."""
        return self._done(list(commands))

    def _flushed(self) -> list[Command]:
        """Return what is to be sent as one command: a text and its attachments stay together.

        Whoever made us say it, it is an answer to this client: nobody else waits if it is slow, and
        nothing of it is dropped.
        """
        for message in self.peer.out:
            self._socket.send(message)
        self.peer.out.clear()
        if not self._socket.out:
            return []
        data, self._socket.out = self._socket.out, bytearray()
        return [SendBytes(bytes(data), acknowledges=True)]

    def _done(self, commands: list[Command]) -> Sequence[Command]:
        """Return commands with what is to be sent."""
        self._with_sends(commands)
        self._set_deadline()
        return commands

    def _with_sends(self, commands: list[Command]) -> list[Command]:
        """Add what is to be sent: behind what commands do, before an end."""
        sends = self._flushed()
        if sends:
            at = len(commands)
            if commands and type(commands[-1]) is Disconnect:
                at -= 1
            commands[at:at] = sends
        return commands

    def _allow_silence(self, now: float) -> None:
        interval_s = self.shared.settings.ping_interval_s
        self._silent_until = now + interval_s if interval_s else None

    def _too_silent(self, now: float) -> Sequence[Command]:
        settings = self.shared.settings
        if self._state is not _State.OPEN:
            reason = f"umq.handshake_timeout_s: no hello within {settings.handshake_timeout_s:g} s"
            return self._end(reason)
        if self._pinged:
            reason = f"umq.ping_timeout_s: no pong within {settings.ping_timeout_s:g} s"
            self._close()
            return [Disconnect(reason, abort=True)]  # it will not read what is yet to be written
        self._pinged = True
        self._silent_until = now + settings.ping_timeout_s
        self._socket.ping(b"")
        return NOTHING

    def _set_deadline(self) -> None:
        if self._state is _State.CLOSED or self._is_leaving:
            self.deadline = None
            return
        times = [self._silent_until, self._calls.deadline]
        if self._web_session is not None:
            times.append(self._web_sessions.ends_at(self._web_session))
        if not self._is_pacing:
            times.append(self.updates.deadline)
        self.deadline = min((each for each in times if each is not None), default=None)

    def _end(self, reason: str, code: int = NORMAL) -> list[Command]:
        """Close the WebSocket behind what is yet to be said (A19)."""
        for message in self.peer.out:
            self._socket.send(message)
        self.peer.out.clear()
        self._socket.end(code)
        self._close()
        return [Disconnect(reason)]

    def _close(self) -> None:
        self._state = _State.CLOSED
        self._request = None
        if self._web_session is not None:
            self._web_session.connections.discard(self.connection)
        self.peer.close()
        self.updates.close()
        self._calls.close()
        self._socket.close()


class Refusal(Session):
    """A connection that came while the broker is stopping: only told so."""

    def __init__(self) -> None:
        self._socket = WebSocket("server", 1024, 1024)

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Wait for the request, and refuse it."""
        if not self._socket.receive_data(data):
            return NOTHING
        self._socket.refuse(503, _mistake("the broker is stopping"))
        return [SendBytes(bytes(self._socket.out)), Disconnect("the broker is stopping")]


class Misdirected(Session):
    """A request for a WebSocket that has come to HTTP, by a connection that was used for it."""

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take nothing: there is no socket."""
        return NOTHING

    def asked(self, request: PageRequest, now: float) -> Sequence[Command]:
        """Say that a WebSocket needs a connection of its own."""
        text = f"this is UMQ over WebSocket: ask for {PATH} by a connection of its own"
        answer = PageAnswer(_mistake(text).encode(), status=421, close=True)
        return [Reply(lambda: answer)]


def _limits(shared: UmqShared) -> PeerLimits:
    settings = shared.settings
    return PeerLimits(
        max_attachment=shared.max_attachment,
        max_attachments=settings.max_attachments,
        max_calls=settings.max_calls,
        max_attributes=settings.max_attributes,
        max_attribute_bytes=settings.max_attribute_bytes,
        lenient_case=settings.lenient_case,
        max_id_digits=settings.max_id_digits,
        strict_attachments=settings.strict_attachments,
        lenient_attachments=settings.lenient_attachments,
        rpc_error=settings.rpc_error,
        unknown_callback_fatal=settings.unknown_callback_fatal,
    )


def _mistake(reason: str) -> str:
    return json.dumps({"error": reason}) + "\n"


@dataclass(frozen=True, slots=True)
class _Credentials:
    """What somebody says about who it is. ``known``: whom the cookie of our pages names."""

    user: str = ""
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    known: Principal | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not self.user and self.password is None and self.token is None


def _read_hello(hello: Hello) -> _Credentials | str:
    """Return what a hello says about who it is, or what is wrong with it."""
    said = "the payload of H is a JSON object, or nothing"
    if not hello.payload.strip():
        return _Credentials()
    try:
        document = json.loads(hello.payload)
    except (ValueError, RecursionError):
        return said
    if not isinstance(document, dict):
        return said
    user, password, token = (document.get(name) for name in ("user", "password", "token"))
    if not all(each is None or isinstance(each, str) for each in (user, password, token)):
        return "token, user and password are texts"
    try:
        "".join(filter(None, (user, password, token))).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return "token, user and password are texts"
    if user and token is not None:
        return _Credentials(user, token)  # nobody else's will do
    return _Credentials(user or "", password, token)


def _of_header(headers: Sequence[str]) -> _Credentials:
    """Return what the headers ``Authorization`` say."""
    token = bearer(headers)
    if token:
        return _Credentials(token=token)
    for text in headers:
        scheme, _, given = text.partition(" ")
        if scheme.lower() == "basic":
            try:
                name, _, secret = base64.b64decode(given, validate=True).decode().partition(":")
            except (binascii.Error, ValueError):
                break
            return _Credentials(name, secret)
    return _Credentials()
