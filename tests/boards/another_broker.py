"""A broker that is another one when it matters: it was asked before the run, and answered."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from threading import Thread


@contextmanager
def led_elsewhere(first: str, then: str) -> Iterator[str]:
    """Lead the first connection, which asks before the run, to a broker, all others elsewhere."""
    places = chain([first], repeat(then))
    ends: list[socket.socket] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def lead() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                host, _, port = next(places).rpartition(":")
                server = socket.create_connection((host, int(port)))
                ends.extend((client, server))
                for pair in ((client, server), (server, client)):
                    Thread(target=pump, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        Thread(target=lead, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)  # or ``accept`` would go on
    for end in ends:
        end.close()
