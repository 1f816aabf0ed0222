"""Records to the columns of blocks (docs/journal.md, Block).

``PythonAssembler`` is the twin of ``_assembly.Assembler``, which is compiled where that is
possible; they give the same answers (tests/host_broker/net/test_journal_assembly.py). The thread
that writes shares the interpreter with the event loop: what it did for hundreds of records at once,
a publication would wait for. So the loop fills the columns as records come, and copies bodies
unless they are long.
``MOTEMQ_PURE_PYTHON=1`` in the environment leaves the compiled one out.
"""

import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from struct import Struct

from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    Block,
    block_header,
    pack_column,
)
from host_broker.net.journal.mark import PROTOCOL, is_mark
from host_broker.outputs import LONGEST_CLIENT, Buffer, Record

_PACKETS, _WITH_PROPERTIES = 1, 2
# Bytes of a body that is kept as it is until it is written. Shorter ones are copied when they come:
# the thread would find each of hundreds in another place of a memory that only the loop has near.
LONG_BODY = 32 * 1024
_HEADER = Struct(">BBI")
_LENGTH = Struct(">I")

assert array("I").itemsize == 4  # noqa: S101 - of every platform that CPython 3.11 runs on


@dataclass(slots=True)
class Assembled:
    """One block without its header.

    ``length`` is that of all ``parts``, ``latest_ns`` the latest time of its records, ``mark`` the
    newest client name that is a number's (``mark``), "" if there is none.
    """

    partition: int
    records: int
    messages: int
    latest_ns: int
    clients_length: int
    length: int
    parts: list[Buffer]
    mark: str

    def block(self, first: int, segment: int) -> list[Buffer]:
        """Return the whole block, whose first message has the number ``first``; ``segment`` is what
        its header says of its segment (``segment_mark``)."""
        block = Block(
            BLOCK_HEADER_LENGTH + self.length,
            0,
            0,
            first,
            self.latest_ns,
            self.records,
            self.messages,
            self.clients_length,
            segment,
        )
        return [block_header(block, self.parts), *self.parts]


class _Open:
    """A block that is being filled."""

    __slots__ = ("lengths", "records", "size", "staged", "staged_messages")

    def __init__(self) -> None:
        self.records: list[tuple[int, Record]] = []
        self.lengths = array("I")
        self.size = 0  # bytes of bodies
        self.staged = self.staged_messages = 0  # how many of the first records, and messages


class PythonAssembler:
    """Takes records as they come, and gives blocks.

    A record belongs to partition ``connection % partitions``. A block has bodies of at most
    ``most_bytes``, or one record. ``messages``: how many were added and not taken. What a record
    costs is spread over the ``add`` of each; ``take`` is little more than a copy. What somebody
    waits for is staged (``stage``) from the same columns before that, so that no record is kept: to
    take hundreds of them away, too, the thread would have to hold the interpreter.
    """

    __slots__ = ("_closed", "_most_bytes", "_open", "_partitions", "messages")

    def __init__(self, partitions: int, most_bytes: int) -> None:
        self.messages = 0
        self._partitions = partitions
        self._most_bytes = most_bytes
        self._open: dict[int, _Open] = {}
        self._closed: list[tuple[int, _Open]] = []

    def add(self, time_ns: int, records: Sequence[Record]) -> None:
        """Take the records of a read at ``time_ns`` (ns since 1970 UTC).

        Raises ValueError for one that is not ``count`` whole publications.
        """
        for record in records:
            partition = record.connection % self._partitions
            size = len(record.body)
            lengths = [size] if record.count == 1 else message_lengths(record)
            if len(record.client.encode()) > LONGEST_CLIENT:
                raise ValueError(f"the name of a client is at most {LONGEST_CLIENT} bytes long")
            block = self._open.get(partition)
            if block is not None and block.size + size > self._most_bytes:
                self._closed.append((partition, block))
                block = None
            if block is None:
                block = self._open[partition] = _Open()
            block.records.append((time_ns, record))
            block.lengths.extend(lengths)
            block.size += size
            self.messages += record.count

    def take(self, most_bytes: int) -> list[Assembled]:
        """Return the next blocks, those of each partition in order: as many as have bodies of
        ``most_bytes``, and the one with which they have; none if all were taken."""
        found: list[Assembled] = []
        size = 0
        if not self._closed:
            self._closed, self._open = list(self._open.items()), {}
        while self._closed and size < most_bytes:
            partition, block = self._closed.pop(0)
            found.append(_block(partition, block.records, block.lengths))
            size += block.size
            self.messages -= found[-1].messages
            if not self._closed:
                self._closed, self._open = list(self._open.items()), {}
        return found

    def unstaged(self, numbers: list[int], mark: int) -> list[Buffer]:
        """Return blocks, headers and all, of what was added since the last ``staged`` and is not
        taken.

        ``numbers``: that of the next message of each partition; they are moved on. A block of
        partition P says ``mark`` + P, modulo 2^32, of its segment.
        """
        parts: list[Buffer] = []
        for partition, block in [*self._closed, *self._open.items()]:
            if block.staged == len(block.records):
                continue
            records, lengths = block.records[block.staged :], block.lengths[block.staged_messages :]
            each = _block(partition, records, lengths)
            first = numbers[partition]
            parts += each.block(first, (mark + partition) % 2**32)
            numbers[partition] = first + each.messages
        return parts

    def staged(self) -> None:
        """All that was added until now is staged."""
        for _, block in [*self._closed, *self._open.items()]:
            block.staged, block.staged_messages = len(block.records), len(block.lengths)


