"""A client's place on the bus: what it sends, what is sent to it, and who answers whom.

Beneath ``lightmq/ID``: ``up`` what it SENDs; ``down`` is sent to it, and its responses are
``reply``. With correlation: ``request/TAG`` is sent to it, its response is ``reply/TAG``, and then
``done/TAG`` says ``answered``; or ``unanswered`` (none came in time), ``gone`` (the client has),
``too long`` (no SEND can carry the request).
If somebody subscribes to ``up/*``, what it SENDs under an id is ``up/NUMBER`` too, and what is
published as ``answer/NUMBER`` is the response.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from host_broker.bus.commands import Command, Discard, Publish, Send, Subscribe
from host_broker.bus.delivery import Delivery
from host_broker.bus.publication import MAX_TOPIC, Run, pack
from host_broker.protocols.lightmq.codec import MAX_SEND, MAX_SENDRESP, Codec
from host_broker.protocols.lightmq.events import Send as SendFrame
from host_broker.protocols.lightmq.paths import path
from host_broker.protocols.lightmq.role import Role
from host_broker.protocols.lightmq.shared import Shared

_DOWN, _REQUEST, _ANSWER = 1, 2, 3  # ids of its subscriptions


@dataclass(frozen=True, slots=True)
class _Request:
    tag: bytes
    until: float


class Mailbox(Role):
    """Of one connected client."""

    callable = True

    def __init__(self, level: bytes, codec: Codec, shared: Shared) -> None:
        self._level = level
        self._codec = codec
        self._settings = shared.settings
        self._random_u16 = shared.random_u16
        self._responders = shared.responders
        self._up, self._reply = path(level, "up"), path(level, "reply")
        self._answerable = False  # subscribed to what answers its SENDs
        # Ids of SENDs that await their response, oldest first: our SENDs for "down" and for
        # requests, and the client's own to responders, with how long they wait.
        self._downs: dict[int, None] = {}
        self._requests: dict[int, _Request] = {}
        self._questions: dict[int, float] = {}

    def begin(self) -> Sequence[Command]:
        """Hear what is for the client."""
        return [
            Subscribe(path(self._level, "down"), _DOWN),
            Subscribe(path(self._level, "request/*"), _REQUEST),
        ]

    def sent(self, id: int, data: bytes, now: float) -> Sequence[Command]:
        """Publish under ``up``; the response says that the bus has it, unless somebody answers."""
        commands: list[Command] = [Publish(self._up, data)]
        if not self._settings.send_responses:
            return commands
        if (
            not data
            or not self._responders.wanted(self._level)
            or id in self._questions
            or len(self._questions) >= self._settings.max_pending
        ):
            commands.append(Send(self._codec.sendresp(id, b"")))
            return commands
        if not self._answerable:
            self._answerable = True
            commands.append(Subscribe(path(self._level, "answer/*"), _ANSWER, quiet=True))
        self._questions[id] = now + self._settings.answer_timeout_s
        commands.append(Publish(b"%s/%d" % (self._up, id), data, again=True))
        self._set_deadline()
        return commands

    def sent_many(self, sends: Sequence[SendFrame], now: float) -> Sequence[Command]:
        """Publish them as one run, if nobody answers and all of them are publications."""
        if self._responders.wanted(self._level) or not all(send.data for send in sends):
            return super().sent_many(sends, now)
        up = self._up
        run = b"".join([pack(0, up, send.data) for send in sends])
        commands: list[Command] = [Run(run, 0, len(run), len(sends))]
        if self._settings.send_responses:
            spell = self._codec.sendresp
            commands.append(Send(b"".join([spell(send.id, b"") for send in sends])))
        return commands

    def responded(self, id: int, data: bytes) -> Sequence[Command]:
        """Publish a response under ``reply``, with the tag of the request if it had one."""
        if id in self._downs:
            del self._downs[id]
            return [Publish(self._reply, data)]
        request = self._requests.pop(id, None)
        if request is None:
            return [Discard("R17")]
        self._set_deadline()
        return [
            Publish(b"%s/%s" % (self._reply, request.tag), data),
            self._done(request.tag, b"answered"),
        ]

    def deliver(self, delivery: Delivery, now: float) -> Sequence[Command]:
        """SEND what is for the client, under fresh ids; respond with what answers it."""
        if delivery.subscriptions == (_DOWN,):
            return self._send_down(delivery)
        commands: list[Command] = []
        for _, topic, body in delivery.each():
            tag = topic.rpartition(b"/")[2]
            if _REQUEST in delivery.subscriptions:
                commands += self._send_request(tag, body, now)
            elif _ANSWER in delivery.subscriptions:
                commands += self._respond(tag, body)
        self._set_deadline()
        return commands

    def tick(self, now: float) -> Sequence[Command]:
        """Wait no longer for responses that are late."""
        commands: list[Command] = []
        for id, until in list(self._questions.items()):
            if until <= now:
                del self._questions[id]
                commands.append(Send(self._codec.sendresp(id, b"")))
        for id, request in list(self._requests.items()):
            if request.until <= now:
                del self._requests[id]
                commands.append(self._done(request.tag, b"unanswered"))
        self._set_deadline()
        return commands

    def ended(self, now: float) -> Sequence[Command]:
        """Tell those who wait."""
        requests, self._requests = self._requests, {}
        return [self._done(request.tag, b"gone") for request in requests.values()]

    def _send_down(self, delivery: Delivery) -> Sequence[Command]:
        spell, downs, most = self._codec.send, self._downs, self._settings.max_pending
        too_long = 0
        frames: list[bytes] = []
        for _, _, body in delivery.each():
            if len(body) > MAX_SEND:
                too_long += 1
                continue
            id = self._unused_id()
            downs[id] = None
            # A client need not respond, and one that never does still gets its messages.
            if len(downs) > most:
                del downs[next(iter(downs))]
            frames.append(spell(id, body))
        commands: list[Command] = [Send(b"".join(frames))] if frames else []
        if too_long:
            commands.append(Discard("R16", too_long, too_long))
        return commands

    def _send_request(self, tag: bytes, body: bytes, now: float) -> Sequence[Command]:
        if len(body) > MAX_SEND:
            return [Discard("R16"), self._done(tag, b"too long")]
        if len(self._reply) + 1 + len(tag) > MAX_TOPIC:
            return [Discard("R17")]  # asked by a wildcard, and no topic could hold the reply
        id = self._unused_id()
        self._requests[id] = _Request(tag, now + self._settings.request_timeout_s)
        commands: list[Command] = [Send(self._codec.send(id, body))]
        if len(self._requests) > self._settings.max_pending:
            oldest = self._requests.pop(next(iter(self._requests)))
            commands.append(self._done(oldest.tag, b"unanswered"))
        return commands

    def _respond(self, number: bytes, body: bytes) -> Sequence[Command]:
        id = int(number) if number.isdigit() and len(number) <= 5 else -1
        if self._questions.pop(id, None) is None:
            return [Discard("R18")]  # late, or nobody asked
        if len(body) > MAX_SENDRESP:
            return [Discard("R17"), Send(self._codec.sendresp(id, b""), acknowledges=True)]
        return [Send(self._codec.sendresp(id, body), acknowledges=True)]

    def _done(self, tag: bytes, how: bytes) -> Publish:
        return Publish(path(self._level, "done") + b"/" + tag, how, own=True)

    def _set_deadline(self) -> None:
        # The oldest of either is the first that is late.
        until = list(self._questions.values())[:1]
        until += [request.until for request in list(self._requests.values())[:1]]
        self.deadline = min(until, default=None)

    def _unused_id(self) -> int:
        id = self._random_u16() & 0xFFFF
        while id in self._downs or id in self._requests:
            id = (id + 1) & 0xFFFF
        return id
