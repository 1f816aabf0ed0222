"""One end of a UMQ connection: messages in, events out; what is called, answered, subscribed to.

Both ends are alike once they have greeted each other (A26). Bytes and the WebSocket are another
module's: here are whole messages, texts and binaries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from host_broker.protocols.umq.attachments import AttachmentQueue
from host_broker.protocols.umq.codec import (
    MALFORMED,
    MAX_ID_DIGITS,
    NO_CALLBACK,
    NO_VERSION,
    REJECTED,
    Message,
    read_attribute,
    read_callback,
    read_error,
    read_message,
    spell_error,
    spell_id,
    spell_message,
)
from host_broker.protocols.umq.events import (
    Attachment,
    Call,
    Callback,
    ClearAttribute,
    Event,
    Failed,
    Fatal,
    Hello,
    Missing,
    Result,
    SetAttribute,
    TopicEnd,
    Unsubscribe,
    Update,
    Welcome,
)
from host_broker.wire.budget import Budget
from host_broker.wire.violation import Violation

VERSION = 1
Outgoing = str | bytes  # a text or a binary message


@dataclass(frozen=True, slots=True)
class PeerLimits:
    """What a peer may say, and how its dialect is read (protocols/umq/NOTES.md)."""

    max_attachment: int = 1024 * 1024
    max_attachments: int = 64
    max_calls: int = 256
    max_attributes: int = 32
    max_attribute_bytes: int = 4096
    lenient_case: bool = False
    max_id_digits: int = MAX_ID_DIGITS
    strict_attachments: bool = False
    lenient_attachments: bool = False
    rpc_error: Literal["E", "!"] = "E"
    unknown_callback_fatal: bool = False
    callback_persistent: bool = False


class _State(Enum):
    WAIT_HELLO = auto()
    WAIT_WELCOME = auto()
    GREETING = auto()  # a hello has come, or a welcome is yet to be judged by us
    OPEN = auto()
    CLOSED = auto()


class Peer:
    """Reads what the other end says, and spells what this one does.

    What is to be sent is in ``out``, whole messages in order: a text and at once its attachments,
    so that binaries are never overtaken by those of a later one. A fatal ``Violation`` is the last
    event ever; what has to be said of it (F) is in ``out`` then.
    """

    def __init__(
        self, role: Literal["server", "client"], limits: PeerLimits, held: Budget | None = None
    ) -> None:
        """``held``: the memory that attachments of all connections may take."""
        self.out: list[Outgoing] = []
        self.attributes: dict[str, SetAttribute] = {}  # that the other end has set
        self.strays = 0  # binaries that nobody had announced (A9)
        self._limits = limits
        self._awaited = AttachmentQueue(
            limits.max_attachments, held if held is not None else Budget(1 << 62)
        )
        self._is_server = role == "server"
        self._state = _State.WAIT_HELLO if self._is_server else _State.WAIT_WELCOME
        self._asked_version = 0
        self._incoming: set[int] = set()  # ids of calls that we have to answer
        self._outgoing: set[int] = set()  # ids of calls that we await the answers of
        self._last_id = 0
        self._callbacks: set[int] = set()
        self._published: set[int] = set()  # topics of ours that the other end has subscribed to
        self._subscribed: dict[int, bool] = {}  # topics of the other end; True: until D comes
        self._strangers: set[int] = set()  # topics we have said U of, though we never had them

    @property
    def is_open(self) -> bool:
        """Whether both have greeted each other, and nobody has ended it."""
        return self._state is _State.OPEN

    @property
    def is_closed(self) -> bool:
        """Whether nothing is said any more."""
        return self._state is _State.CLOSED

    # ---- what the other end says ----

    def receive(self, message: Outgoing) -> list[Event | Violation]:
        """Take one message, a text or a binary; returns what it completes."""
        if self._state is _State.CLOSED:
            return []
        if isinstance(message, bytes):
            return self._binary(message)
        limits = self._limits
        read = read_message(
            message,
            lenient_case=limits.lenient_case,
            max_id_digits=limits.max_id_digits,
            lenient_attachments=limits.lenient_attachments,
        )
        if isinstance(read, Violation):
            return self._broken(read)
        if read.command == "-":
            return self._settle(Missing(read.payload))
        fault = self._out_of_place(read)
        if fault is not None:
            return self._broken(fault)
        if read.command in "CB":
            if read.id in self._incoming:
                return self._broken(_fault("A25", f"{read.command}{spell_id(read.id)} is in use"))
            self._incoming.add(read.id)
        if not read.attachments:
            return self._said(read, ())
        if not self._awaited.announce(read):
            if self._awaited.has_room(read):
                return self._too_much_held()
            most = limits.max_attachments
            reason = f"more than {most} attachments are announced and yet to come"
            return self._broken(_fault("umq.max_attachments", reason), REJECTED)
        return []

    def close(self) -> None:
        """The connection has ended."""
        self._state = _State.CLOSED
        self._awaited.close()

    def _binary(self, data: bytes) -> list[Event | Violation]:
        if len(data) > self._limits.max_attachment:
            reason = f"an attachment is longer than {self._limits.max_attachment} bytes"
            return self._broken(_fault("umq.max_attachment", reason), REJECTED)
        return self._settle(data)

    def _settle(self, attachment: Attachment) -> list[Event | Violation]:
        settled = self._awaited.settle(attachment)
        if settled is None:
            return []
        if settled == "held":
            return self._too_much_held()
        if isinstance(settled, str):
            if self._limits.strict_attachments:
                return self._broken(_fault("A9", "an attachment that nobody has announced"))
            self.strays += 1
            return []
        message, attachments = settled
        return self._said(message, attachments)

    def _out_of_place(self, message: Message) -> Violation | None:
        """Return why a message may not come now; else None."""
        command = message.command
        if self._state is _State.WAIT_HELLO:
            if command not in "HF":
                return _fault("R8", f"the first message is {command}, not H")
            if command == "H" and message.id < VERSION:
                return _fault("A12", f"version {message.id} is not spoken here")
            if command == "H":
                self._state = _State.GREETING
        elif self._state is _State.WAIT_WELCOME:
            if command not in "WF":
                return _fault("R9", f"the first message is {command}, not W or F")
            if command == "W" and not VERSION <= message.id <= self._asked_version:
                return _fault("A12", f"version {message.id} was not asked for")
            if command == "W":
                self._state = _State.GREETING
        elif command in "HW":
            return _fault("A24", f"{command} comes once, from the other end, and first")
        elif self._state is _State.GREETING and self._is_server and command != "F":
            # Its attachments are yet to come: nobody knows who says this.
            return _fault("A26", f"{command} comes before W")
        return None

    def _said(self, message: Message, attachments: Sequence[Attachment]) -> list[Event | Violation]:
        """Return what a message means whose attachments are there."""
        number, payload = message.id, message.payload
        match message.command:
            case "H":
                return [Hello(number, payload, attachments)]
            case "W":
                self._state = _State.OPEN
                return [Welcome(number, payload, attachments)]
            case "F":
                self.close()
                return [Fatal(*read_error(payload))]
            case "C":
                return [Call(number, payload, attachments)]
            case "B":
                return self._called_back(number, payload, attachments)
            case "R" | "E" | "!" if number not in self._outgoing:
                return []
            case "R":
                self._outgoing.discard(number)
                return [Result(number, payload, attachments)]
            case "E" | "!" as command:
                self._outgoing.discard(number)
                return [Failed(number, payload, early=command == "!")]
            case "T":
                return self._updated(number, payload, attachments)
            case "D":
                if self._subscribed.pop(number, None) is None:
                    return []
                return [TopicEnd(number)]
            case "U":
                if number not in self._published:
                    return []
                return [Unsubscribe(number)]
            case "S":
                return self._attribute_set(payload, attachments)
            case _:
                self.attributes.pop(payload, None)
                return [ClearAttribute(payload)]

    def _called_back(
        self, number: int, payload: str, attachments: Sequence[Attachment]
    ) -> list[Event | Violation]:
        limits = self._limits
        read = read_callback(
            payload, lenient_case=limits.lenient_case, max_id_digits=limits.max_id_digits
        )
        if isinstance(read, Violation):
            return self._broken(read)
        callback, argument = read
        if callback not in self._callbacks:
            if limits.unknown_callback_fatal:
                return self._broken(_fault("A15", "Callback not found"), NO_CALLBACK)
            self.fail(number, NO_CALLBACK, "Callback not found")
            return []
        if not limits.callback_persistent:
            self._callbacks.discard(callback)
        return [Callback(number, callback, argument, attachments)]

    def _updated(
        self, topic: int, payload: str, attachments: Sequence[Attachment]
    ) -> list[Event | Violation]:
        ending = self._subscribed.get(topic)
        if ending is None:
            if topic not in self._strangers and len(self._strangers) < self._limits.max_calls:
                self._strangers.add(topic)
                self._say("U", topic)
            return []
        return [] if ending else [Update(topic, payload, attachments)]

    def _attribute_set(
        self, payload: str, attachments: Sequence[Attachment]
    ) -> list[Event | Violation]:
        read = read_attribute(payload)
        if isinstance(read, Violation):
            return self._broken(read)
        event = SetAttribute(*read, attachments)
        limits, size = self._limits, len(payload.encode())
        size += sum(len(each) for each in attachments if isinstance(each, bytes))
        if size > limits.max_attribute_bytes:
            reason = f"an attribute is longer than {limits.max_attribute_bytes} bytes"
            return [Violation("umq.max_attribute_bytes", reason, 0, fatal=False)]
        if event.name not in self.attributes and len(self.attributes) >= limits.max_attributes:
            reason = f"there are {limits.max_attributes} attributes already"
            return [Violation("umq.max_attributes", reason, 0, fatal=False)]
        self.attributes[event.name] = event
        return [event]

    def _too_much_held(self) -> list[Event | Violation]:
        reason = "all clients together hold as much as bus.max_held_bytes allows"
        return self._broken(_fault("bus.max_held_bytes", reason), REJECTED)

    def _broken(self, fault: Violation, code: int = MALFORMED) -> list[Event | Violation]:
        """Say F: the other end has broken the protocol, or a limit of ours."""
        if fault.rule == "A12":
            code = NO_VERSION
        text = {MALFORMED: "Protocol error", NO_VERSION: "Unsupported version"}.get(code, "")
        self.end(code, f"{text}: {fault.reason}" if text else f"{fault.rule}: {fault.reason}")
        return [fault]

    # ---- what this end says ----

    def hello(
        self, payload: str, version: int = VERSION, attachments: Sequence[bytes] = ()
    ) -> None:
        """Say H, the client's first words."""
        self._asked_version = version
        self._say("H", version, payload, attachments)

    def welcome(self, asked: int, payload: str) -> None:
        """Say W: the client that asked for this version is let in (A12)."""
        self._state = _State.OPEN
        self._say("W", min(asked, VERSION), payload)

    def end(self, code: int, text: str) -> None:
        """Say F, the last words; then the connection is to be closed (R11, A19)."""
        if self._state is not _State.CLOSED:
            self._say("F", 0, spell_error(code, text))
            self.close()

    def call(self, payload: str, attachments: Sequence[bytes] = ()) -> int:
        """Call the other end; returns the id under which the answer comes."""
        number = self._new_id()
        self._say("C", number, payload, attachments)
        return number

    def call_back(self, callback: int, argument: str, attachments: Sequence[bytes] = ()) -> int:
        """Call a callback that the other end has registered; returns the id of the answer."""
        number = self._new_id()
        self._say("B", number, f"{spell_id(callback)}:{argument}", attachments)
        return number

    def register_callback(self, callback: int) -> None:
        """Let the other end call this, once (A16)."""
        self._callbacks.add(callback)

    def answer(self, number: int, payload: str, attachments: Sequence[bytes] = ()) -> None:
        """Say R to a call; one that was answered already is not again (R19)."""
        if number in self._incoming:
            self._incoming.discard(number)
            self._say("R", number, payload, attachments)

    def fail(self, number: int, code: int, text: str, *, early: bool = False) -> None:
        """Say E to a call; ``early``: it was refused before it was made (A14)."""
        if number in self._incoming:
            self._incoming.discard(number)
            command = self._limits.rpc_error if early else "E"
            self._say(command, number, spell_error(code, text))

    @property
    def unanswered(self) -> int:
        """How many calls of the other end are yet to be answered."""
        return len(self._incoming)

    def open_topic(self, topic: int) -> bool:
        """Publish a topic under the id that its subscriber chose; False if that is in use."""
        if topic in self._published:
            return False
        self._published.add(topic)
        return True

    def forget_published(self, topic: int) -> None:
        """The subscription was refused: nothing is said of the topic."""
        self._published.discard(topic)

    def update(self, topic: int, payload: str, attachments: Sequence[bytes] = ()) -> None:
        """Say T; nothing, once the topic has ended (R28)."""
        if topic in self._published:
            self._say("T", topic, payload, attachments)

    def close_topic(self, topic: int) -> None:
        """Say D, the last word of a topic."""
        if topic in self._published:
            self._published.discard(topic)
            self._say("D", topic)

    def subscribe(self, topic: int) -> None:
        """Expect updates under this id; whoever publishes is told of it by a call."""
        self._subscribed[topic] = False
        self._strangers.discard(topic)

    def unsubscribe(self, topic: int) -> None:
        """Say U; what is under way is swallowed until D comes (R31)."""
        if self._subscribed.get(topic) is False:
            self._subscribed[topic] = True
            self._say("U", topic)

    def forget_topic(self, topic: int) -> None:
        """Expect nothing under this id any more: the subscription was refused."""
        self._subscribed.pop(topic, None)

    def set_attribute(self, name: str, value: str, attachments: Sequence[bytes] = ()) -> None:
        """Say S. ValueError for a name with ``=``."""
        if "=" in name:
            raise ValueError(f"an attribute's name has no '=': {name!r}")
        self._say("S", 0, f"{name}={value}", attachments)

    def clear_attribute(self, name: str) -> None:
        """Say X."""
        self._say("X", 0, name)

    def _say(
        self, command: str, number: int, payload: str = "", attachments: Sequence[bytes] = ()
    ) -> None:
        if self._state is not _State.CLOSED:
            self.out.append(spell_message(command, number, payload, len(attachments)))
            self.out += attachments

    def _new_id(self) -> int:
        while True:
            self._last_id = self._last_id % 0xFFFF_FFFF + 1
            if self._last_id not in self._outgoing:
                self._outgoing.add(self._last_id)
                return self._last_id


def _fault(rule: str, reason: str) -> Violation:
    return Violation(rule, reason, 0, fatal=True)
