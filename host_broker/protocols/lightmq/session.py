"""One LightMQ connection on the server's side: phases, names, timeouts, correlation."""

from collections.abc import Callable, Sequence
from enum import Enum, auto

from host_broker.bus.commands import (
    Command,
    Discard,
    Disconnect,
    Publish,
    Subscribe,
)
from host_broker.bus.commands import Send as SendBytes
from host_broker.bus.publication import unpack
from host_broker.outputs import ConnectionId
from host_broker.protocols.lightmq.codec import MAX_SEND, Codec
from host_broker.protocols.lightmq.dialects import DIALECTS, Refusal
from host_broker.protocols.lightmq.events import Connect, Event, Ping, Pong, Send, SendResp
from host_broker.protocols.lightmq.paths import path
from host_broker.protocols.session import NOTHING
from host_broker.settings import LightmqSettings
from host_broker.wire.violation import Violation


class _Phase(Enum):
    WAIT_CONNECT = auto()
    READY = auto()
    OVER = auto()


class LightmqSession:
    """Translates between frames and the client's four paths on the bus (``paths``).

    ``named`` is shared by all sessions of the broker: who is connected under which ClientID.
    """

    verbatim = False

    def __init__(
        self,
        connection: ConnectionId,
        settings: LightmqSettings,
        named: dict[str, "LightmqSession"],
        random_u16: Callable[[], int],
        now: float,
    ) -> None:
        self.connection = connection
        self.client = ""
        self.deadline: float | None = now + settings.connect_timeout_s
        self._settings = settings
        self._named = named
        self._random_u16 = random_u16
        self._codec = Codec("server", settings.dialect)
        self._numbers = DIALECTS[settings.dialect]
        self._phase = _Phase.WAIT_CONNECT
        self._up = self._reply = b""  # known once the client has a name
        self._ping: int | None = None  # the id of the PING that awaits its PONG
        self._pending: dict[int, None] = {}  # ids of SENDs that await their SENDRESP, oldest first

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        commands: list[Command] = []
        for event in self._codec.receive_data(data):
            if self._phase is _Phase.OVER:
                break
            if self._phase is _Phase.WAIT_CONNECT:
                commands += self._first(event)
            else:
                commands += self._ready(event)
        if self._phase is _Phase.READY and self._ping is None:
            self._await_silence(now)
        return commands

    def deliver(self, run: bytes, now: float) -> Sequence[Command]:
        """SEND each publication under a fresh id, for the publishers of ``lightmq/ID/down``."""
        if self._phase is not _Phase.READY:
            return NOTHING
        commands: list[Command] = []
        frames = []
        for _, _, body in unpack(run):
            if len(body) > MAX_SEND:
                commands.append(Discard("R16"))
                continue
            frames.append(self._codec.send(self._fresh_id(), body))
        if frames:
            commands.append(SendBytes(b"".join(frames)))
        return commands

    def tick(self, now: float) -> Sequence[Command]:
        """Close on a missing CONNECT or PONG; PING after silence (A17)."""
        if self.deadline is None or now < self.deadline:
            return NOTHING
        settings = self._settings
        if self._phase is _Phase.WAIT_CONNECT:
            return self._end(f"no CONNECT within {settings.connect_timeout_s:g} s")
        if self._ping is not None:
            # Aborted: whoever does not answer will not read what is still to be written.
            return self._end(f"no PONG within {settings.ping_timeout_s:g} s", abort=True)
        self._ping = self._random_u16() & 0xFFFF
        self.deadline = now + settings.ping_timeout_s
        return [SendBytes(self._codec.ping(self._ping))]

    def closed(self, now: float) -> Sequence[Command]:
        """Say ``offline`` in the broker's name: the last will of a protocol that has none.

        When the whole broker stops it is still there to be told the others' wills, so its phase
        stays.
        """
        self.deadline = None
        if self._named.get(self.client) is not self:
            return NOTHING  # never accepted, or taken over by a newer connection
        del self._named[self.client]
        return [self._presence(b"offline")]

    def _first(self, event: Event) -> Sequence[Command]:
        if isinstance(event, Connect):
            return self._connect(event.client_id)
        if isinstance(event, Violation):
            if event.rule == "R19":
                return self._refuse(Refusal.MALFORMED, event.reason)
            return self._end(f"{event.rule}: {event.reason}")
        # A13: closed without CONNACK.
        return self._end(f"R5: the first frame is {type(event).__name__.upper()}, not CONNECT")

    def _connect(self, client_id: str) -> Sequence[Command]:
        commands: list[Command] = []
        holder = self._named.get(client_id)
        if holder is not None:
            if self._settings.duplicate_client == "reject":
                return self._refuse(
                    Refusal.UNAUTHORIZED, f"R8: ClientID {client_id!r} is already connected"
                )
            commands += holder.taken_over()
        self._named[client_id] = self
        self.client = client_id
        self._up, self._reply = path(client_id, "up"), path(client_id, "reply")
        self._phase = _Phase.READY
        return [
            *commands,
            SendBytes(self._codec.connack(self._numbers.accepted)),
            self._presence(b"online"),
            Subscribe(path(client_id, "down")),
        ]

    def taken_over(self) -> Sequence[Command]:
        """Give way to a newer connection with the same ClientID."""
        return self._end(f"ClientID {self.client!r} connected again", of=self.connection)

    def _ready(self, event: Event) -> Sequence[Command]:
        match event:
            case Send(id, _, data):
                return [
                    Publish(self._up, data),
                    SendBytes(self._codec.sendresp(id, b"")),
                ]
            case SendResp(id, data):
                if id not in self._pending:
                    return [Discard("R17")]
                del self._pending[id]
                return [Publish(self._reply, data)]
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

    def _refuse(self, refusal: Refusal, reason: str) -> Sequence[Command]:
        code = self._numbers.refused(refusal)
        return [SendBytes(self._codec.connack(code)), *self._end(reason)]

    def _end(
        self, reason: str, abort: bool = False, of: ConnectionId | None = None
    ) -> Sequence[Command]:
        self._phase, self.deadline = _Phase.OVER, None
        return [Disconnect(reason, abort, of)]

    def _presence(self, status: bytes) -> Publish:
        return Publish(path(self.client, "status"), status, retain=True, own=True)

    def _await_silence(self, now: float) -> None:
        interval = self._settings.ping_interval_s
        self.deadline = now + interval if interval else None

    def _fresh_id(self) -> int:
        """A new id that awaits its SENDRESP. Above ``max_pending`` the oldest is forgotten: a
        client need not respond, and one that never does still gets its messages."""
        id = self._random_u16() & 0xFFFF
        while id in self._pending:
            id = (id + 1) & 0xFFFF
        self._pending[id] = None
        if len(self._pending) > self._settings.max_pending:
            del self._pending[next(iter(self._pending))]
        return id
