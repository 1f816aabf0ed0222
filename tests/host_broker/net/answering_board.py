"""A LightMQ client in a thread that answers whatever it is sent."""

import contextlib
import threading
from collections.abc import Callable, Iterator

from host_broker.client import Client, ConnectionLost, connect

_LOOK_S = 0.05  # how soon it notices that the block has ended


@contextlib.contextmanager
def answering(url: str, answer: Callable[[bytes], bytes | None]) -> Iterator[Client]:
    """Connect as ``url`` says and respond with ``answer(data)`` while the block lasts.

    None: not at all. Gives the client, which is the thread's, but may be closed.
    """
    over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(ConnectionLost):
            while not over.is_set():
                request = client.receive(_LOOK_S)
                if request is not None and (data := answer(request.payload)) is not None:
                    client.respond(request, data)

    client = connect(url)
    with client:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield client
        finally:
            over.set()
            thread.join(20)
            assert not thread.is_alive()
