"""A play for the whole broker: honest clients, hostile ones, and watchers who see everything.

The script comes from a seed. What the honest say is given to the naive broker too; the hostile say
valid traffic with bytes changed, lost, doubled and moved, in both protocols, between any two reads
of the others. Nobody who watches may see a difference in what the honest said.
"""

from collections.abc import Callable
from random import Random
from typing import Protocol

from host_broker.bus.publication import pack, unpack
from host_broker.protocols.lightmq.codec import Codec
from tests.host_broker.properties.naive import Block, NaiveBroker

_BOARD = Codec("client")
_HONEST = b"honest"
_PLACES = [b"honest/a", b"honest/b", b"honest/a/b", b"honest/*", b"/honest/a/"]
_BODIES = [b"1", b"22", b"22", b"x" * 30]
# None of it is what the honest call themselves, and four changed bytes do not make it so.
_ELSEWHERE = [b"a", b"b", b"a/b", b"*", b"*/*", b"*/a", b"*/*/*", b"$", b"$/signals/stop", b"\xff"]


class Stage(Protocol):
    """A broker to play on."""

    def open(self, protocol: str) -> int:
        """Connect."""

    def send(self, connection: int, data: bytes, done: bool) -> None:
        """Say something; ``done``: it ends with a packet, all of which is to take effect now."""

    def close(self, connection: int) -> None:
        """Disconnect, and wait until that has taken effect."""

    def got(self, connection: int, length: Callable[[bytes], bool]) -> bytes:
        """All that a connection was sent; waits until ``length`` says that it is enough."""


def _fmqp(random: Random, topics: list[bytes]) -> bytes:
    """A few packets, mostly plain ones, often repeated."""
    said = b""
    for _ in range(random.randrange(1, 6)):
        topic, body = random.choice(topics), random.choice(_BODIES)
        flags = random.choice([0, 0, 0, 0, 4, 4, 8, 0x0C, 0x80, 0xC0, 0x90, 0xA0, 0xE0, 0x20, 2])
        if flags & 0x80 or random.random() < 0.1:
            body = b""
        said += pack(flags, topic, body) * random.choice([1, 1, 1, 3, 20])
    return said


def _lightmq(random: Random, name: str) -> bytes:
    """A board's whole conversation."""
    frames = [
        _BOARD.send(random.randrange(0x10000), random.choice(_BODIES)),
        _BOARD.ping(random.randrange(0x10000)),
        _BOARD.pong(random.randrange(0x10000)),
        _BOARD.sendresp(random.randrange(0x10000), b"ok"),
    ]
    return _BOARD.connect(name) + b"".join(random.choices(frames, k=random.randrange(12)))


def _mutated(random: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randrange(1, 5)):
        start = random.randrange(len(changed) + 1)
        end = min(len(changed), start + random.randrange(1, 9))
        piece = changed[start:end]
        match random.randrange(5):
            case 0:
                changed[start:end] = random.randbytes(len(piece))
            case 1:
                del changed[start:end]
            case 2:
                changed[start:start] = piece
            case 3:
                other = random.randrange(len(changed) + 1)
                del changed[start:end]
                changed[other:other] = piece
            case 4:
                for place in range(start, end):
                    changed[place] ^= 1 << random.randrange(8)
    return bytes(changed)


def _cut(random: Random, data: bytes) -> list[bytes]:
    edges = sorted(random.randrange(len(data) + 1) for _ in range(random.randrange(4)))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


