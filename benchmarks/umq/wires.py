"""What clients of each program say over their WebSocket, and what they are told.

A publication is one WebSocket message for everybody. Of what is delivered a mark is counted that
each delivery has once.
"""

import base64
import json
import random
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct

from benchmarks.broker.peers import PeerFailed

TEXT, BINARY = 1, 2
_OPCODES = {TEXT: 0x81, BINARY: 0x82}  # each message is one frame
_MASKED = 0x80
_SHORT, _MEDIUM = 125, 126
_LENGTH = Struct(">H")
_PUBLICATIONS = 1024
_TOPICS = 64
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SEED = 20
_ANSWER_S = 20.0
_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published: a topic and a text of 16 to 112 letters, which no other one has."""

    place: int
    text: str


@dataclass(frozen=True, slots=True)
class Wire:
    """One program's words. ``greet``: what both clients say first, and what then has been heard;
    ``subscribe``: the same, of a subscriber. ``mark``: what each delivery has once."""

    path: str
    opcode: int
    greet: tuple[str, bytes]
    subscribe: tuple[str, bytes]
    publication: Callable[[int, Publication], str]
    mark: bytes

    def block(self, publications: Sequence[Publication]) -> list[bytes]:
        """Return a frame for each publication."""
        return [
            frame(self.publication(number, each), self.opcode)
            for number, each in enumerate(publications)
        ]

    def client(self, port: int, *, hears: bool) -> socket.socket:
        """Connect, and say what comes before publications. Raises ``PeerFailed``."""
        raw = socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = base64.b64encode(_CHANCE.randbytes(16)).decode()
        head = [
            f"GET {self.path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        ]
        try:
            raw.sendall("\r\n".join([*head, "", ""]).encode())
            _until(raw, b"\r\n\r\n")
            for said, heard in (self.greet, self.subscribe)[: 1 + hears]:
                if said:
                    raw.sendall(frame(said, self.opcode))
                    _until(raw, heard)
        except (OSError, PeerFailed):
            raw.close()
            raise
        return raw


def publications() -> list[Publication]:
    """Return what is published again and again: always the same, in no order of topics."""
    chance = random.Random(_SEED)
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = []
    for number in range(_PUBLICATIONS):
        size = chance.randrange(16, 113)
        text = f"{number:04d}" + "".join(chance.choices(letters, k=size - 4))
        found.append(Publication(chance.randrange(_TOPICS), text))
    return found


def frame(text: str, opcode: int) -> bytes:
    """Return a client's frame with a random mask."""
    data, mask = text.encode(), _CHANCE.randbytes(4)
    size = len(data)
    head = bytes([_OPCODES[opcode]])
    if size <= _SHORT:
        head += bytes([_MASKED | size])
    else:
        head += bytes([_MASKED | _MEDIUM]) + _LENGTH.pack(size)
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))


def _until(raw: socket.socket, mark: bytes) -> None:
    said = b""
    while mark not in said:
        more = raw.recv(_READ_BYTES)
        if not more:
            raise PeerFailed(f"it hung up after {said[-200:]!r}")
        said += more


def _base_36(number: int) -> str:
    spelled = ""
    while number:
        number, digit = divmod(number, 36)
        spelled = _DIGITS[digit] + spelled
    return spelled or "0"


def _umq(number: int, publication: Publication) -> str:
    call = ["publish", f"fleet/{publication.place:02d}/reading", publication.text]
    return f"C{_base_36(number + 100)}:{json.dumps(call, separators=(',', ':'))}"


def _nats(number: int, publication: Publication) -> str:
    subject = f"fleet.{publication.place:02d}.reading"
    return f"PUB {subject} {len(publication.text)}\r\n{publication.text}\r\n"


def _relay(number: int, publication: Publication) -> str:
    topic = f"fleet/{publication.place:02d}/reading"
    return json.dumps({"topic": topic, "text": publication.text}, separators=(",", ":"))


_CHANCE = random.Random(_SEED)
UMQ = Wire(
    "/umq",
    TEXT,
    ("H1:", b"W1:"),
    ('C1:["subscribe","fleet/**","A"]', b"R1:"),
    _umq,
    b'"topic":',
)
NATS = Wire(
    "/",
    BINARY,
    ('CONNECT {"verbose":false}\r\nPING\r\n', b"PONG\r\n"),
    ("SUB fleet.> 1\r\nPING\r\n", b"PONG\r\n"),
    _nats,
    b"MSG fleet.",
)
RELAY = Wire("/", TEXT, ("", b""), ("hear", b"heard"), _relay, b'"topic":')
