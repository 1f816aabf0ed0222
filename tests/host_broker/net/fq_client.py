"""A client of fq with plain sockets, for tests of what is beside the protocol itself."""

import contextlib
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from types import TracebackType
from typing import TypeVar

from host_broker.protocols.fq.codec import (
    PERMANENT,
    TRANSIENT,
    Codec,
    read_head,
    read_origin,
    spell_bind,
    spell_greeting,
    spell_login,
    spell_message,
    spell_unbind,
)
from host_broker.protocols.fq.events import (
    BindAnswer,
    CommandGreeting,
    DataGreeting,
    ErrorText,
    Event,
    LoginAccepted,
    MessageRun,
    UnbindAnswer,
)

WITHIN_S = 20.0
ID = b"0123456789abcdef"
_T = TypeVar("_T", bound=Event)


class FqRefused(Exception):
    """The broker's last word."""


class FqClient:
    """Both connections of one client; a bind or an unbind waits for its answer."""

    def __init__(
        self,
        port: int,
        queue: bytes,
        user: bytes = b"me",
        password: bytes = b"",
        data: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._port = port
        self._tls = tls
        self._command = self._connect()
        self._codec = Codec("command", 1 << 20)
        self._events: list[Event] = []
        self._command.sendall(
            spell_greeting(CommandGreeting()) + spell_login(user, queue, password)
        )
        try:
            self.key = self._answer(LoginAccepted).key
        except BaseException:
            self._command.close()
            raise
        self._data: socket.socket | None = None
        self._data_codec = Codec("data", 8 << 20)
        self._messages: list[tuple[bytes, bytes, bytes, bytes]] = []
        self.last_ids: list[bytes] = []
        if data:
            self.open_data()

    @property
    def port(self) -> int:
        """That of our end of the connection for commands."""
        return int(self._command.getsockname()[1])

    def open_data(self) -> None:
        """Have the data connection, by which messages come and go."""
        self._data = self._connect()
        self._data.sendall(spell_greeting(DataGreeting(self.key)))

    def _connect(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._port), timeout=WITHIN_S)
        return (
            sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname="127.0.0.1")
        )

    def bind(self, exchange: bytes, program: bytes, flags: int = 0) -> int:
        """Bind; returns the route."""
        self._command.sendall(spell_bind(flags, exchange, program))
        return self._answer(BindAnswer).route

    def bind_permanently(self, exchange: bytes, program: bytes) -> int:
        """Bind for ever; returns the route."""
        return self.bind(exchange, program, PERMANENT)

    def bind_for_now(self, exchange: bytes, program: bytes) -> int:
        """Bind, and have it last no longer; returns the route."""
        return self.bind(exchange, program, TRANSIENT)

    def unbind(self, exchange: bytes, route: int) -> int:
        """Unbind; returns what the broker says."""
        self._command.sendall(spell_unbind(route, exchange))
        return self._answer(UnbindAnswer).route

    def publish(self, exchange: bytes, route: bytes, payload: bytes, id: bytes = ID) -> None:
        """Publish a message."""
        assert self._data is not None
        self._data.sendall(spell_message(exchange, route, id, payload))

    def receive(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Return the next message: exchange, route, sender, payload."""
        while not self._messages:
            assert self._read(), "the data connection was closed"
        return self._messages.pop(0)

    def rest(self) -> list[bytes]:
        """Return the payloads of all messages until the broker ends the connection."""
        while self._read():
            pass
        rest, self._messages = self._messages, []
        return [payload for *_, payload in rest]

    def _read(self) -> bool:
        """Take one read; False: it was the end."""
        assert self._data is not None
        read = self._data.recv(1 << 16)
        for event in self._data_codec.receive_data(read):
            assert isinstance(event, MessageRun), event
            self.last_ids += event.ids
            self._messages += [
                (*read_head(head), read_origin(origin)[0], payload)
                for head, origin, payload in zip(
                    event.heads, event.origins, event.payloads, strict=True
                )
            ]
        return bool(read)

    def payloads(self, count: int) -> list[bytes]:
        """Return the payloads of the next messages."""
        return [self.receive()[3] for _ in range(count)]

    def close(self) -> None:
        """Close both."""
        self._command.close()
        if self._data is not None:
            self._data.close()

    def __enter__(self) -> "FqClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self, kind: type[_T]) -> _T:
        while True:
            for event in self._events:
                if isinstance(event, ErrorText):
                    raise FqRefused(event.text.decode())
                if isinstance(event, kind):
                    self._events.remove(event)
                    return event
            read = self._command.recv(1 << 16)
            assert read, "the command connection was closed"
            self._events += self._codec.receive_data(read)


@contextlib.contextmanager
def fq_client(port: int, queue: bytes, user: bytes = b"me") -> Iterator[FqClient]:
    """A client, while the block lasts."""
    with FqClient(port, queue, user) as client:
        yield client


def submit(port: int, exchange: str, payload: bytes) -> None:
    """Publish by the page, with the route "r". When it has answered, that is kept, and all that the
    broker had read before it."""
    headers = {"X-Fq-Exchange": exchange, "X-Fq-Route": "r"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/submit", payload, headers)
    with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
        assert answer.status == 200
