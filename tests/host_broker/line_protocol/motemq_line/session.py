"""One connection: its lines as commands of the bus, what it is given as lines."""

from collections.abc import Callable, Sequence
from typing import Any

from host_broker.bus.commands import (
    Acknowledge,
    Command,
    Consume,
    Discard,
    Disconnect,
    Enqueue,
    OpenQueue,
    Publish,
    Send,
    StopConsuming,
    Subscribe,
    Unsubscribe,
)
from host_broker.bus.delivery import Delivery, QueueDelivery
from host_broker.bus.publication import is_service
from host_broker.protocol import NOTHING, Session
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation
from motemq_line.codec import (
    Ack,
    Codec,
    Leave,
    Ping,
    Pub,
    Put,
    Quit,
    Sub,
    Take,
    Unsub,
    spell_error,
    spell_job,
    spell_message,
    spell_ok,
)


class LineSession(Session):
    """Holds the codec, the topics subscribed to by number, and the last will."""

    def __init__(self, codec: Codec, budget: Budget, queue_messages: int) -> None:
        self._codec = codec
        self._budget = budget
        self._queue_messages = queue_messages
        self._topics: dict[int, bytes] = {}
        self._last_number = 0
        self._will: Publish | None = None
        self._will_bytes = 0

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Take one read."""
        commands: list[Command] = []
        for event in self._codec.receive_data(data):
            commands += _SAY[type(event)](self, event)
            if commands and type(commands[-1]) is Disconnect:
                break
        return commands

    def deliver(self, delivery: Delivery | QueueDelivery, now: float) -> Sequence[Command]:
        """Say publications with the numbers of their subscriptions, or messages of a queue."""
        if isinstance(delivery, QueueDelivery):
            lines = [
                spell_job(delivery.queue, each.number, each.redelivered, each.properties, each.body)
                for each in delivery.messages
            ]
        else:
            lines = [
                spell_message(delivery.subscriptions, topic, delivery.properties, body)
                for _, topic, body in delivery.each()
            ]
        return [Send(b"".join(lines))]

    def closed(self, now: float) -> Sequence[Command]:
        """Publish the last will. The bus itself ends subscriptions and gives back messages."""
        self._codec.close()
        will = self._will
        self._forget_will()
        return NOTHING if will is None else [will]

    def _pub(self, event: Pub) -> Sequence[Command]:
        if is_service(event.topic):
            return _refuse("$", "what begins with $ is the broker's own")
        will = event.verb == b"will"
        publish = Publish(
            event.topic,
            event.body,
            retain=event.verb == b"keep",
            will=will,
            properties=event.properties,
        )
        if not will:
            return [publish]
        self._forget_will()
        size = len(event.topic) + len(event.body)
        size += sum(len(name) + len(value) for name, value in event.properties.items())
        if not self._budget.take(size):
            return _refuse("bus.max_held_bytes", "no room for another last will")
        self._will, self._will_bytes = publish, size
        return NOTHING

    def _forget_will(self) -> None:
        self._budget.give(self._will_bytes)
        self._will, self._will_bytes = None, 0

    def _sub(self, event: Sub) -> Sequence[Command]:
        self._last_number += 1
        number = self._last_number
        self._topics[number] = event.topic

        def answer(limit: str) -> Sequence[Command]:
            if limit:
                self._topics.pop(number, None)
            return [Send(spell_error(limit) if limit else spell_ok(number))]

        return [Subscribe(event.topic, number, event.condition, answer=answer)]

    def _unsub(self, event: Unsub) -> Sequence[Command]:
        topic = self._topics.pop(event.number, None)
        if topic is None:
            return _refuse("unsub", f"no subscription {event.number}")
        return [Unsubscribe(topic, event.number), Send(spell_ok())]

    def _put(self, event: Put) -> Sequence[Command]:
        put = Enqueue(event.queue, event.body, event.properties, answer=_only_errors)
        return self._with_queue(event.queue, put)

    def _take(self, event: Take) -> Sequence[Command]:
        take = Consume(event.queue, event.credit, answer=_errors_and_ok)
        return self._with_queue(event.queue, take)

    def _with_queue(self, queue: bytes, command: Command) -> Sequence[Command]:
        """Have the queue, with our limit if it is new, and then do something with it."""

        def answer(limit: str) -> Sequence[Command]:
            return [Send(spell_error(limit))] if limit else [command]

        return [OpenQueue(queue, max_messages=self._queue_messages, answer=answer)]

    def _ack(self, event: Ack) -> Sequence[Command]:
        return [Acknowledge(event.queue, [event.number])]

    def _leave(self, event: Leave) -> Sequence[Command]:
        return [StopConsuming(event.queue), Send(spell_ok())]

    def _ping(self, event: Ping) -> Sequence[Command]:
        return [Send(b"pong\n")]

    def _quit(self, event: Quit) -> Sequence[Command]:
        self._forget_will()
        return [Send(b"bye\n"), Disconnect("it said quit")]

    def _wrong(self, event: Violation) -> Sequence[Command]:
        commands = _refuse(event.rule, event.reason)
        if event.fatal:
            commands.append(Disconnect(f"it said line.max_errors wrong lines: {event.reason}"))
        return commands


def _refuse(rule: str, reason: str) -> list[Command]:
    return [Discard(rule), Send(spell_error(reason))]


def _only_errors(limit: str) -> Sequence[Command]:
    return [Send(spell_error(limit))] if limit else NOTHING


def _errors_and_ok(limit: str) -> Sequence[Command]:
    return [Send(spell_error(limit) if limit else spell_ok())]


_SAY: dict[type[Any], Callable[[LineSession, Any], Sequence[Command]]] = {
    Pub: LineSession._pub,
    Sub: LineSession._sub,
    Unsub: LineSession._unsub,
    Put: LineSession._put,
    Take: LineSession._take,
    Ack: LineSession._ack,
    Leave: LineSession._leave,
    Ping: LineSession._ping,
    Quit: LineSession._quit,
    Violation: LineSession._wrong,
}


class Refusal(Session):
    """A connection that came while the broker stops: its first bytes are answered with the end."""

    def received(self, data: bytes, now: float) -> Sequence[Command]:
        """Say why."""
        return [Send(spell_error("the broker is stopping")), Disconnect("the broker is stopping")]
