"""One LightMQ connection on the server's side: phases, names, silence. Its traffic is a ``Use``."""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from host_broker.bus.commands import Command, Disconnect, Publish, Wake
from host_broker.bus.commands import Send as SendBytes
from host_broker.outputs import Buffer, ConnectionId
from host_broker.protocols.lightmq.caller import MARK
from host_broker.protocols.lightmq.codec import Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, Refusal
from host_broker.protocols.lightmq.events import Connect, Event, Ping, Pong, Send, SendResp
from host_broker.protocols.lightmq.paths import level, path
from host_broker.protocols.lightmq.shared import Shared
from host_broker.protocols.lightmq.use import Use
from host_broker.protocols.session import NOTHING, Translator
from host_broker.wire.violation import Violation

_MANY = 8  # frames or commands; a read of nothing but PINGs has fifty thousand

# Makes the use of a client that may connect, by its ClientID; None: it cannot be served now.
Accept = Callable[[str, Codec, float], Use | None]


class _Phase(Enum):
    WAIT_CONNECT = auto()
    READY = auto()
    OVER = auto()


class LightmqSession(Translator):
    """Answers CONNECT and PING, PINGs after silence, and hands the rest to the client's ``Use``."""

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
        self._codec = Codec("server", settings.dialect)
        self._numbers = DIALECTS[settings.dialect]
        self._phase = _Phase.WAIT_CONNECT
        self._use: Use | None = None  # once it is accepted
        # Until when silence is allowed, or a CONNECT or PONG is awaited.
        self._patience: float | None = self.deadline
        self._ping: int | None = None  # the id of the PING that awaits its PONG

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        commands: list[Command] = []
        events = self._codec.receive_data(data)
        if self._use is not None and len(events) > _MANY:
            sends = [event for event in events if type(event) is Send]
            if len(sends) == len(events) and self._phase is _Phase.READY:
                commands += self._heeded(self._use.sent_many(sends, now))
                events = []
        for event in events:
            if self._phase is _Phase.OVER:
                break
            if self._use is None:
                commands += self._first(event, now)
            else:
                commands += self._ready(self._use, event, now)
        if self._phase is _Phase.READY and self._ping is None:
            self._await_silence(now)
        self._set_deadline()
        if len(commands) > _MANY and type(commands[0]) is type(commands[1]) is SendBytes:
            return _joined(commands)
        return commands

    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        """Say publications to the client.

        Also once its end is decided: what came before it in the same read takes effect first, as if
        it had come in a read of its own.
        """
        if self._use is None:
            return NOTHING
        commands = self._heeded(self._use.deliver(run, now))
        self._set_deadline()
        return commands

    def tick(self, now: float) -> Sequence[Command]:
        """Close on a missing CONNECT or PONG; PING after silence (A17)."""
        commands: list[Command] = []
        use = self._use
        if use is not None and use.deadline is not None and now >= use.deadline:
            commands += self._heeded(use.tick(now))
        if self._patience is not None and now >= self._patience:
            commands += self._impatient(now)
        self._set_deadline()
        return commands

    def closed(self, now: float) -> Sequence[Command]:
        """Say ``offline`` in the broker's name: the last will of a protocol that has none.

        When the whole broker stops it is still there to be told the others' wills, so its phase
        stays.
        """
        self.deadline = self._patience = None
        if self._use is None:
            return NOTHING  # never accepted
        commands = list(self._use.ended(now))
        if self._shared.named.get(self.client) is self:  # not taken over by a newer connection
            del self._shared.named[self.client]
            commands += self._presence(b"offline")
        return commands

    def taken_over(self) -> str:
        """Give way to a newer connection with the same ClientID; returns why."""
        self._over()
        return f"ClientID {self.client!r} connected again"

    def doubted(self, now: float) -> bool:
        """Somebody else claims the name: have it PINGed; False if nothing is to be done.

        A board that has restarted need not wait for the silence of its former self.
        """
        if self._phase is not _Phase.READY or self._ping is not None or self._patience is None:
            return False
        self._patience = self.deadline = now
        return True

    def _first(self, event: Event, now: float) -> Sequence[Command]:
        if isinstance(event, Connect):
            return self._connect(event.client_id, now)
        if isinstance(event, Violation):
            if event.rule == "R19":
                return self._refuse(Refusal.MALFORMED, event.reason)
            return self._end(f"{event.rule}: {event.reason}")
        # A13: closed without CONNACK.
        return self._end(f"R5: the first frame is {type(event).__name__.upper()}, not CONNECT")

    def _connect(self, client_id: str, now: float) -> Sequence[Command]:
        name = self._admitted(client_id)
        if name is None:
            return self._refuse(Refusal.UNAUTHORIZED, "lightmq.clients has no such client")
        commands: list[Command] = []
        named = self._shared.named
        holder = named.get(name)
        if holder is not None and self._settings.duplicate_client == "reject":
            if holder.doubted(now):
                commands.append(Wake(holder.connection))
            reason = f"R8: ClientID {name!r} is already connected"
            return [*commands, *self._refuse(Refusal.UNAUTHORIZED, reason)]
        use = self._accept(name, self._codec, now)
        if use is None:
            reason = f"there is nothing to connect {name!r} to now"
            return self._refuse(Refusal.UNAVAILABLE, reason)
        if holder is not None:
            reason = holder.taken_over()
            commands.append(Disconnect(reason, connection=holder.connection))
        named[name] = self
        self.client = name
        self.callable = use.callable
        self._use = use
        self._phase = _Phase.READY
        return [
            *commands,
            SendBytes(self._codec.connack(self._numbers.accepted)),
            *self._presence(b"online"),
            *use.begin(),
        ]

    def _admitted(self, client_id: str) -> str | None:
        """Return the name without the token; of a caller, it is what comes before the mark."""
        caller, mark, called = client_id, "", ""
        if self._settings.calls:
            caller, mark, called = client_id.partition(MARK)
        name = self._shared.admission.name(caller)
        return None if name is None else name + mark + called

    def _ready(self, use: Use, event: Event, now: float) -> Sequence[Command]:
        match event:
            case Send(id, _, data):
                return self._heeded(use.sent(id, data, now))
            case SendResp(id, data):
                return self._heeded(use.responded(id, data))
            case Ping(id):
                return [SendBytes(self._codec.pong(id))]
            case Pong(id):
                if self._ping is not None and id in (self._ping, None):
                    self._ping = None
                return NOTHING
            case Violation(rule, reason):
                return self._end(f"{rule}: {reason}")
            case _:
                return self._end("R6: a second CONNECT")

    def _impatient(self, now: float) -> Sequence[Command]:
        settings = self._settings
        if self._phase is _Phase.WAIT_CONNECT:
            return self._end(f"no CONNECT within {settings.connect_timeout_s:g} s")
        if self._ping is not None:
            # Aborted: whoever does not answer will not read what is still to be written.
            return self._end(f"no PONG within {settings.ping_timeout_s:g} s", abort=True)
        self._ping = self._shared.random_u16() & 0xFFFF
        self._patience = now + settings.ping_timeout_s
        return [SendBytes(self._codec.ping(self._ping))]

    def _refuse(self, refusal: Refusal, reason: str) -> Sequence[Command]:
        code = self._numbers.refused(refusal)
        return [SendBytes(self._codec.connack(code)), *self._end(reason)]

    def _end(self, reason: str, abort: bool = False) -> Sequence[Command]:
        self._over()
        return [Disconnect(reason, abort)]

    def _heeded(self, commands: Sequence[Command]) -> Sequence[Command]:
        """Nothing comes after a use has asked for the end, which is its last word."""
        if commands and type(commands[-1]) is Disconnect:
            self._over()
        return commands

    def _over(self) -> None:
        self._phase = _Phase.OVER
        self.deadline = self._patience = None

    def _presence(self, status: bytes) -> Sequence[Command]:
        if self._use is None or not self._use.present:
            return NOTHING
        return [Publish(path(level(self.client), "status"), status, retain=True, own=True)]

    def _await_silence(self, now: float) -> None:
        interval = self._settings.ping_interval_s
        self._patience = now + interval if interval else None

    def _set_deadline(self) -> None:
        if self._phase is _Phase.OVER:
            return
        others = None if self._use is None else self._use.deadline
        if self._patience is None or (others is not None and others < self._patience):
            self.deadline = others
        else:
            self.deadline = self._patience


def _joined(commands: Sequence[Command]) -> Sequence[Command]:
    """What is sent without anything in between is sent at once."""
    joined: list[Command] = []
    pieces: list[Buffer] = []
    for command in commands:
        if type(command) is SendBytes:
            pieces.append(command.data)
            continue
        if pieces:
            joined.append(SendBytes(b"".join(pieces)))
            pieces.clear()
        joined.append(command)
    if pieces:
        joined.append(SendBytes(b"".join(pieces)))
    return joined
