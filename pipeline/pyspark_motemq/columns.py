"""Blocks to Arrow columns: the one place that touches every message, so no loop of ours does.

A batch is made of the columns of many blocks, put together. Properties of publications have no
column: they are skipped (docs/source.md).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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

# Spark compares the first batch's schema with its own, so types and order are exactly these.
ARROW_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("time_ns", pa.int64()),
        pa.field("protocol", pa.string()),
        pa.field("connection", pa.int64()),
        pa.field("client", pa.string()),
        pa.field("path", pa.string()),
        pa.field("retained", pa.bool_()),
        pa.field("will", pa.bool_()),
        pa.field("payload", pa.binary()),
    ]
)
SPARK_SCHEMA = (
    "partition int, seq long, time timestamp, time_ns long, protocol string, connection long, "
    "client string, path string, retained boolean, will boolean, payload binary"
)

_BATCH_MESSAGES = 32_768  # per batch, rounded up to whole blocks
_BATCH_BYTES = 8 * 1024 * 1024  # rounded up likewise: a block may have 32 MiB
_HEAD_BYTES = 6  # of a packet: flags, length of the topic, length of the body (4 bytes)
_PROPERTIES_LENGTH = 4
_PACKETS, _WITH_PROPERTIES = 1, 2  # encodings
_PROTOCOLS = pa.array(
    ["broker", "fmqp", "lightmq", *(f"protocol {code}" for code in range(3, 256))], pa.string()
)
_WILL, _RETAINED = 0x08, 0x04
_LONG = 32  # values of a stretch: below it, copying one by one takes longer


def batches(data: bytes, slice: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``data``, the bytes of ``slice``, as bounded batches.

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
        yield from _wanted(_Batch(data, blocks.part(low, high), slice).columns(), slice)
        low = high


def _wanted(batch: pa.RecordBatch, slice: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the messages that are wanted, if any; blocks have others, too."""
    numbers = batch.column("seq").to_numpy()
    low = int(np.searchsorted(numbers, slice.low))
    high = len(numbers) if slice.high is None else int(np.searchsorted(numbers, slice.high))
    if low < high:
        yield batch.slice(low, high - low)


