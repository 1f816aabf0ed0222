"""The WebSocket beneath UMQ: bytes to whole messages, and back. wsproto reads and spells frames.

No extensions: nothing is compressed, so what is long here was as long on its way.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from wsproto import ConnectionType, WSConnection
from wsproto.connection import Connection, ConnectionState
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
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from host_broker.wire.budget import Budget

PATH = "/umq"
MAX_HEAD: Final = 16 * 1024  # bytes of a request or its answer
NORMAL, GOING_AWAY, PROTOCOL_ERROR, TOO_BIG = 1000, 1001, 1002, 1009
_END_OF_HEAD = re.compile(rb"\n\r?\n")
_STEP_BYTES = 64 * 1024  # given to wsproto at once

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A request for a WebSocket, to be accepted or refused. Names of headers are lower-case."""

    target: str
    host: str
    headers: Headers
    subprotocols: Sequence[str]

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of all headers of this name."""
        return tuple(value for each, value in self.headers if each == name)


@dataclass(frozen=True, slots=True)
class Malformed:
    """What came is no request for a WebSocket; it has to be refused."""

    status: int
    reason: str
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Accepted:
    """The server has accepted."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server has refused, with this status and text."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class TooLong:
    """A message is longer than it may be: the name of the limit."""

    limit: str
    most: int


