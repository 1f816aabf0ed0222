"""A server of UMQ that a test makes slow, silent or wrong; wsproto spells its frames."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)

_WAIT_S = 30.0


class Gone(Exception):
    """The client has ended the connection; ``code`` of the WebSocket, 0 without one."""

    def __init__(self, code: int) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class MeanConnection:
    """One client, before its request for a WebSocket is answered."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(_WAIT_S)
        self.sock = sock
        self.frames = WSConnection(ConnectionType.SERVER)
        self._read: list[str | bytes] = []
        self._parts: list[str | bytes] = []
        self._is_requested = False
        self._closed: int | None = None

    def accept(self) -> None:
        """Make it a WebSocket."""
        self._await_request()
        self.sock.sendall(self.frames.send(AcceptConnection()))

    def refuse(self, status: int) -> None:
        """Make it none."""
        self._await_request()
        self.sock.sendall(self.frames.send(RejectConnection(status_code=status)))

    def welcome(self, payload: str = "{}") -> str:
        """Accept, and answer the hello; returns it."""
        self.accept()
        hello = self.read()
        assert isinstance(hello, str)
        self.say(f"W1:{payload}")
        return hello

    def spelled(self, *messages: str | bytes) -> bytes:
        """Spell messages."""
        return b"".join(
            self.frames.send(TextMessage(each) if isinstance(each, str) else BytesMessage(each))
            for each in messages
        )

    def say(self, *messages: str | bytes) -> None:
        """Send messages."""
        self.sock.sendall(self.spelled(*messages))

    def read(self) -> str | bytes:
        """Return the next message. Raises ``Gone``."""
        while not self._read:
            if self._closed is not None:
                raise Gone(self._closed)
            self._receive()
        return self._read.pop(0)

    def _await_request(self) -> None:
        while not self._is_requested:
            self._receive()

    def _receive(self) -> None:
        try:
            data = self.sock.recv(65536)
        except ConnectionError:
            data = b""
        if not data:
            raise Gone(0)
        self.frames.receive_data(data)
        for event in self.frames.events():
            match event:
                case Request():
                    self._is_requested = True
                case TextMessage() | BytesMessage():
                    self._parts.append(event.data)
                    if event.message_finished:
                        self._read.append(type(event.data)().join(self._parts))  # type: ignore[arg-type]
                        self._parts.clear()
                case Ping():
                    self.sock.sendall(self.frames.send(event.response()))
                case CloseConnection():
                    with contextlib.suppress(OSError):
                        self.sock.sendall(self.frames.send(event.response()))
                    self._closed = int(event.code)


Behaviour = Callable[[MeanConnection], None]


class MeanServer:
    """Listens; the connections behave as a test says, one after the other, the last for the rest.

    A behaviour that returns ends its connection. What it raises, but ``Gone``, fails the test.
    """

    def __init__(self, *behaviours: Behaviour) -> None:
        self._behaviours = list(behaviours)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"umq://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connections = 0
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            behaviour = self._behaviours[min(self.connections, len(self._behaviours) - 1)]
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._behave, args=(behaviour, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _behave(self, behaviour: Behaviour, sock: socket.socket) -> None:
        try:
            with sock:
                behaviour(MeanConnection(sock))
        except Gone:
            pass
        except BaseException as error:
            self.errors.append(error)

    def end(self) -> None:
        """Close everything."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join(_WAIT_S)
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_WAIT_S)


@contextlib.contextmanager
def mean_server(*behaviours: Behaviour) -> Iterator[MeanServer]:
    """Run a server while the block lasts."""
    server = MeanServer(*behaviours)
    try:
        yield server
    finally:
        server.end()
    assert server.errors == []
