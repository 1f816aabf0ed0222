"""Blocks to Arrow columns: the one place that touches every message, so no loop of ours does.

A batch is made of the columns of many blocks, put together. What nobody asked for is not made.
Properties of publications, which few have, are looked at one by one where ``headers`` are wanted.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_motemq.blocks import (
    BLOCK_HEADER_LENGTH,
    LOST,
    SELECTED,
    Blocks,
    Numbers,
    Slice,
    corrupt,
    take_blocks,
)

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# Spark compares the first batch's schema with its own, so types are exactly these.
_TYPES: Final[dict[str, tuple[str, pa.DataType]]] = {
    "partition": ("int", pa.int32()),
    "seq": ("long", pa.int64()),
    "time": ("timestamp", pa.timestamp("us", tz="UTC")),
    "time_ns": ("long", pa.int64()),
    "protocol": ("string", pa.string()),
    "connection": ("long", pa.int64()),
    "client": ("string", pa.string()),
    "path": ("string", pa.string()),
    "retained": ("boolean", pa.bool_()),
    "will": ("boolean", pa.bool_()),
    "payload": ("binary", pa.binary()),
    "broker": ("string", pa.string()),
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "topic": ("string", pa.string()),
    "offset": ("long", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "headers": ("array<struct<key:string,value:binary>>", _HEADERS),
}
# All others have a value in every row. Told so, Spark copies rows without asking of each of them:
# an eighth of what it does for a row.
_NULLABLE: Final = ("key", "headers")
COLUMNS: Final = tuple(_TYPES)[:12]  # unless others are asked for
KAFKA_COLUMNS: Final = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "headers"),
    *("broker", "client", "protocol"),
)
# The names that Kafka's source has for some of ours.
_SAME_AS: Final = {"value": "payload", "topic": "path", "offset": "seq", "timestamp": "time"}


def spark_schema(names: Sequence[str] = COLUMNS) -> str:
    """Return columns as Spark's DDL has them."""
    return ", ".join(
        f"{name} {_TYPES[name][0]}{'' if name in _NULLABLE else ' NOT NULL'}" for name in names
    )


