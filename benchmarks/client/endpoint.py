"""The peer of every client: it does what is published to it, or fails in a chosen way.

``python -m benchmarks.client.endpoint`` prints one line of JSON, {"WIRE BEHAVIOUR": port}, serves
on loopback, and ends when its stdin does. What is published to ``bench/echo/...`` comes back,
``bench/burst`` and ``bench/drip`` ask for messages, ``bench/absorb`` says how many bytes to take
unread and to confirm with one message; the rest is taken.
"""

import contextlib
import json
import os
import socket
import sys
import threading
from collections.abc import Callable

from benchmarks.client.wires import WIRES, Wire

TOPIC = b"bench/home/00001"
PAYLOAD = b"x" * 64
FAULTS = ("mute", "half", "half_close", "huge", "no_ping", "no_read")
BEHAVIOURS = ("good", *FAULTS)
_READ_BYTES = 256 * 1024
_LIFE_S = 60.0  # nothing here lasts longer


class Endpoint:
    """One connection. ``behaviour``: how it fails once the client is connected."""

    def __init__(self, peer: socket.socket, wire: Wire, behaviour: str) -> None:
        self._peer = peer
        self._wire = wire
        self._behaviour = behaviour
        self._buffer = bytearray()

    def serve(self) -> None:
        """Answer until the client hangs up."""
        if self._behaviour == "mute":
            return self._swallow()
        while data := self._peer.recv(_READ_BYTES):
            self._buffer += data
            while frame := self._frame():
                introduced = self._wire.introduces(frame)
                self._answer(frame)
                if introduced and self._behaviour != "good":
                    return self._fail()
        return None

    def _frame(self) -> bytes:
        size = self._wire.size(self._buffer)
        if not 0 < size <= len(self._buffer):
            return b""
        frame = bytes(self._buffer[:size])
        del self._buffer[:size]
        return frame

    def _answer(self, frame: bytes) -> None:
        told = self._wire.read(frame)
        answer = self._wire.answer(frame)
        message = self._wire.publication(TOPIC, PAYLOAD)
        if told is not None:
            topic, payload = told
            if topic.startswith(b"bench/echo"):
                answer = self._wire.publication(TOPIC, payload)
            elif topic == b"bench/burst":
                answer = message * int(payload)
            elif topic == b"bench/drip":
                self._drip(message, int(payload))
            elif topic == b"bench/absorb":
                self._absorb(int(payload))
                answer = message
        if answer:
            self._peer.sendall(answer)

    def _drip(self, message: bytes, count: int) -> None:
        pause = threading.Event()
        for _ in range(count):
            self._peer.sendall(message)
            pause.wait(0.001)  # so that each is read by itself

    def _absorb(self, size: int) -> None:
        size -= len(self._buffer)
        if size < 0:
            raise ValueError("more came than was announced")
        self._buffer.clear()
        into = bytearray(_READ_BYTES)
        while size:
            got = self._peer.recv_into(into, min(size, _READ_BYTES))
            if not got:
                raise ConnectionError("hung up within what it announced")
            size -= got

    def _fail(self) -> None:
        message = self._wire.publication(TOPIC, PAYLOAD)
        match self._behaviour:
            case "half" | "half_close":
                self._peer.sendall(message[: len(message) // 2])
                if self._behaviour == "half_close":
                    return
            case "huge":
                self._peer.sendall(self._wire.huge + b"x" * 100)
            case "no_read":
                threading.Event().wait(_LIFE_S)
        self._swallow()

    def _swallow(self) -> None:
        while self._peer.recv(_READ_BYTES):
            continue


def _listen(wire: Wire, behaviour: str) -> int:
    listener = socket.socket()
    if behaviour == "no_read":
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    listener.bind(("127.0.0.1", 0))
    listener.listen(16)
    threading.Thread(target=_accept, args=(listener, wire, behaviour), daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def _accept(listener: socket.socket, wire: Wire, behaviour: str) -> None:
    while True:
        peer, _ = listener.accept()
        threading.Thread(target=_serve, args=(peer, wire, behaviour), daemon=True).start()


def _serve(peer: socket.socket, wire: Wire, behaviour: str) -> None:
    peer.settimeout(_LIFE_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A client that gives up is what half of this is about.
    with peer, contextlib.suppress(OSError):
        Endpoint(peer, wire, behaviour).serve()


def main(say: Callable[[str], object] = sys.stdout.write) -> None:
    """Serve until stdin ends."""
    ports = {
        f"{name} {behaviour}": _listen(wire, behaviour)
        for name, wire in WIRES.items()
        for behaviour in BEHAVIOURS
    }
    say(json.dumps(ports) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # threads in recv() would hold it for a minute


if __name__ == "__main__":
    main()