def _block(partition: int, taken: list[tuple[int, Record]], lengths: "array[int]") -> Assembled:
    records = [record for _, record in taken]
    clients = [record.client.encode() for record in records]
    columns = [
        array("Q", [time_ns for time_ns, _ in taken]),
        array("I", [record.connection for record in records]),
        array("I", [record.count for record in records]),
        array("H", [len(client) for client in clients]),
        array("B", [record.protocol for record in records]),
        array("B", [record.encoding for record in records]),
        lengths,
    ]
    names = b"".join(clients)
    bodies: list[Buffer] = [record.body for record in records]
    head = b"".join([pack_column(column) for column in columns]) + names
    length = len(head) + sum(map(len, bodies))
    parts: list[Buffer] = []
    joined: list[Buffer] = [head]
    for body in bodies:
        if len(body) < LONG_BODY:
            joined.append(body)
            continue
        if joined:
            parts.append(b"".join(joined))
            joined = []
        parts.append(body)
    if joined:
        parts.append(b"".join(joined))
    marks = [
        record.client
        for record in records
        if record.client and record.protocol == PROTOCOL and is_mark(record.client)
    ]
    return Assembled(
        partition,
        len(records),
        sum(record.count for record in records),
        max(time_ns for time_ns, _ in taken),
        len(names),
        length,
        parts,
        marks[-1] if marks else "",
    )


def message_lengths(record: Record) -> list[int]:
    """Return the length of each publication of a record; ValueError if it is not ``count``."""
    body, size = record.body, len(record.body)
    with_properties = record.encoding == _WITH_PROPERTIES
    lengths: list[int] = []
    position = 0
    while position < size and len(lengths) < record.count:
        packet = position
        if with_properties:
            if size - packet < _LENGTH.size:
                break
            packet += _LENGTH.size + int(_LENGTH.unpack_from(body, packet)[0])
        if size - packet < _HEADER.size:
            break
        _, topic_length, body_length = _HEADER.unpack_from(body, packet)
        packet += _HEADER.size + topic_length + body_length
        lengths.append(packet - position)
        position = packet
    strange = record.encoding not in (_PACKETS, _WITH_PROPERTIES)
    if position != size or len(lengths) != record.count or strange:
        raise ValueError("a record is not as many whole publications as it says")
    return lengths


COMPILED = True
try:
    from host_broker.net.journal._assembly import Assembler as Assembler
except ImportError:  # not wanted, or no compiler where this was installed: slower, and the same
    COMPILED = False
    Assembler = PythonAssembler  # type: ignore[assignment,misc]


def assemble(
    group: Iterable[tuple[int, Sequence[Record]]],
    partitions: int,
    most_bytes: int,
    kind: "type[PythonAssembler] | type[Assembler]" = Assembler,
) -> list[Assembled]:
    """Return the blocks of a group of records, by the times of their reads (``Assembler``)."""
    assembler = kind(partitions, most_bytes)
    for time_ns, records in group:
        assembler.add(time_ns, records)
    return assembler.take(sys.maxsize)
