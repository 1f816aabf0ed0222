"""A TCP relay that cuts its connections in the middle, as networks do."""

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator

_RST = struct.pack("ii", 1, 0)


class Relay:
    """Passes bytes on to a port; each connection is reset after so many bytes from its client.

    What the client's kernel had taken and the relay not yet passed on is lost, with the half
    message at the cut. When ``cuts`` are used up, connections last. ``cut_now`` resets the living
    one; ``connections`` counts all that ever were.
    """

    def __init__(self, port: int, cuts: Iterable[int]) -> None:
        self.connections = 0
        self._port = port
        self._cuts = iter(cuts)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self._cut = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"fmqp://127.0.0.1:{self._listening.getsockname()[1]}"

    def cut_now(self) -> None:
        self._cut.set()

    def _serve(self) -> None:
        while not self._ended.is_set():
            if not select.select([self._listening], [], [], 0.05)[0]:
                continue
            client, _ = self._listening.accept()
            self.connections += 1
            with client, socket.create_connection(("127.0.0.1", self._port)) as broker:
                self._pass_on(client, broker, next(self._cuts, None))
                for end in (client, broker):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST)

    def _pass_on(self, client: socket.socket, broker: socket.socket, cut: int | None) -> None:
        passed = 0
        with contextlib.suppress(ConnectionError):
            while not self._ended.is_set():
                if self._cut.is_set():
                    self._cut.clear()
                    return
                for end in select.select([client, broker], [], [], 0.05)[0]:
                    data = end.recv(16384)
                    if not data:
                        return
                    if end is broker:
                        client.sendall(data)
                        continue
                    whole = cut is None or passed + len(data) < cut
                    broker.sendall(data if whole else data[: (cut or 0) - passed])
                    passed += len(data)
                    if not whole:
                        return


@contextlib.contextmanager
def relay(port: int, cuts: Iterable[int] = ()) -> Iterator[Relay]:
    """Run a relay while the block lasts."""
    running = Relay(port, cuts)
    running._thread.start()
    try:
        yield running
    finally:
        running._ended.set()
        running._thread.join(20)
        running._listening.close()
        assert not running._thread.is_alive()
