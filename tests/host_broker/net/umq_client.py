"""A client of UMQ with a plain socket, which reads when it is told to."""

import json
import socket
import ssl
from collections.abc import Sequence
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)


class Closed(Exception):
    """The broker has closed the WebSocket, or refused it; ``code`` of either."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class UmqClient:
    """Connects, and says hello unless ``hello`` is None."""

    def __init__(
        self,
        sock: socket.socket,
        hello: str | None = "",
        host: str = "127.0.0.1",
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.sock = sock
        sock.settimeout(20)
        self._socket = WSConnection(ConnectionType.CLIENT)
        self._parts: list[Any] = []
        self._messages: list[str | bytes] = []
        self._closed = 0
        self._last_call = 0
        self.accepted = False
        self.updates: list[dict[str, Any]] = []  # of all topics, as they came
        extra = [(name.encode(), value.encode()) for name, value in headers]
        sock.sendall(self._socket.send(Request(host=host, target="/umq", extra_headers=extra)))
        while not self.accepted:
            self._read()
        self.welcome: Any = None
        if hello is not None:
            self.say(f"H1:{hello}")
            welcome = self.hear()
            assert isinstance(welcome, str)
            if not welcome.startswith("W1:"):
                raise Closed(int(welcome[3]))
            self.welcome = json.loads(welcome[3:])

    def close(self) -> None:
        self.sock.close()

    def say(self, *messages: str | bytes) -> None:
        for each in messages:
            event = TextMessage(each) if isinstance(each, str) else BytesMessage(each)
            self.sock.sendall(self._socket.send(event))

    def hear(self) -> str | bytes:
        """Return the next message. Raises ``Closed``."""
        while not self._messages:
            self._read()
        return self._messages.pop(0)

    def call(self, *said: Any, attachment: bytes | None = None) -> Any:
        """Call a method; returns what R says, with its attachments, or the text of E."""
        self._last_call += 1
        number = f"{self._last_call:X}"
        text = f"C{number}:{json.dumps(said)}"
        self.say(text) if attachment is None else self.say(f"A1:{text}", attachment)
        while True:
            message = self.hear()
            assert isinstance(message, str)
            head, message = _head(message)
            attachments = [self.hear() for _ in range(head)]
            if message.startswith("T"):
                self._note(message, attachments)
            elif message.startswith(f"R{number}:"):
                answer = json.loads(message.partition(":")[2])
                return (answer, attachments) if attachments else answer
            elif message.startswith(f"E{number}:"):
                return message.partition(":")[2]
            else:
                raise AssertionError(message)

    def next_update(self) -> dict[str, Any]:
        """Wait for the next publication that is told."""
        while not self.updates:
            message = self.hear()
            assert isinstance(message, str)
            head, message = _head(message)
            attachments = [self.hear() for _ in range(head)]
            assert message.startswith("T"), message
            self._note(message, attachments)
        return self.updates.pop(0)

    def _note(self, message: str, attachments: list[str | bytes]) -> None:
        for each in json.loads(message.partition(":")[2]):
            if each.get("attachment"):
                each["body"] = attachments.pop(0)
            self.updates.append(each)

    def _read(self) -> None:
        if self._closed:
            raise Closed(self._closed)
        data = self.sock.recv(1 << 16)
        if not data:
            raise Closed(1006)
        self._socket.receive_data(data)
        for event in self._socket.events():
            match event:
                case AcceptConnection():
                    self.accepted = True
                case RejectConnection():
                    self.accepted = True
                    self._closed = event.status_code
                case RejectData() if event.data:
                    self._messages.append(bytes(event.data).decode())
                case CloseConnection():
                    self._closed = int(event.code)
                case Ping():
                    self.sock.sendall(self._socket.send(event.response()))
                case TextMessage() | BytesMessage():
                    self._parts.append(event.data)
                    if event.message_finished:
                        empty: Any = "" if isinstance(event.data, str) else b""
                        self._messages.append(empty.join(self._parts))
                        self._parts.clear()


def _head(message: str) -> tuple[int, str]:
    """The number of attachments, and what follows."""
    if message[0] != "A":
        return 0, message
    count, _, rest = message[1:].partition(":")
    return int(count, 36), rest


def connected(port: int, **more: Any) -> UmqClient:
    return UmqClient(socket.create_connection(("127.0.0.1", port), timeout=20), **more)


def connected_by_tls(
    port: int, ca: str, certificate: tuple[str, str] | None = None, **more: Any
) -> UmqClient:
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    plain = socket.create_connection(("127.0.0.1", port), timeout=20)
    return UmqClient(context.wrap_socket(plain, server_hostname="127.0.0.1"), **more)
