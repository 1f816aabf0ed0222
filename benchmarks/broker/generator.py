"""The load: what is sent and what must arrive, spelled before the clock starts.

A publisher repeats one block of bytes in large writes and ends with a whole publication. How many
bytes each subscriber must get of the first so many publications of a block is known beforehand, so
that the measured loop only adds up what its reads return.
"""

import socket
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, cycle, islice

from benchmarks.broker.clients import WOULD_BLOCK
from benchmarks.broker.wires import Wire
from benchmarks.broker.workloads import Matching, Traffic

_WRITE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Block:
    """What one publisher repeats. ``ends[n]``: the bytes of the first ``n`` publications."""

    data: bytes
    ends: "array[int]"

    @property
    def count(self) -> int:
        """Publications."""
        return len(self.ends) - 1


class Load:
    """A traffic in a broker's words.

    ``due[s][p][n]``: the bytes that subscriber ``s`` gets of the first ``n`` publications of
    publisher ``p``'s block.
    """

    def __init__(self, publishing: Wire, subscribing: Wire, traffic: Traffic) -> None:
        self.traffic = traffic
        self.answer_bytes = publishing.answer_bytes
        self.aside_bytes = len(subscribing.aside)
        self._subscribing = subscribing
        self.blocks = [self._block(publishing, n) for n in range(len(traffic.publishers))]
        # Subscribers with the same patterns get the same, which is counted once.
        dues = {
            patterns: [self._due(subscribing, patterns, n) for n in range(len(traffic.publishers))]
            for patterns in set(traffic.subscribers)
        }
        self.due = [dues[patterns] for patterns in traffic.subscribers]

    def _block(self, wire: Wire, publisher: int) -> Block:
        spelled = [
            wire.publication(topic, body, number)
            for number, (topic, body) in enumerate(self.traffic.publishers[publisher])
        ]
        return Block(b"".join(spelled), _running_total([len(each) for each in spelled]))

    def _due(self, wire: Wire, patterns: tuple[str, ...], publisher: int) -> "array[int]":
        matching = Matching(patterns)
        lengths = []
        for topic, body in self.traffic.publishers[publisher]:
            number = matching.number(topic)
            lengths.append(0 if number is None else len(wire.delivery(topic, body, number)))
        return _running_total(lengths)

    def bytes_due(self, subscriber: int, sent: list[int]) -> int:
        """Return what a subscriber gets if the publishers have sent so many publications each."""
        total = 0
        for due, count in zip(self.due[subscriber], sent, strict=True):
            blocks, rest = divmod(count, len(due) - 1)
            total += blocks * due[-1] + due[rest]
        return total

    def answers_due(self, sent: list[int]) -> list[int]:
        """Return the bytes of the broker's answers to each publisher; none if it never answers."""
        return [count * self.answer_bytes for count in sent] if self.answer_bytes else []

    def difference(self, subscriber: int, sent: list[int], heard: bytes) -> str:
        """Say where what a subscriber heard is not what was due, "" = nowhere.

        Of each publisher the deliveries must be those of its publications, in their order; those
        of several publishers may be mixed.
        """
        matching = Matching(self.traffic.subscribers[subscriber])
        waiting = [
            deque(self._deliveries(matching, publisher, count))
            for publisher, count in enumerate(sent)
        ]
        waiting = [queue for queue in waiting if queue]
        position = 0
        while waiting:
            for queue in waiting:
                if self._is_next(heard, position, queue[0]):
                    position += len(queue.popleft())
                    break
            else:
                return f"after {position} bytes comes {heard[position : position + 80]!r}"
            waiting = [queue for queue in waiting if queue]
        return "" if position == len(heard) else f"too much: {heard[position : position + 80]!r}"

    def _deliveries(self, matching: Matching, publisher: int, count: int) -> Iterator[bytes]:
        for topic, body in islice(cycle(self.traffic.publishers[publisher]), count):
            number = matching.number(topic)
            if number is not None:
                yield self._subscribing.delivery(topic, body, number)

    def _is_next(self, heard: bytes, position: int, delivery: bytes) -> bool:
        start, end = self._subscribing.chosen
        if start == end:
            return heard.startswith(delivery, position)
        return heard.startswith(delivery[:start], position) and heard.startswith(
            delivery[end:], position + end
        )


def _running_total(lengths: list[int]) -> "array[int]":
    return array("Q", accumulate(lengths, initial=0))


class Publisher:
    """Sends one block again and again, and never ends within a publication."""

    def __init__(
        self, client: socket.socket, block: Block, write_bytes: int = _WRITE_BYTES
    ) -> None:
        self._write_bytes = write_bytes
        self._client = client
        self._block = block
        self._view = memoryview(block.data)
        self._position = 0  # in the block
        self._blocks = 0  # sent whole
        self._end: int | None = None  # where in the block to stop
        self._refused = self._view[:0]  # TLS wants exactly this again

    @property
    def sent(self) -> int:
        """Publications that were begun."""
        return self._blocks * self._block.count + bisect_left(self._block.ends, self._position)

    def send(self, more: bool) -> bool:
        """Send what fits; without ``more`` to the end of the publication. False = it is done."""
        if not self._refused:
            if not more and self._end is None:
                self._end = self._block.ends[bisect_left(self._block.ends, self._position)]
            end = len(self._view) if self._end is None else self._end
            chunk = self._view[self._position : min(end, self._position + self._write_bytes)]
        else:
            chunk = self._refused
        try:
            self._position += self._client.send(chunk)
        except WOULD_BLOCK:
            self._refused = chunk
            return True
        self._refused = self._view[:0]
        if self._end is not None:
            return self._position < self._end
        if self._position == len(self._view):
            self._position = 0
            self._blocks += 1
        return True