class _Hostile:
    """Somebody who has something prepared, and says it piece by piece."""

    def __init__(self, random: Random, stage: Stage) -> None:
        self._random, self._stage = random, stage
        self._connection = 0
        self._pieces: list[bytes] = []

    def act(self) -> None:
        if not self._pieces:
            if self._connection:
                self._stage.close(self._connection)
            protocol = self._random.choice(["fmqp", "fmqp", "lightmq", "lightmq+fmqp"])
            self._connection = self._stage.open(protocol)
            self._pieces = _cut(self._random, self._prepared(protocol))
        self._stage.send(self._connection, self._pieces.pop(0), done=False)

    def _prepared(self, protocol: str) -> bytes:
        random = self._random
        if random.random() < 0.2:  # another's words, or noise
            protocol = random.choice(["fmqp", "lightmq", "lightmq+fmqp", ""])
        if protocol == "lightmq":
            return _mutated(random, _lightmq(random, random.choice(["a", "b", "*", "a/b"])))
        if protocol == "lightmq+fmqp":
            inside = _mutated(random, b"".join(_fmqp(random, _ELSEWHERE) for _ in range(4)))
            sends = [_BOARD.send(7, piece) for piece in _cut(random, inside)]
            return _mutated(random, _BOARD.connect("b") + b"".join(sends))
        if protocol == "fmqp":
            return _mutated(random, b"".join(_fmqp(random, _ELSEWHERE) for _ in range(4)))
        return random.randbytes(random.randrange(1, 200))


class Play:
    """One script on one stage; ``run`` fails where the stage and the text differ."""

    def __init__(self, seed: int, stage: Stage, max_body: int, hard_body_limit: int) -> None:
        self._random = Random(seed)
        self._stage = stage
        self._naive = NaiveBroker(max_body, hard_body_limit)
        self._hostile = [_Hostile(self._random, stage) for _ in range(3)]
        self._seen: dict[int, list[Block]] = {}  # by those who watch, says the naive broker

    def run(self, turns: int) -> int:
        """Play; returns how many packets were seen by all who watch."""
        everything = b"".join(
            pack(flags, b"/".join([b"*"] * depth), b"")
            for depth in (1, 2, 3)
            for flags in (0x80, 0xA0)
        )
        watchers = [self._enter() for _ in range(2)]
        self._say(watchers[0], everything)
        clients = [self._enter() for _ in range(3)]
        board = self._enter("lightmq")
        status, down = b"lightmq/honest/status", b"lightmq/honest/down"
        self._say(
            board,
            _BOARD.connect("honest"),
            pack(4, status, b"online") + pack(0x80, down, b""),
        )
        for _ in range(turns):
            speaker = self._random.choice([*clients, board])
            if speaker == board:
                body = self._random.choice(_BODIES)
                self._say(board, _BOARD.send(7, body), pack(0, b"lightmq/honest/up", body))
            else:
                self._say(speaker, _fmqp(self._random, _PLACES))
        self._say(watchers[1], everything)  # late: what is retained
        for client in clients:
            self._leave(client)
        self._naive.received(board, pack(0xC0, down, b"") + pack(4, status, b"offline"))
        self._leave(board)
        return sum(self._compare(watcher) for watcher in watchers)

    def _enter(self, protocol: str = "fmqp") -> int:
        connection = self._stage.open(protocol)
        self._naive.opened(connection)
        self._seen[connection] = []
        return connection

    def _say(self, connection: int, data: bytes, means: bytes | None = None) -> None:
        """Say it with interruptions; ``means`` is that in FMQP."""
        pieces = _cut(self._random, data)
        for piece in pieces[:-1]:
            self._stage.send(connection, piece, done=False)
            self._random.choice(self._hostile).act()
        self._stage.send(connection, pieces[-1], done=True)
        self._naive.received(connection, data if means is None else means)
        self._random.choice(self._hostile).act()

    def _leave(self, connection: int) -> None:
        self._stage.close(connection)
        self._naive.closed(connection)

    def _compare(self, watcher: int) -> int:
        blocks = [
            [each for each in block if _is_honest(each)] for block in self._naive.got(watcher)
        ]
        expected = sum(map(len, blocks))
        got = self._stage.got(watcher, lambda data: len(_honest(data)) >= expected)
        packets = _honest(got)
        for block in blocks:
            assert sorted(packets[: len(block)]) == sorted(block)
            del packets[: len(block)]
        assert packets == []
        return expected


def _is_honest(packet: bytes) -> bool:
    topic = packet[6 : 6 + packet[1]]
    return _HONEST in topic.split(b"/")[:2]


def _honest(data: bytes) -> list[bytes]:
    return [packet for each in unpack(data) if _is_honest(packet := pack(*each))]
