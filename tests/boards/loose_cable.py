"""A serial line that is lost a few times and then holds."""

import select
import socket
import threading
from typing import Self


class LooseCable:
    """Carries ``url`` to the board at ``socket_url``; the first ``lost`` who come lose it."""

    def __init__(self, socket_url: str, *, lost: int) -> None:
        host, _, port = socket_url.removeprefix("socket://").rpartition(":")
        self._board = (host, int(port))
        self._lost = lost
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"socket://127.0.0.1:{self._listener.getsockname()[1]}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(10)
        self._listener.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            client, _ = self._listener.accept()
            with client:
                if self._lost:
                    self._lost -= 1
                    continue
                with socket.create_connection(self._board, 10) as board:
                    self._carry(client, board)

    def _carry(self, client: socket.socket, board: socket.socket) -> None:
        other = {client: board, board: client}
        while not self._stop.is_set():
            for one in select.select([client, board], [], [], 0.05)[0]:
                try:
                    data = one.recv(65536)
                    if not data:
                        return
                    other[one].sendall(data)
                except ConnectionError:
                    return
