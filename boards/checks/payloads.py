"""Payloads that prove what became of them, as firmware/node/traffic.py makes and judges them.

Streams of numbered ones, board to host and host to board: all come, once, in order.
"""

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boards.session.board_session import BoardSession, CheckFailed
from boards.session.observer import Observer, connect_fmqp

_HEAD = struct.Struct(">II")  # CRC-32 of all after it, number


def patterned(size: int, seed: int) -> bytes:
    """Return a payload of ``size`` bytes in which every value occurs and any shift shows."""
    return bytes((seed + 7 * i) & 255 for i in range(size))


def numbered(size: int, number: int) -> bytes:
    """Return a payload of ``size`` bytes, at least 8, that carries its number and its checksum."""
    rest = struct.pack(">I", number) + patterned(size - _HEAD.size, 0)
    return struct.pack(">I", zlib.crc32(rest)) + rest


def number_of(payload: bytes) -> int | None:
    """Return the number of a ``numbered`` payload, None if it is not as it was made."""
    if len(payload) < _HEAD.size:
        return None
    check, number = _HEAD.unpack_from(payload)
    return number if zlib.crc32(payload[4:]) == check else None


@dataclass(frozen=True, slots=True)
class StreamResult:
    """What became of a stream of numbered payloads."""

    expected: int
    count: int  # that came, whatever they were
    missing: int
    doubled: int
    late: int  # came after one with a higher number
    corrupt: int

    @property
    def is_good(self) -> bool:
        """True if all came once, in order, unchanged."""
        return self.count == self.expected and not (
            self.missing or self.doubled or self.late or self.corrupt
        )

    def __str__(self) -> str:
        wrong = ("missing", "doubled", "late", "corrupt")
        said = [f"{getattr(self, name)} {name}" for name in wrong if getattr(self, name)]
        return f"expected {self.expected} numbered messages in order, got {self.count}" + (
            f": {', '.join(said)}" if said else ""
        )


def stream_result(payloads: Sequence[bytes], expected: int) -> StreamResult:
    """Judge payloads in the order in which they came."""
    numbers = [number_of(payload) for payload in payloads]
    good = [number for number in numbers if number is not None]
    seen: set[int] = set()
    doubled = late = 0
    highest = -1
    for number in good:
        if number in seen:
            doubled += 1
        elif number < highest:
            late += 1
        seen.add(number)
        highest = max(highest, number)
    return StreamResult(
        expected=expected,
        count=len(payloads),
        missing=len(set(range(expected)) - seen),
        doubled=doubled,
        late=late,
        corrupt=len(numbers) - len(good),
    )


def board_result(result: Mapping[str, int], expected: int) -> StreamResult:
    """Return what a board says, by its step ``take`` of kind numbered, of ``expected`` payloads."""
    return StreamResult(
        expected=expected,
        missing=result["missing"] + max(0, expected - result["next"]),
        **{name: result[name] for name in ("count", "doubled", "late", "corrupt")},
    )


def expect_heard(observer: Observer, count: int, within_s: float) -> None:
    """Wait until the host has heard ``count`` messages of a board; raise if any came to harm."""
    seen = observer.settle(count, within_s)
    expect("from the board", stream_result([message.payload for message in seen], count))


def send_down(
    board: BoardSession,
    topic: str,
    *,
    size: int,
    count: int,
    between: Callable[[int], None] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Publish ``count`` payloads of ``size`` bytes to a board; raise if any came to harm.

    ``between`` is called with the number of each message after it was published; ``options`` go to
    ``BoardSession.call``. Returns what the board's step ``take`` said.
    """
    with connect_fmqp(board.broker) as host:

        def publish() -> None:
            for number in range(count):
                host.publish(board.sent_to(topic), numbered(size, number))
                if between is not None:
                    between(number)

        result = board.call(
            "take",
            kind="numbered",
            topic=topic,
            count=count,
            on_ready=publish,
            while_heard=True,
            **options,
        )
    expect("to the board", board_result(result, count))
    return result


def expect(way: str, became: StreamResult) -> None:
    """Raise ``CheckFailed`` unless the messages of a ``way`` came once, in order, unchanged."""
    if not became.is_good:
        raise CheckFailed(f"{way}: {became}")
