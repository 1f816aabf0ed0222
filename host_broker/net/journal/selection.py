"""Blocks with some of their messages left out, for readers that want few topics.

``python_select`` is the Python twin of ``_selection.select``, which is compiled where that is
possible; both give the same answers (tests/host_broker/net/test_journal_selection.py). What decides
on messages is the table of topics that the bus has too: it is asked for whole runs of them.
"""

from collections.abc import Iterable, Sequence
from itertools import compress
from struct import Struct

from host_broker.bus.publication import HEADER
from host_broker.bus.topic_filter import TopicFilter
from host_broker.bus.topic_table import TopicTable
from host_broker.net.journal.checksum import crc32
from host_broker.net.journal.format import (
    BLOCK_HEADER_LENGTH,
    BLOCK_MAGIC,
    LENGTH_BYTES,
    SELECTED,
    WITH_PROPERTIES,
    pack_column,
    take_block,
    take_column,
)

_MOST_TOPICS = 10_000  # that are remembered
_LENGTH_AND_CRC = Struct("<II")
_BEHIND_CRC = 12
_PROPERTIES = Struct(">I")
_ENCODINGS = 19  # bytes of a record's columns before that


class Selection:
    """Leaves out of blocks what is not of some topics (FMQP patterns), or ``beneath`` them."""

    def __init__(self, topics: Iterable[str], *, beneath: bool = False) -> None:
        self._filter = TopicFilter(topics, beneath=beneath)
        self._known: TopicTable[bool] = TopicTable()

    def apply(self, block: bytes) -> bytes:
        """Return a whole block as a selected one; nothing if it has no message that is wanted."""
        header = take_block(block, 0)
        if header is None or not header.records:
            return b""
        encodings_at = BLOCK_HEADER_LENGTH + _ENCODINGS * header.records
        encodings = block[encodings_at : encodings_at + header.records]
        if WITH_PROPERTIES in encodings:
            stretches = self._one_by_one(block, header.bodies, header.records, header.messages)
        else:
            stretches = self._runs(block, header.bodies)
        covered = select(block, stretches)
        if covered is None:
            return b""
        length = _BEHIND_CRC + len(covered)
        return BLOCK_MAGIC + _LENGTH_AND_CRC.pack(length, crc32(covered)) + covered

    def _runs(self, block: bytes, position: int) -> list[tuple[bool, int]]:
        """Say of the messages from ``position`` on, encoding 1, up to where they are wanted."""
        stretches: list[tuple[bool, int]] = []
        end = len(block)
        while True:
            position, found = self._known.split(block, position, end)
            stretches += found
            if position >= end:
                return stretches
            topic_at = position + HEADER.size
            self._learn(block[topic_at : topic_at + block[position + 1]])

    def _one_by_one(
        self, block: bytes, position: int, records: int, messages: int
    ) -> list[tuple[bool, int]]:
        view = memoryview(block)
        columns = BLOCK_HEADER_LENGTH
        counts = take_column("I", view, columns + 12 * records, records)
        lengths = take_column("I", view, columns + 20 * records, messages)
        encodings = block[columns + _ENCODINGS * records :]
        stretches = []
        number = 0
        for record, count in enumerate(counts):
            for length in lengths[number : number + count]:
                packet = position
                if encodings[record] == WITH_PROPERTIES:
                    packet += _PROPERTIES.size + int(_PROPERTIES.unpack_from(block, position)[0])
                topic_at = packet + HEADER.size
                topic = block[topic_at : topic_at + block[packet + 1]]
                wanted = self._known.get(topic)
                if wanted is None:
                    wanted = self._learn(topic)
                position += length
                stretches.append((wanted, position))
            number += count
        return stretches

    def _learn(self, topic: bytes) -> bool:
        if len(self._known) >= _MOST_TOPICS:
            self._known.clear()
        wanted = self._filter.matches(topic.decode("utf-8", "replace"))
        self._known.put(topic, wanted)
        return wanted


def python_select(block: bytes, stretches: Sequence[tuple[bool, int]]) -> bytes | None:
    """Return what follows the CRC of a selected block; None if no message is wanted.

    ``block`` is a whole one; ``stretches``: whether messages are wanted, and the offset up to which
    that is so, for all of them. Raises ValueError if the block is not what its columns say.
    """
    if len(block) < BLOCK_HEADER_LENGTH:
        raise ValueError("a block has 48 bytes at least")
    records, messages, clients = _COUNTS.unpack_from(block, 32)
    lengths_at = BLOCK_HEADER_LENGTH + 20 * records
    bodies = lengths_at + LENGTH_BYTES * messages + clients
    if bodies > len(block):
        raise ValueError("the columns are longer than the block")
    view = memoryview(block)
    counts = take_column("I", view, BLOCK_HEADER_LENGTH + 12 * records, records)
    client_lengths = take_column("H", view, BLOCK_HEADER_LENGTH + 16 * records, records)
    lengths = take_column("I", view, lengths_at, messages)
    mask, parts = _wanted(block, bodies, sum(counts), lengths, stretches)
    kept, names = [], []
    number, name = 0, bodies - clients
    for count, client_length in zip(counts, client_lengths, strict=True):
        kept.append(mask.count(1, number, number + count))
        if name + client_length > bodies:
            raise ValueError("a client name is longer than the block")
        if kept[-1]:
            names.append(block[name : name + client_length])
        number += count
        name += client_length
    if not parts:
        return None
    columns = []
    for typecode, before in (("Q", 0), ("I", 8), ("I", 12), ("H", 16), ("B", 18), ("B", 19)):
        column = take_column(typecode, view, BLOCK_HEADER_LENGTH + before * records, records)
        columns.append(type(column)(typecode, compress(column, kept)))
    latest_ns = max(columns[0])
    columns[2] = type(columns[2])("I", compress(kept, kept))
    columns.append(type(lengths)("I", compress(lengths, mask)))
    columns.append(type(lengths)("I", compress(range(messages), mask)))
    first, segment = block[16:24], block[44:48]
    joined_names = b"".join(names)
    head = _HEAD.pack(
        SELECTED, 0, first, latest_ns, len(columns[0]), len(parts), len(joined_names), segment
    )
    packed = [pack_column(column) for column in columns]
    return b"".join([head, *packed, joined_names, *parts])


_COUNTS = Struct("<III")
_HEAD = Struct("<HH8sQIII4s")


def _wanted(
    block: bytes,
    position: int,
    count: int,
    lengths: Sequence[int],
    stretches: Sequence[tuple[bool, int]],
) -> tuple[bytearray, list[bytes]]:
    """Return of each message whether it is wanted, and those that are."""
    mask, parts = bytearray(len(lengths)), []
    at_stretch, stretch_end, wanted = 0, -1, False
    if count > len(lengths):
        raise ValueError("a record has more messages than the block")
    for number in range(count):
        while position >= stretch_end:
            if at_stretch == len(stretches):
                raise ValueError("the stretches end before the messages")
            wanted, stretch_end = stretches[at_stretch]
            at_stretch += 1
        end = position + lengths[number]
        if end > len(block):
            raise ValueError("a message is longer than the block")
        if wanted:
            mask[number] = 1
            parts.append(block[position:end])
        position = end
    return mask, parts


COMPILED = True
try:
    from host_broker.net.journal._selection import select as select
except ImportError:  # not wanted, or no compiler where this was installed: slower, and the same
    COMPILED = False
    select = python_select
