"""Where messages go (A24), and the commands of pub/sub (A23)."""

from dataclasses import dataclass

from host_broker.bus.publication import is_service, topic_fault
from host_broker.protocols.micromsg2.events import CommandFrame
from host_broker.protocols.micromsg2.filters import Conditions, compile_filters
from host_broker.protocols.micromsg2.grammar import GrammarError
from host_broker.protocols.micromsg2.refusal import Refusal

TOPIC_PREFIX = b"topic/"
MAX_DESTINATION = 255  # bytes
# Where messages go that say no destination, as programs of SharpMessaging do, whose server is all
# that there is to send to.
NO_DESTINATION = TOPIC_PREFIX + b"micromsg2"
SUBSCRIBE, UNSUBSCRIBE = "subscribe", "unsubscribe"

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ToTopic:
    """A topic of the bus: its messages go to all who subscribe to it (R35)."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class ToQueue:
    """A queue of the bus: each of its messages goes to one consumer, in order (R36)."""

    queue: bytes


Destination = ToTopic | ToQueue


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a SUBSCRIBE asks for; ``filter`` None: everything."""

    destination: Destination
    filter: Conditions | None = None


def read_destination(text: bytes) -> Destination | Refusal:
    """Read a destination: ``topic/a/b`` is the topic ``a/b``, any other is a queue.

    Slashes at the ends of a topic are ignored. The broker's own topics, and names that no topic
    could have, are no destinations.
    """
    if text.startswith(TOPIC_PREFIX):
        return _topic(text.removeprefix(TOPIC_PREFIX))
    return _queue(text)


def spell_destination(destination: Destination) -> bytes | None:
    """Spell a destination; None if it is too long for a message frame."""
    text = (
        TOPIC_PREFIX + destination.topic if isinstance(destination, ToTopic) else destination.queue
    )
    return text if len(text) <= MAX_DESTINATION else None


def read_subscribe(command: CommandFrame) -> Subscription | Refusal:
    """Read the arguments of SUBSCRIBE: one destination, and filters, which all must hold."""
    destination = _destination_of(command, ("filter",))
    if isinstance(destination, Refusal):
        return destination
    texts = [value for key, value in command.arguments if key.lower() == "filter"]
    try:
        return Subscription(destination, compile_filters(texts))
    except GrammarError as error:
        return Refusal(error.rule, str(error))


def read_unsubscribe(command: CommandFrame) -> Destination | Refusal:
    """Read the arguments of UNSUBSCRIBE: one destination."""
    return _destination_of(command, ())


def _destination_of(command: CommandFrame, others: tuple[str, ...]) -> Destination | Refusal:
    """Read the one destination of a command. Arguments that there are not are refused: whoever
    misspells a filter must not get everything."""
    readers = {"destination": read_destination, "topic": _as_topic, "queue": _queue}
    found: list[Destination | Refusal] = []
    for key, value in command.arguments:
        reader = readers.get(key.lower())
        if reader is not None:
            found.append(reader(value))
        elif key.lower() not in others:
            return Refusal("R24", f"{command.name} has no argument {key[:_SHOWN]!r}")
    if len(found) != 1:
        return Refusal("R24", f"{command.name} has {len(found)} destinations instead of one")
    return found[0]


def _as_topic(text: bytes) -> Destination | Refusal:
    return _topic(text.removeprefix(TOPIC_PREFIX))


def _topic(text: bytes) -> Destination | Refusal:
    topic = text.strip(b"/")
    return _refusal(topic, "topic") or ToTopic(topic)


def _queue(text: bytes) -> Destination | Refusal:
    return _refusal(text, "queue") or ToQueue(text)


def _refusal(name: bytes, what: str) -> Refusal | None:
    if is_service(name):
        return Refusal("R17", f"what begins with $ is the broker's own, not a {what} for messages")
    if fault := topic_fault(name):
        return Refusal("R17", fault if what == "topic" else fault.replace("topic", "queue", 1))
    return None