@dataclass(frozen=True, slots=True)
class PongFrame:
    """The other end has answered a ping."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """The other end has closed the WebSocket, or broken it."""

    code: int
    reason: str


Item = Upgrade | Malformed | Accepted | Refused | TooLong | PongFrame | Ended | str | bytes


class WebSocket:
    """One end of a WebSocket. ``out`` is what is to be sent.

    After ``Malformed``, ``Refused``, ``TooLong`` and ``Ended`` nothing more comes.
    """

    def __init__(
        self,
        role: Literal["server", "client"],
        max_text: int,
        max_binary: int,
        held: Budget | None = None,
    ) -> None:
        """``held``: the memory of unfinished messages of all connections."""
        self.out = bytearray()
        self.pings = 0  # of the other end
        self._max_text, self._max_binary = max_text, max_binary
        self._held = held if held is not None else Budget(1 << 62)
        self._is_server = role == "server"
        kind = ConnectionType.SERVER if self._is_server else ConnectionType.CLIENT
        self._socket: WSConnection | Connection = WSConnection(kind)
        self._head: bytearray | None = bytearray()  # None: it is over
        self._waits = False  # an ``Upgrade`` is to be decided
        self._unread = bytearray()
        self._unfinished = bytearray()  # of a message: as bytes, since fragments may be tiny
        self._ended = False
        self._refusal: tuple[int, bytearray] | None = None  # what the server answers

    # ---- what comes ----

    def receive_data(self, data: bytes) -> list[Item]:
        """Take one read; returns all that it completes."""
        self.feed(data)
        return list(self.items())

    def feed(self, data: bytes) -> None:
        """Take one read, of which ``items`` tells."""
        if not self._ended:
            self._unread += data

    def items(self) -> Iterator[Item]:
        """Give what has come, one by one: what is behind it is looked at only then.

        So what is said meanwhile is said before a close that is behind is answered. Whoever ends
        before the end goes on by calling it again.
        """
        while not (self._ended or self._waits):
            if self._head is not None:
                head = self._whole_head()
                if head is None:
                    return
                if isinstance(head, Malformed):
                    yield self._end(head)
                    return
                yield from self._fed(head)
                continue
            yield from self._fed(b"")  # what is in the WebSocket already
            if not self._unread or self._ended:
                return
            data = bytes(self._unread[:_STEP_BYTES])
            del self._unread[:_STEP_BYTES]
            yield from self._fed(data)

    def _whole_head(self) -> bytes | Malformed | None:
        """Return the head when it is whole; what is behind it stays unread."""
        head = self._head
        assert head is not None  # noqa: S101 - for mypy
        before = max(0, len(head) - 3)
        head += self._unread
        self._unread.clear()
        end = _END_OF_HEAD.search(head, before)
        if end is None:
            if len(head) > MAX_HEAD:
                return Malformed(431, "the head of the request is too long")
            return None
        self._head = None
        self._unread += head[end.end() :]
        return bytes(head[: end.end()])

    def _fed(self, data: bytes) -> Iterator[Item]:
        try:
            if data:
                self._socket.receive_data(data)
            for event in self._socket.events():
                item = self._take(event)
                if item is not None:
                    yield item
                if self._ended:
                    return
        except RemoteProtocolError as error:
            yield self._end(_malformed(error))
        except (LocalProtocolError, ValueError) as error:  # names that are none
            yield self._end(Malformed(400, str(error)))

    def _take(self, event: Event) -> Item | None:
        match event:
            case TextMessage():
                return self._text(event)
            case BytesMessage():
                return self._binary(event)
            case Ping():
                self.pings += 1
                self._say(event.response())
            case Pong():
                return PongFrame(bytes(event.payload))
            case CloseConnection():
                if self._socket.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
                    self._say(event.response())
                return self._end(Ended(int(event.code), event.reason or ""))
            case Request():
                self._waits = True
                headers = [
                    (name.decode("latin-1").lower(), value.decode("latin-1"))
                    for name, value in event.extra_headers
                ]
                return Upgrade(event.target, event.host, headers, tuple(event.subprotocols))
            case AcceptConnection():
                return Accepted()
            case RejectConnection():
                self._refusal = event.status_code, bytearray()
                if not event.has_body:
                    return self._end(Refused(event.status_code, ""))
            case RejectData() if self._refusal is not None:
                status, body = self._refusal
                body += event.data
                if event.body_finished or len(body) > MAX_HEAD:
                    return self._end(Refused(status, body.decode(errors="replace")))
        return None

    def _text(self, event: TextMessage) -> Item | None:
        data, is_last = event.data.encode(), event.message_finished
        whole = self._put_together(data, self._max_text, "umq.max_text", is_last=is_last)
        return whole.decode() if isinstance(whole, bytes) else whole

    def _binary(self, event: BytesMessage) -> Item | None:
        data, is_last = bytes(event.data), event.message_finished
        return self._put_together(data, self._max_binary, "umq.max_attachment", is_last=is_last)

    def _put_together(self, data: bytes, most: int, limit: str, *, is_last: bool) -> Item | None:
        """Return the whole message that a fragment ends, or the limit that it breaks."""
        if len(self._unfinished) + len(data) > most:
            return self._end(TooLong(limit, most))
        if len(data) > self._held.left:
            return self._end(TooLong("bus.max_held_bytes", self._held.left))
        if is_last:
            whole = bytes(self._unfinished) + data if self._unfinished else data
            self._give_back()
            return whole
        self._held.take(len(data))
        self._unfinished += data
        return None

    def _give_back(self) -> None:
        self._held.give(len(self._unfinished))
        self._unfinished.clear()

    def _end(self, last: Item) -> Item:
        """Nothing comes behind this."""
        self._ended = True
        self._forget()
        return last

    def _forget(self) -> None:
        self._give_back()
        self._unread.clear()

    # ---- what is said ----

    def request(self, host: str, headers: Headers = (), target: str = PATH) -> None:
        """Ask for a WebSocket, as a client."""
        extra = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        self._say(Request(host=host, target=target, extra_headers=extra))

    def accept(self, subprotocol: str | None = None) -> None:
        """Accept, as a server; what the client has said already comes now."""
        self._say(AcceptConnection(subprotocol=subprotocol))
        self._waits = False
        opened = self._socket.connection if isinstance(self._socket, WSConnection) else None
        assert opened is not None  # noqa: S101 - it is accepted
        # What was for the handshake would keep the head of the request as long as this lasts.
        self._socket = opened

    def refuse(self, status: int, body: str, headers: Headers = ()) -> None:
        """Refuse, as a server, with a body of JSON; it is over."""
        data = body.encode()
        lines = [
            f"HTTP/1.1 {status} {_REASONS.get(status, 'Refused')}",
            "Content-Type: application/json; charset=utf-8",
            f"Content-Length: {len(data)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers),
        ]
        self.out += "\r\n".join([*lines, "", ""]).encode("latin-1") + data
        self.close()

    def send(self, message: str | bytes) -> None:
        """Send a text or binary message; half of a surrogate pair, which is no UTF-8, as ``?``."""
        if isinstance(message, bytes):
            self._say(BytesMessage(message))
            return
        try:
            self._say(TextMessage(message))
        except UnicodeEncodeError:  # JSON can spell it, so names and mistakes may have it
            self._say(TextMessage(message.encode(errors="replace").decode()))

    def ping(self, payload: bytes) -> None:
        """Ask for a pong."""
        self._say(Ping(payload))

    def end(self, code: int = NORMAL, reason: str = "") -> None:
        """Close the WebSocket, in order."""
        self._say(CloseConnection(code, reason))
        self.close()

    def close(self) -> None:
        """The connection is over: take nothing more."""
        self._ended = True
        self._head = None
        self._forget()

    def _say(self, event: Event) -> None:
        """Have it in ``out``; nothing is said any more once the WebSocket is closed."""
        if not isinstance(event, Request | AcceptConnection) and self._socket.state not in (
            ConnectionState.OPEN,
            ConnectionState.REMOTE_CLOSING,
        ):
            return
        self.out += self._socket.send(event)


_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    426: "Upgrade Required",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


def _malformed(error: RemoteProtocolError) -> Malformed:
    hint = error.event_hint
    if "'Connection: Upgrade'" in str(error) or "'Upgrade:" in str(error):
        return Malformed(426, "this is UMQ over WebSocket", (("Upgrade", "websocket"),))
    status = hint.status_code if isinstance(hint, RejectConnection) else 400
    headers = (
        ()
        if not isinstance(hint, RejectConnection)
        else tuple(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in hint.headers
        )
    )
    return Malformed(status, str(error), headers)
