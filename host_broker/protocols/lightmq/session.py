"""One LightMQ connection on the server's side: states, names, silence. The rest is its ``Role``."""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from host_broker.bus.commands import (
    Authenticate,
    Command,
    Disconnect,
    Ponged,
    Publish,
    Suspect,
    Wake,
)
from host_broker.bus.commands import Send as SendBytes
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.outputs import ConnectionId
from host_broker.protocol import NOTHING, Session
from host_broker.protocols.lightmq.caller import MARK
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, Refusal
from host_broker.protocols.lightmq.events import Connect, Event, Ping, Pong, Send, SendResp
from host_broker.protocols.lightmq.paths import level, path
from host_broker.protocols.lightmq.role import Role
from host_broker.protocols.lightmq.shared import Shared
from host_broker.wire.violation import Violation

_MANY = 8  # frames; a read of nothing but PINGs has fifty thousand

# Makes the role of a client that may connect, by its ClientID; None: it cannot be served now.
Accept = Callable[[str, Codec, float], Role | None]


class _State(Enum):
    WAIT_CONNECT = auto()
    LOGGING_IN = auto()  # who it is, is being found out
    READY = auto()
    CLOSED = auto()


class LightmqSession(Session):
    """Answers CONNECT and PING, PINGs after silence, and hands the rest to the client's ``Role``.

    Which frame may come when, and what it does, is ``_TRANSITIONS`` at the end of this module.
    """

    verbatim = False

    def __init__(
        self, connection: ConnectionId, shared: Shared, accept: Accept, now: float
    ) -> None:
        settings = shared.settings
        self.connection = connection
        self.client = ""
        self.callable = False
        self.deadline: float | None = now + settings.connect_timeout_s
        self._shared = shared
        self._settings = settings
        self._accept = accept
        self._codec = Codec("server", settings.dialect, shared.held)
        self._numbers = DIALECTS[settings.dialect]
        self._state = _State.WAIT_CONNECT
        self._role: Role | None = None  # once it is accepted
        # Until when silence is allowed, or a CONNECT or PONG is awaited.
        self._silent_until: float | None = self.deadline
        self._ping: int | None = None  # the id of the PING that awaits its PONG
        self._asked_for_ping: list[int] = []  # tags of those who await it, too
        self._early: list[Event] = []  # came before its CONNECT was answered

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        commands: list[Command] = []
        events = self._codec.receive_data(data)
        if self._role is not None and len(events) > _MANY and self._state is _State.READY:
            sends = [event for event in events if type(event) is Send]
            if len(sends) == len(events):
                commands += self._until_the_end(self._role.sent_many(sends, now))
                events = []
        self._handle(events, commands, now)
        if self._state is _State.READY and self._ping is None:
            self._allow_silence(now)
        self._set_deadline()
        return commands

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Say publications to the client.

        Also once its end is decided: what came before it in the same read takes effect first, as if
        it had come in a read of its own.
        """
        if self._role is None or isinstance(delivery, QueueDelivery):
            return NOTHING  # it consumes no queue
        commands = self._until_the_end(self._role.deliver(delivery, now))
        self._set_deadline()
        return commands

    def tick(self, now: float) -> Sequence[Command]:
        """Close on a missing CONNECT or PONG; PING after silence (A17)."""
        commands: list[Command] = []
        role = self._role
        if role is not None and role.deadline is not None and now >= role.deadline:
            commands += self._until_the_end(role.tick(now))
        if self._silent_until is not None and now >= self._silent_until:
            commands += self._too_silent(now)
        self._set_deadline()
        return commands

    def closed(self, now: float) -> Sequence[Command]:
        """Say ``offline`` in the broker's name: the last will of a protocol that has none.

        When the whole broker stops it is still there to be told the others' wills, so its state
        stays.
        """
        self.deadline = self._silent_until = None
        self._codec.close()
        if self._role is None:
            return NOTHING  # never accepted
        commands = list(self._role.ended(now))
        if self._shared.named.get(self.client) is self:  # not taken over by a newer connection
            del self._shared.named[self.client]
            commands += self._presence(b"offline")
        return commands

    def ping(self, tag: int, now: float) -> Sequence[Command] | None:
        """Send PING, unless one is on its way already."""
        if self._state is not _State.READY:
            return None
        self._asked_for_ping.append(tag)
        commands = NOTHING if self._ping is not None else self._send_ping(now)
        self._set_deadline()
        return commands

    def wills(self) -> Sequence[Publish]:
        """Return what ``closed`` says of the client's presence."""
        if self._role is None or self._shared.named.get(self.client) is not self:
            return ()
        return self._presence(b"offline")

    def give_way(self) -> str:
        """End for a newer connection with the same ClientID; returns why."""
        self._close()
        return f"ClientID {self.client!r} connected again"

    def probe(self, now: float) -> bool:
        """Somebody else claims the name: have it PINGed; False if nothing is to be done.

        A board that has restarted need not wait for the silence of its former self.
        """
        if self._state is not _State.READY or self._ping is not None or self._silent_until is None:
            return False
        self._silent_until = self.deadline = now
        return True

    def refused(self, action: str, topic: bytes) -> Sequence[Command]:
        """Say it as what the client speaks does."""
        if self._state is _State.CLOSED or self._role is None:
            return NOTHING
        return self._until_the_end(self._role.refused(action, topic))

    def _handle(self, events: Sequence[Event], commands: list[Command], now: float) -> None:
        """Do what frames ask for; those after a CONNECT wait until it is answered."""
        for number, event in enumerate(events):
            if self._state is _State.CLOSED:
                break
            if self._state is _State.LOGGING_IN:
                self._early += events[number:]
                break
            handler = _TRANSITIONS[self._state].get(type(event), LightmqSession._unexpected)
            commands += handler(self, event, now)

    # ---- transitions ----

    def _connect(self, event: Connect, now: float) -> Sequence[Command]:
        """Find out who it is. Its ClientID ends in its secret, if it has one; that of a caller is
        what comes before the mark."""
        caller, mark, called = event.client_id, "", ""
        if self._settings.calls:
            caller, mark, called = caller.partition(MARK)
        claim = self._shared.admission.name(caller)
        if claim is None:
            return self._refuse(Refusal.UNAUTHORIZED, "lightmq.clients has no such client")
        self._state = _State.LOGGING_IN

        def answer(name: str, reason: str, now: float) -> Sequence[Command]:
            if self._state is not _State.LOGGING_IN:
                return NOTHING  # it has taken too long
            self._state = _State.WAIT_CONNECT
            if reason:
                return self._refuse(Refusal.UNAUTHORIZED, reason)
            commands = list(self._admit(name + mark + called, now))
            early, self._early = self._early, []
            self._handle(early, commands, now)
            if self._state is _State.READY and self._ping is None:
                self._allow_silence(now)
            self._set_deadline()
            return commands

        return [Authenticate(claim, answer)]

    def _admit(self, name: str, now: float) -> Sequence[Command]:
        commands: list[Command] = []
        named = self._shared.named
        holder = named.get(name)
        if holder is not None and self._settings.duplicate_client == "reject":
            commands.append(Suspect(holder.connection))
            if holder.probe(now):
                commands.append(Wake(holder.connection))
            reason = f"R8: ClientID {name!r} is already connected"
            return [*commands, *self._refuse(Refusal.UNAUTHORIZED, reason)]
        role = self._accept(name, self._codec, now)
        if role is None:
            reason = f"there is nothing to connect {name!r} to now"
            return self._refuse(Refusal.UNAVAILABLE, reason)
        if holder is not None:
            commands.append(Disconnect(holder.give_way(), connection=holder.connection))
        named[name] = self
        self.client = name
        self.callable = role.callable
        self._role = role
        self._state = _State.READY
        return [
            *commands,
            SendBytes(self._codec.connack(self._numbers.accepted)),
            *self._presence(b"online"),
            *role.begin(),
        ]

    def _malformed_first(self, event: Violation, now: float) -> Sequence[Command]:
        if event.rule == "R19":
            return self._refuse(Refusal.MALFORMED, event.reason)
        return self._end(f"{event.rule}: {event.reason}")

    def _malformed(self, event: Violation, now: float) -> Sequence[Command]:
        return self._end(f"{event.rule}: {event.reason}")

    def _send(self, event: Send, now: float) -> Sequence[Command]:
        return self._until_the_end(self._ready_role.sent(event.id, event.data, now))

    def _sendresp(self, event: SendResp, now: float) -> Sequence[Command]:
        return self._until_the_end(self._ready_role.responded(event.id, event.data))

    def _answer_ping(self, event: Ping, now: float) -> Sequence[Command]:
        return [SendBytes(self._codec.pong(event.id))]

    def _settle_ping(self, event: Pong, now: float) -> Sequence[Command]:
        if self._ping is None or event.id not in (self._ping, None):
            return NOTHING
        self._ping = None
        tags, self._asked_for_ping = self._asked_for_ping, []
        return [Ponged(tag) for tag in tags]

    def _unexpected(self, event: Event, now: float) -> Sequence[Command]:
        if self._state is _State.READY:
            return self._end("R6: a second CONNECT")
        # A13: closed without CONNACK.
        return self._end(f"R5: the first frame is {type(event).__name__.upper()}, not CONNECT")

    # ---- what they are made of ----

    @property
    def _ready_role(self) -> Role:
        assert self._role is not None  # noqa: S101 - for mypy; READY has one
        return self._role

    def _too_silent(self, now: float) -> Sequence[Command]:
        settings = self._settings
        if self._state is _State.LOGGING_IN:
            return self._end("who it is was not found out in time")
        if self._state is _State.WAIT_CONNECT:
            return self._end(
                f"lightmq.connect_timeout_s: no CONNECT within {settings.connect_timeout_s:g} s"
            )
        if self._ping is not None:
            # Aborted: whoever does not answer will not read what is still to be written.
            return self._end(
                f"lightmq.ping_timeout_s: no PONG within {settings.ping_timeout_s:g} s", abort=True
            )
        return self._send_ping(now)

    def _send_ping(self, now: float) -> Sequence[Command]:
        self._ping = self._shared.random_u16() & 0xFFFF
        self._silent_until = now + self._settings.ping_timeout_s
        return [SendBytes(self._codec.ping(self._ping))]

    def _refuse(self, refusal: Refusal, reason: str) -> Sequence[Command]:
        code = self._numbers.refused(refusal)
        return [SendBytes(self._codec.connack(code)), *self._end(reason)]

    def _end(self, reason: str, abort: bool = False) -> Sequence[Command]:
        self._close()
        return [Disconnect(reason, abort)]

    def _until_the_end(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Note that a role has asked for the end, which is its last word."""
        if commands and type(commands[-1]) is Disconnect:
            self._close()
        return commands

    def _close(self) -> None:
        self._state = _State.CLOSED
        self.deadline = self._silent_until = None

    def _presence(self, status: bytes) -> Sequence[Publish]:
        if self._role is None or not self._role.present:
            return ()
        return [Publish(path(level(self.client), "status"), status, retain=True, own=True)]

    def _allow_silence(self, now: float) -> None:
        interval = self._settings.ping_interval_s
        self._silent_until = now + interval if interval else None

    def _set_deadline(self) -> None:
        if self._state is _State.CLOSED:
            return
        others = None if self._role is None else self._role.deadline
        if self._silent_until is None or (others is not None and others < self._silent_until):
            self.deadline = others
        else:
            self.deadline = self._silent_until


# By state, what each frame does; one that is not here ends the connection (``_unexpected``).
_TRANSITIONS: dict[_State, dict[type[Any], Callable[..., Sequence[Command]]]] = {
    _State.WAIT_CONNECT: {
        Connect: LightmqSession._connect,  # LOGGING_IN, then READY or, refused, CLOSED
        Violation: LightmqSession._malformed_first,  # CLOSED
    },
    _State.READY: {
        Send: LightmqSession._send,
        SendResp: LightmqSession._sendresp,
        Ping: LightmqSession._answer_ping,
        Pong: LightmqSession._settle_ping,
        Violation: LightmqSession._malformed,  # CLOSED
    },
    _State.LOGGING_IN: {},  # nothing is handled yet
    _State.CLOSED: {},  # nothing is read any more
}
