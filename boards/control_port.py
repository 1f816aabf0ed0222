"""A control port: JSON lines over TCP on loopback, one answer per request.

Request ``{"do": NAME, …}``, answer ``{"ok": true, …}`` or ``{"ok": false, "error": "…"}``. A line
that is no JSON ends the connection. Virtual boards and the fault proxy have one.
"""

import json
import selectors
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

_MAX_REQUEST_BYTES = 4096
_MAX_CLIENTS = 16
_MAX_ANSWER_BYTES = 1 << 20

Request = Mapping[str, Any]
Answer = Callable[[Mapping[str, Any]], None]
Action = Callable[[Request, Answer], None]


class Refused(Exception):
    """A request that cannot be done; its message is the answer."""


def ask(port: int, what: str, *, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    """Do one request at the control port ``port`` on 127.0.0.1, within ``timeout_s`` in all.

    Raises ``Refused`` with the reason, ``TimeoutError``, ``OSError``, ``ValueError`` for an answer
    that is none.
    """
    deadline = time.monotonic() + timeout_s
    line = b""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as link:
        link.sendall(json.dumps({"do": what, **arguments}).encode() + b"\n")
        while not line.endswith(b"\n"):
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError
            link.settimeout(left)
            chunk = link.recv(65536)
            if not chunk:
                raise ConnectionError("it closed the connection")
            line += chunk
            if len(line) > _MAX_ANSWER_BYTES:
                raise ConnectionError("the answer is too long")
    answer = json.loads(line)
    if not isinstance(answer, dict) or not answer.get("ok"):
        raise Refused(str(answer.get("error") if isinstance(answer, dict) else answer))
    return answer


class ControlServer:
    """Serves ``actions`` by the name in ``do``. Its owner runs the selector.

    ``selector`` keys carry a callable as data, to be called with the ready events. An action calls
    its ``answer`` once, now or later, with the results, or raises ``Refused``. More than
    ``max_clients`` at once are turned away.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        actions: Mapping[str, Action],
        *,
        max_clients: int = _MAX_CLIENTS,
    ) -> None:
        self._selector = selector
        self._actions = actions
        self._max_clients = max_clients
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self._clients: dict[socket.socket, bytearray] = {}
        selector.register(self._listener, selectors.EVENT_READ, self._accept)

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop listening and drop everybody."""
        self._selector.unregister(self._listener)
        self._listener.close()
        for client in list(self._clients):
            self._drop(client)

    def _accept(self, _events: int) -> None:
        client, _ = self._listener.accept()
        if len(self._clients) >= self._max_clients:
            client.close()
            return
        client.setblocking(False)
        self._clients[client] = bytearray()
        self._selector.register(client, selectors.EVENT_READ, lambda _: self._readable(client))

    def _drop(self, client: socket.socket) -> None:
        if self._clients.pop(client, None) is not None:
            self._selector.unregister(client)
            client.close()

    def _readable(self, client: socket.socket) -> None:
        try:
            data = client.recv(_MAX_REQUEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer = self._clients[client]
        buffer += data
        if not data or len(buffer) > _MAX_REQUEST_BYTES:
            self._drop(client)
            return
        while client in self._clients and (end := buffer.find(b"\n")) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            try:
                request = json.loads(line)
            except ValueError as error:
                # A page in a browser can have requests sent to any port of this machine. What
                # follows its first line, which is HTTP's, could be one of ours.
                self._send(client, {"ok": False, "error": f"this is no JSON: {error}"})
                self._drop(client)
                return
            self._serve(request, lambda result: self._send(client, result))

    def _serve(self, request: object, send: Callable[[Mapping[str, Any]], None]) -> None:
        try:
            action = (
                self._actions.get(str(request.get("do"))) if isinstance(request, dict) else None
            )
            if action is None or not isinstance(request, dict):
                raise Refused(f"a request is {{'do': NAME}}, NAME one of {sorted(self._actions)}")
            action(request, lambda result: send({"ok": True, **result}))
        except (Refused, ValueError) as error:
            send({"ok": False, "error": str(error)})

    def _send(self, client: socket.socket, result: Mapping[str, Any]) -> None:
        if client not in self._clients:
            return  # it did not wait for its answer
        try:
            client.sendall(json.dumps(dict(result)).encode() + b"\n")
        except OSError:
            self._drop(client)
