"""Boards that publish without pause, and come again whenever the broker falls."""

import json
import threading
import time

from host_broker.client import Client, ClientError, connect

_AGAIN_S = 0.05
_AT_ONCE = 50  # messages between two looks at what the broker took


class Load:
    """Publishes ``rate`` messages a second from a thread until ``end``."""

    def __init__(self, port: int, rate: float) -> None:
        self._url = f"fmqp://127.0.0.1:{port}"
        self._rate = rate
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent = 0  # messages that were handed to the system
        self.connections = 0
        self.newest: tuple[str, bytes] | None = None  # path and payload, of what is acknowledged
        self._thread.start()

    def end(self) -> int:
        """Stop; returns how many messages were sent."""
        self._ended.set()
        self._thread.join()
        return self.sent

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                client = connect(self._url)
            except (OSError, ClientError):
                time.sleep(_AGAIN_S)
                continue
            self.connections += 1
            try:
                with client:
                    self._publish(client)
            except (OSError, ClientError):
                continue

    def _publish(self, client: Client) -> None:
        began, of_this = time.monotonic(), 0
        board = f"board-{self.connections}"
        path, payload = f"telemetry/{board}/temperature", b""
        while not self._ended.is_set():
            due = int((time.monotonic() - began) * self._rate) + 1
            for _ in range(min(_AT_ONCE, due - of_this)):
                said = {"v": 1, "board": board, "seq": of_this, "t_ms": of_this, "value": of_this}
                payload = json.dumps({**said, "sensor": "temperature", "unit": "C"}).encode()
                client.publish(path, payload)
                of_this += 1
                self.sent += 1
            client.sync()
            self.newest = path, payload
            time.sleep(0.01)