def arrow_schema(names: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return columns as Arrow has them."""
    return _arrow_schema(tuple(names))


@functools.cache
def _arrow_schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([pa.field(name, _TYPES[name][1], name in _NULLABLE) for name in names])


def check_columns(names: Sequence[str]) -> None:
    """Raise ``ValueError`` unless these are some of the columns there are, each once."""
    for at, name in enumerate(names):
        if name not in _TYPES:
            raise ValueError(f"there is no column {name}; there are {', '.join(_TYPES)}")
        if name in names[:at]:
            raise ValueError(f"the column {name} is named twice")


_BATCH_MESSAGES = 32_768  # per batch, rounded up to whole blocks
_BATCH_BYTES = 8 * 1024 * 1024  # rounded up likewise: a block may have 32 MiB
_HEAD_BYTES = 6  # of a packet: flags, length of the topic, length of the body (4 bytes)
_TOPIC_LENGTH, _BODY_LENGTH = 1, 2  # where they are
_PROPERTIES_LENGTH = 4
_PROPERTY_HEAD = Struct(">BI")  # lengths of its name and value
_PACKETS, _WITH_PROPERTIES = 1, 2  # encodings
_PROTOCOLS = ("broker", "fmqp", "lightmq", "micromsg2", "fq", "umq")
_WILL, _RETAINED = 0x08, 0x04
_NOT_ASCII = 0x80
_LONG = 32  # values of a range: below it, copying one by one takes longer


def batches(
    data: bytes, slice: Slice, columns: Sequence[str] = COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``data``, the bytes of ``slice``, as bounded batches of ``columns``.

    Raises ``JournalError`` for corruption.
    """
    blocks = take_blocks(data, slice)
    blocks = blocks.chosen((blocks.flags & LOST) == 0)
    messages = np.cumsum(blocks.messages)
    low = 0
    while low < len(blocks):
        before = messages[low] - blocks.messages[low]
        high = 1 + min(
            int(np.searchsorted(messages, before + _BATCH_MESSAGES)),
            int(np.searchsorted(blocks.end, blocks.at[low] + _BATCH_BYTES)),
        )
        numbers, batch = _Batch(data, blocks.part(low, high), slice).columns(columns)
        yield from _wanted(numbers, batch, slice)
        low = high


def _wanted(numbers: Numbers, batch: pa.RecordBatch, slice: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the messages that are wanted, if any; blocks have others, too."""
    low = int(np.searchsorted(numbers, slice.low))
    high = len(numbers) if slice.high is None else int(np.searchsorted(numbers, slice.high))
    if low < high:
        yield batch.slice(low, high - low)


@functools.cache
def _protocols() -> pa.Array:
    """Return the names of all protocols by their codes.

    Made when it is needed: to make an array of texts, pyarrow asks pandas, and imports it.
    """
    others = (f"protocol {code}" for code in range(len(_PROTOCOLS), 256))
    return pa.array([*_PROTOCOLS, *others], pa.string())


_OfEach = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


class _Batch:
    """Some blocks of a slice, none of them lost."""

    def __init__(self, data: bytes, blocks: Blocks, slice: Slice) -> None:
        self._data = data
        self._blocks = blocks
        self._slice = slice

    def columns(self, wanted: Sequence[str]) -> tuple[Numbers, pa.RecordBatch]:
        """Return the numbers of the messages, and columns of them.

        Raises ``JournalError`` if the blocks' columns do not add up, also those not ``wanted``.
        """
        blocks = self._blocks
        records, messages = int(blocks.records.sum()), int(blocks.messages.sum())
        counts = self._column("<u4", 12, 4)
        client_lengths = self._column("<u2", 16, 2)
        self._check(counts, blocks.records, blocks.messages, "messages of its records")
        names = "lengths of its client names"
        self._check(client_lengths, blocks.records, blocks.clients_length, names)
        if not counts.all():
            raise self._corrupt_record(int(np.flatnonzero(counts == 0)[0]), "count 0")

        def of_each(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
            """Return of every message what its record has."""
            return column if records == messages else np.repeat(column, counts)

        packets = self._packets(of_each)
        numbers = self._numbers(messages)

        def times() -> Numbers:
            return self._column("<i8", 0, 8)

        def connections() -> pa.Array:
            found = self._column("<u4", 8, 4).astype(np.int64)
            found |= self._slice.run << 32  # ids begin with 1 at every start of the broker
            return pa.array(of_each(found))

        def protocols() -> pa.Array:
            return _protocols().take(pa.array(of_each(self._column("u1", 18, 1))))

        def microseconds() -> pa.Array:
            # Integers: seconds as a float would change the last digits.
            return pa.array(of_each(times() // 1000), pa.timestamp("us", tz="UTC"))

        def clients() -> pa.Array:
            return self._clients(client_lengths, of_each, messages)

        def keys() -> pa.Array:
            known = clients().cast(pa.binary())
            return pc.if_else(pc.equal(pc.binary_length(known), 0), None, known)

        parts = functools.cache(packets.parts)
        made: dict[str, Callable[[], pa.Array]] = {
            "partition": lambda: pa.array(np.full(messages, self._slice.partition, np.int32)),
            "seq": lambda: pa.array(numbers),
            "time": microseconds,
            "time_ns": lambda: pa.array(of_each(times())),
            "protocol": protocols,
            "connection": connections,
            "client": clients,
            "path": lambda: _texts(_every_third(parts(), 1)),
            "retained": lambda: pa.array((packets.flags & _RETAINED) != 0),
            "will": lambda: pa.array((packets.flags & _WILL) != 0),
            "payload": lambda: _every_third(parts(), 2),
            "broker": lambda: pa.repeat(pa.scalar(self._slice.journal, pa.string()), messages),
            "key": keys,
            "headers": packets.headers,
        }
        columns = [made[_SAME_AS.get(name, name)]() for name in wanted]
        return numbers, pa.RecordBatch.from_arrays(columns, schema=arrow_schema(wanted))

    def _column(self, dtype: str, before: int, size: int) -> npt.NDArray[Any]:
        """Return a column of the records; ``before``: bytes of the columns before it, a record."""
        blocks = self._blocks
        begins = blocks.at + BLOCK_HEADER_LENGTH + before * blocks.records
        return _values(self._data, begins, blocks.records, dtype, size)

    def _message_column(self, number: int) -> npt.NDArray[np.uint32]:
        """Return a column of the messages: 0 their lengths, 1 their numbers in a selected block."""
        blocks = self._blocks
        begins = blocks.at + BLOCK_HEADER_LENGTH + 20 * blocks.records
        begins += 4 * number * blocks.messages
        return _values(self._data, begins, blocks.messages, "<u4", 4)

    def _numbers(self, messages: int) -> Numbers:
        blocks = self._blocks
        if blocks.flags[0] & SELECTED:  # then all are: an answer has one kind
            return np.repeat(blocks.first, blocks.messages) + self._message_column(1)
        numbers = np.arange(messages)
        before = np.cumsum(blocks.messages) - blocks.messages
        numbers += np.repeat(blocks.first - before, blocks.messages)
        return numbers

    def _check(self, column: npt.NDArray[Any], each: Numbers, expected: Numbers, what: str) -> None:
        """Raise ``JournalError`` unless the values of every block add up to what its header says.

        ``each``: how many values every block has, one at least.
        """
        total = np.add.reduceat(column, np.cumsum(each) - each, dtype=np.int64)
        self._check_each(total, expected, what)

    def _check_each(self, found: Numbers, expected: Numbers, what: str) -> None:
        if not np.array_equal(found, expected):
            wrong = int(np.flatnonzero(found != expected)[0])
            raise self._corrupt(wrong, f"count: the {what} do not add up")

    def _corrupt(self, block: int, what: str) -> Exception:
        return corrupt(self._slice.file, self._slice.start + int(self._blocks.at[block]), what)

    def _corrupt_record(self, record: int, what: str) -> Exception:
        return self._corrupt(
            int(np.searchsorted(np.cumsum(self._blocks.records), record, "right")), what
        )

    def _clients(self, lengths: npt.NDArray[Any], of_each: _OfEach, messages: int) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)
        if not offsets[-1]:
            empty = pa.py_buffer(np.zeros(messages + 1, np.int32))
            return pa.StringArray.from_buffers(messages, empty, pa.py_buffer(b""))
        blocks = self._blocks
        begins = blocks.bodies - blocks.clients_length
        names = _values(self._data, begins, blocks.clients_length, "u1", 1)
        found = pa.BinaryArray.from_buffers(
            pa.binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(names)]
        )
        texts = _texts(found)
        if len(lengths) == messages:
            return texts
        return texts.take(pa.array(of_each(np.arange(len(lengths)))))

    def _packets(self, of_each: _OfEach) -> "_Packets":
        """Return where the packets and their parts are. Raises ``JournalError``."""
        blocks = self._blocks
        bodies = blocks.bodies
        last = np.cumsum(blocks.messages) - 1
        first = last + 1 - blocks.messages
        lengths = self._message_column(0).astype(np.int64)
        # Where each ends is a sum of lengths, and of what is between the bodies of two blocks.
        between = bodies - np.concatenate(([0], blocks.end[:-1]))
        lengths[first] += between
        ends = np.cumsum(lengths)
        lengths[first] -= between
        self._check_each(ends[last], blocks.end, "lengths of its messages")
        begins = packets = ends - lengths
        encodings = self._column("u1", 19, 1)
        if encodings.min() != _PACKETS or encodings.max() != _PACKETS:
            packets = begins.copy()
            self._skip_properties(packets, ends, of_each(encodings))
        topics = packets + _HEAD_BYTES
        if (topics > ends).any():
            raise self._corrupt_message(topics > ends)
        payloads = topics + _every(self._data, "u1", _TOPIC_LENGTH)[packets]
        wrong = payloads + _every(self._data, ">u4", _BODY_LENGTH)[packets] != ends
        if wrong.any():
            raise self._corrupt_message(wrong)
        return _Packets(self._data, begins, packets, topics, payloads, ends)

    def _skip_properties(
        self, packets: Numbers, ends: Numbers, of_message: npt.NDArray[np.uint8]
    ) -> None:
        """Move ``packets`` behind the properties that precede some of them.

        ``of_message``: their encodings.
        """
        strange = (of_message != _PACKETS) & (of_message != _WITH_PROPERTIES)
        if strange.any():
            code = of_message[np.flatnonzero(strange)[0]]
            raise self._corrupt_message(strange, f"encoding {code} is not known")
        those = np.flatnonzero(of_message == _WITH_PROPERTIES)
        short = ends[those] - packets[those] < _PROPERTIES_LENGTH
        if not short.any():
            lengths = _every(self._data, ">u4", 0)[packets[those]]
            packets[those] += _PROPERTIES_LENGTH + lengths.astype(np.int64)
            short = packets[those] + _HEAD_BYTES > ends[those]
        if short.any():
            wrong = np.zeros(len(packets), np.bool_)
            wrong[those[short]] = True
            raise self._corrupt_message(wrong, "count: properties reach beyond their message")

    def _corrupt_message(
        self, wrong: npt.NDArray[np.bool_], what: str = "count: a message is not one packet"
    ) -> Exception:
        message = int(np.flatnonzero(wrong)[0])
        block = int(np.searchsorted(np.cumsum(self._blocks.messages), message, "right"))
        return self._corrupt(block, what)


@dataclass(frozen=True, slots=True)
class _Packets:
    """Publications in some bytes: where each and its parts begin, and where it ends.

    What is between ``begins`` and ``packets`` are its properties.
    """

    data: bytes
    begins: Numbers
    packets: Numbers
    topics: Numbers
    payloads: Numbers
    ends: Numbers

    @property
    def flags(self) -> npt.NDArray[np.uint8]:
        """The first byte of each."""
        found: npt.NDArray[np.uint8] = np.frombuffer(self.data, np.uint8)[self.packets]
        return found

    def parts(self) -> pa.Array:
        """Return what is before a topic, the topic, the payload, what is before the next one, …

        As one column these are the bytes of the blocks themselves; what is wanted of it is copied
        once, by Arrow.
        """
        count = len(self.packets)
        edges = np.empty(3 * count + 1, np.int32)
        edges[0] = self.packets[0]
        edges[1::3] = self.topics
        edges[2::3] = self.payloads
        edges[3::3] = self.ends
        return pa.BinaryArray.from_buffers(
            pa.binary(), 3 * count, [None, pa.py_buffer(edges), pa.py_buffer(self.data)]
        )

    def headers(self) -> pa.Array:
        """Return the properties of each as names and values; null where there are none."""
        found: list[list[dict[str, Any]] | None] = [None] * len(self.packets)
        for number in np.flatnonzero(self.packets > self.begins).tolist():
            at, end = int(self.begins[number]) + _PROPERTIES_LENGTH, int(self.packets[number])
            found[number] = list(_properties(self.data, at, end)) or None
        return pa.array(found, _HEADERS)


def _every_third(parts: pa.Array, first: int) -> pa.Array:
    places = pa.array(np.arange(first, len(parts), 3))
    return pc.take(parts, places, boundscheck=False)


def _properties(data: bytes, at: int, end: int) -> Iterator[dict[str, Any]]:
    """Yield the properties between two places; of a damaged one, what there is of it."""
    while at + _PROPERTY_HEAD.size <= end:
        name_length, value_length = _PROPERTY_HEAD.unpack_from(data, at)
        name = at + _PROPERTY_HEAD.size
        value = name + name_length
        at = value + value_length
        text = data[name : min(value, end)].decode("utf-8", "backslashreplace")
        yield {"key": text, "value": data[value : min(at, end)]}


def _values(
    data: bytes, begins: Numbers, counts: Numbers, dtype: str, size: int
) -> npt.NDArray[Any]:
    """Return what is at some places of the data: at each so many values of ``size`` bytes.

    Few long ranges are copied one by one, many short ones value by value.
    """
    if len(begins) == 1:
        return np.frombuffer(data, dtype, int(counts[0]), int(begins[0]))
    total = int(counts.sum())
    if total >= _LONG * len(begins):
        view = memoryview(data)
        ends = begins + size * counts
        ranges = zip(begins.tolist(), ends.tolist(), strict=True)
        return np.frombuffer(b"".join([view[begin:end] for begin, end in ranges]), dtype)
    before = np.cumsum(counts) - counts
    places = np.repeat(begins - size * before, counts)
    places += np.arange(0, size * total, size)
    found: npt.NDArray[Any] = _every(data, dtype, 0)[places]
    return found


def _every(data: bytes, dtype: str, offset: int) -> npt.NDArray[Any]:
    """Return, by place in the data, the number that is ``offset`` bytes behind it."""
    places = len(data) - offset - np.dtype(dtype).itemsize + 1
    found: npt.NDArray[Any] = np.ndarray((places,), dtype, data, offset, strides=(1,))
    return found


def _texts(paths: pa.Array) -> pa.Array:
    """Return names as text; bytes that are not UTF-8 stay visible as backslash escapes."""
    values = paths.buffers()[2]
    # ASCII is told of all at once, in a tenth of the time that UTF-8 takes, which is told of each.
    if not values or np.frombuffer(values, np.uint8).max() < _NOT_ASCII:
        return paths.view(pa.string())
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [path.decode("utf-8", "backslashreplace") for path in paths.to_pylist()]
        return pa.array(texts, pa.string())