class _Batch:
    """Some blocks of a slice, none of them lost."""

    def __init__(self, data: bytes, blocks: Blocks, slice: Slice) -> None:
        self._data = data
        self._blocks = blocks
        self._slice = slice

    def columns(self) -> pa.RecordBatch:
        """Return the messages as rows. Raises ``JournalError`` if columns do not add up."""
        blocks = self._blocks
        records, messages = int(blocks.records.sum()), int(blocks.messages.sum())
        time_ns = self._column("<i8", 0, 8)
        connections = self._column("<u4", 8, 4).astype(np.int64)
        connections |= self._slice.run << 32  # ids begin with 1 at every start of the broker
        counts = self._column("<u4", 12, 4).astype(np.int64)
        client_lengths = self._column("<u2", 16, 2).astype(np.int64)
        protocols, encodings = self._column("u1", 18, 1), self._column("u1", 19, 1)
        self._check(counts, blocks.records, blocks.messages, "messages of its records")
        names = "lengths of its client names"
        self._check(client_lengths, blocks.records, blocks.clients_length, names)
        # Of which record each message is; of single messages that is itself.
        of_record: Numbers | slice = np.repeat(np.arange(records), counts)
        if records == messages:
            of_record = np.s_[:]
        if not counts.all():
            raise self._corrupt_record(int(np.flatnonzero(counts == 0)[0]), "count 0")
        flags, paths, payloads = self._packets(encodings, of_record)
        # Integer microseconds: seconds as a float would change the last digits.
        microseconds = pa.array((time_ns // 1000)[of_record], pa.timestamp("us", tz="UTC"))
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(messages, self._slice.partition, np.int32)),
                pa.array(self._numbers(messages)),
                microseconds,
                pa.array(time_ns[of_record]),
                _PROTOCOLS.take(pa.array(protocols[of_record])),
                pa.array(connections[of_record]),
                self._clients(client_lengths, of_record, messages),
                _texts(paths),
                pa.array((flags & _RETAINED) != 0),
                pa.array((flags & _WILL) != 0),
                payloads,
            ],
            schema=ARROW_SCHEMA,
        )

    def _column(self, dtype: str, before: int, size: int) -> npt.NDArray[Any]:
        """Return a column of the records; ``before``: bytes of the columns before it, a record."""
        blocks = self._blocks
        begins = blocks.at + BLOCK_HEADER_LENGTH + before * blocks.records
        return _values(self._data, begins, blocks.records, dtype, size)

    def _message_column(self, number: int) -> Numbers:
        """Return a column of the messages: 0 their lengths, 1 their numbers in a selected block."""
        blocks = self._blocks
        begins = blocks.at + BLOCK_HEADER_LENGTH + 20 * blocks.records
        begins += 4 * number * blocks.messages
        return _values(self._data, begins, blocks.messages, "<u4", 4).astype(np.int64)

    def _numbers(self, messages: int) -> Numbers:
        blocks = self._blocks
        if blocks.flags[0] & SELECTED:  # then all are: an answer has one kind
            return np.repeat(blocks.first, blocks.messages) + self._message_column(1)
        before = np.cumsum(blocks.messages) - blocks.messages
        return np.repeat(blocks.first - before, blocks.messages) + np.arange(messages)

    def _check(self, column: Numbers, each: Numbers, expected: Numbers, what: str) -> None:
        """Raise ``JournalError`` unless the values of every block add up to what its header says.

        ``each``: how many values every block has.
        """
        total = np.concatenate(([0], np.cumsum(column)))[np.cumsum(each)]
        if np.array_equal(total, np.cumsum(expected)):
            return
        wrong = int(np.flatnonzero(np.diff(total, prepend=0) != expected)[0])
        raise self._corrupt(wrong, f"count: the {what} do not add up")

    def _corrupt(self, block: int, what: str) -> Exception:
        return corrupt(self._slice.file, self._slice.start + int(self._blocks.at[block]), what)

    def _corrupt_record(self, record: int, what: str) -> Exception:
        return self._corrupt(
            int(np.searchsorted(np.cumsum(self._blocks.records), record, "right")), what
        )

    def _clients(self, lengths: Numbers, of_record: "Numbers | slice", messages: int) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
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
        return texts if isinstance(of_record, slice) else texts.take(pa.array(of_record))

    def _packets(
        self, encodings: npt.NDArray[np.generic], of_record: "Numbers | slice"
    ) -> tuple[npt.NDArray[np.uint8], pa.Array, pa.Array]:
        """Return flags, topics and payloads of all packets.

        All bytes of the blocks, as one column of pieces (what is before a topic, a topic, a
        payload, what is before …), are those bytes themselves; what is wanted of it is copied once,
        by Arrow.
        """
        data = np.frombuffer(self._data, np.uint8)
        lengths = self._message_column(0)
        bodies = self._blocks.bodies
        sizes = self._blocks.end - bodies
        self._check(lengths, self._blocks.messages, sizes, "lengths of its messages")
        ends = np.cumsum(lengths)
        ends += np.repeat(bodies - (np.cumsum(sizes) - sizes), self._blocks.messages)
        packets = ends - lengths
        if encodings.min() != _PACKETS or encodings.max() != _PACKETS:
            self._skip_properties(data, packets, ends, encodings, of_record)
        if (packets + _HEAD_BYTES > ends).any():
            raise self._corrupt_message(packets + _HEAD_BYTES > ends)
        topics = packets + _HEAD_BYTES
        payloads = topics + data[packets + 1]
        wrong = payloads + _big_endian(data, packets + 2) != ends
        if wrong.any():
            raise self._corrupt_message(wrong)
        edges = np.empty(3 * len(packets) + 1, np.int32)
        edges[0] = packets[0]
        edges[1::3] = topics
        edges[2::3] = payloads
        edges[3::3] = ends
        pieces = pa.BinaryArray.from_buffers(
            pa.binary(), 3 * len(packets), [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        )
        numbers = np.arange(0, 3 * len(packets), 3)
        return (
            data[packets],
            pieces.take(pa.array(numbers + 1)),
            pieces.take(pa.array(numbers + 2)),
        )

    def _skip_properties(
        self,
        data: npt.NDArray[np.uint8],
        packets: Numbers,
        ends: Numbers,
        encodings: npt.NDArray[np.generic],
        of_record: "Numbers | slice",
    ) -> None:
        """Move ``packets`` behind the properties that precede some of them."""
        of_message = encodings[of_record]
        strange = (of_message != _PACKETS) & (of_message != _WITH_PROPERTIES)
        if strange.any():
            code = of_message[np.flatnonzero(strange)[0]]
            raise self._corrupt_message(strange, f"encoding {code} is not known")
        those = np.flatnonzero(of_message == _WITH_PROPERTIES)
        short = ends[those] - packets[those] < _PROPERTIES_LENGTH
        if not short.any():
            packets[those] += _PROPERTIES_LENGTH + _big_endian(data, packets[those])
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


def _values(
    data: bytes, begins: Numbers, counts: Numbers, dtype: str, size: int
) -> npt.NDArray[Any]:
    """Return what is at some places of the data: at each so many values of ``size`` bytes.

    Few long stretches are copied one by one, many short ones value by value.
    """
    if len(begins) == 1:
        return np.frombuffer(data, dtype, int(counts[0]), int(begins[0]))
    total = int(counts.sum())
    if total >= _LONG * len(begins):
        view = memoryview(data)
        ends = begins + size * counts
        stretches = zip(begins.tolist(), ends.tolist(), strict=True)
        return np.frombuffer(b"".join([view[begin:end] for begin, end in stretches]), dtype)
    before = np.cumsum(counts) - counts
    places = np.repeat(begins - size * before, counts)
    places += np.arange(0, size * total, size)
    every: npt.NDArray[Any] = np.ndarray((len(data) - size + 1,), dtype, data, strides=(1,))
    found: npt.NDArray[Any] = every[places]
    return found


def _big_endian(data: npt.NDArray[np.uint8], at: Numbers) -> Numbers:
    """Return the numbers of 4 bytes at these places."""
    every = np.ndarray((len(data) - 3,), ">u4", data, strides=(1,))
    return every[at].astype(np.int64)


def _texts(paths: pa.Array) -> pa.Array:
    """Return names as text; bytes that are not UTF-8 stay visible as backslash escapes."""
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [path.decode("utf-8", "backslashreplace") for path in paths.to_pylist()]
        return pa.array(texts, pa.string())
