"""A client of UMQ on a desk: wsproto at the other end, every message that comes is kept."""

import json
from collections.abc import Sequence
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)

from host_broker.access.access import Peer
from host_broker.protocols.umq.settings import UmqSettings
from tests.host_broker.desk import Desk

HOST = "127.0.0.1:8765"
Heard = str | bytes | tuple[str, Any]


def umq_desk(umq: dict[str, Any] | None = None, **more: Any) -> Desk:
    """Return a broker with these settings of UMQ."""
    return Desk(sections={"umq": UmqSettings(**(umq or {}))}, **more)


class UmqPeer:
    """One client. What is not a message is a pair: ("close", code), ("refused", status), …"""

    def __init__(
        self,
        desk: Desk,
        headers: Sequence[tuple[str, str]] = (),
        peer: Peer | None = None,
        host: str = HOST,
        target: str = "/umq",
        upgrade: bool = True,
    ) -> None:
        self.desk = desk
        self.connection = desk.open("umq", peer=peer)
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._parts: list[Any] = []
        self._last_call = 0
        self.pongs = True  # answer pings
        self.last: list[Heard] = []  # what was heard when something was said
        self.others: list[Heard] = []  # beside the answer to a call
        self.request = self._socket.send(
            Request(
                host=host,
                target=target,
                extra_headers=[(name.encode(), value.encode()) for name, value in headers],
            )
        )
        if upgrade:
            desk.send(self.connection, self.request)

    @property
    def is_closed(self) -> bool:
        return any(close.connection == self.connection for close in self.desk.closes)

    @property
    def close_reason(self) -> str:
        """Why the broker has closed it."""
        (close,) = [each for each in self.desk.closes if each.connection == self.connection]
        return close.reason

    def bytes_of(self, *messages: str | bytes) -> bytes:
        """Spell messages as this client does."""
        return b"".join(
            self._socket.send(TextMessage(each) if isinstance(each, str) else BytesMessage(each))
            for each in messages
        )

    def event(self, event: Event) -> None:
        """Say anything else of a WebSocket."""
        self.desk.send(self.connection, self._socket.send(event))

    def say(self, *messages: str | bytes) -> list[Heard]:
        """Say messages in one read; returns what is heard then."""
        if not self.is_closed:
            self.desk.send(self.connection, self.bytes_of(*messages))
        self.last = self.heard()
        return self.last

    def heard(self) -> list[Heard]:
        """Take what has come."""
        found: list[Heard] = []
        data = self.desk.got(self.connection)
        if not data:
            return found
        self._socket.receive_data(data)
        for event in self._socket.events():
            match event:
                case AcceptConnection():
                    found.append(("accepted", event.subprotocol))
                case RejectConnection():
                    found.append(("refused", event.status_code))
                case RejectData():
                    found.append(("body", bytes(event.data)))
                case CloseConnection():
                    found.append(("close", int(event.code)))
                case Ping() if self.pongs:
                    self.event(event.response())
                    found += self.heard()
                case Ping():
                    found.append(("ping", bytes(event.payload)))
                case Pong():
                    found.append(("pong", bytes(event.payload)))
                case TextMessage() | BytesMessage():
                    self._parts.append(event.data)
                    if event.message_finished:
                        empty = "" if isinstance(event.data, str) else b""
                        found.append(empty.join(self._parts))
                        self._parts.clear()
        return found

    def call(self, *said: Any, attachments: Sequence[bytes] = ()) -> str:
        """Call a method; returns the text of the answer, R or E, without its id."""
        self._last_call += 1
        head = f"A{len(attachments)}:" if attachments else ""
        number = spelled_id(self._last_call)
        heard = self.say(f"{head}C{number}:{json.dumps(list(said))}", *attachments)
        (answer,) = [
            each for each in heard if isinstance(each, str) and f"{number}:" in _head(each)
        ]
        command = _head(answer)[0]
        self.others = [each for each in heard if each is not answer]
        return command + answer.partition(f"{number}:")[2]

    def result(self, *said: Any, attachments: Sequence[bytes] = ()) -> Any:
        """Call a method that succeeds; returns what the JSON says."""
        answer = self.call(*said, attachments=attachments)
        assert answer[0] == "R", answer
        return json.loads(answer[1:])


def _head(message: str) -> str:
    """The command and the id of an answer; "" of anything else."""
    if message[:1] == "A":
        message = message.partition(":")[2]
    return message[: message.index(":") + 1] if message[:1] in "RE!" else " "


def spelled_id(number: int) -> str:
    """A number in base 36, by other means than the broker's."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[digit] + digits
        if not number:
            return digits


def joined(desk: Desk, hello: str = "", **more: Any) -> UmqPeer:
    """Return a client that is let in."""
    client = UmqPeer(desk, **more)
    assert client.heard() == [("accepted", None)]
    (welcome,) = client.say(f"H1:{hello}")
    assert isinstance(welcome, str)
    assert welcome.startswith("W1:"), welcome
    return client


def updates(heard: Sequence[Heard], topic: str = "A") -> list[dict[str, Any]]:
    """The publications of the updates of a topic among what was heard."""
    found: list[dict[str, Any]] = []
    for each in heard:
        if not isinstance(each, str):
            continue
        text = each.partition(":")[2] if each[:1] == "A" else each
        if text.startswith(f"T{topic}:"):
            found += json.loads(text.partition(":")[2])
    return found
