"""Records to Arrow columns: the one place that touches every message, so no loop of ours does."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from pyspark_motemq.packets import HEAD_BYTES, Bytes, Finder, lengths
from pyspark_motemq.records import Record, Stretch, corrupt

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

_BATCH_MESSAGES = 32_768  # per batch, rounded up to whole records
_BATCH_BYTES = 8 * 1024 * 1024  # of bodies, rounded up likewise: a record is at most 16 MiB
_PROTOCOLS = {0: "broker", 1: "fmqp", 2: "lightmq"}
_WILL, _RETAINED = 0x08, 0x04


def batches(data: bytes, records: Iterable[Record], stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``records`` (which point into ``data``) as bounded batches.

    Raises ``JournalError`` when a record's count is not the number of packets in its body.
    """
    batch = _Batch(data, stretch)
    for record in records:
        batch.add(record)
        if batch.messages >= _BATCH_MESSAGES or batch.body_bytes >= _BATCH_BYTES:
            yield from _wanted(batch.finish(), batch.first, stretch)
            batch = _Batch(data, stretch)
    if batch.messages:
        yield from _wanted(batch.finish(), batch.first, stretch)


def _wanted(batch: pa.RecordBatch, first: int, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Yield the messages that are wanted, if any; records have others, too."""
    low = max(0, stretch.low - first)
    high = batch.num_rows if stretch.high is None else min(batch.num_rows, stretch.high - first)
    if low < high:
        yield batch.slice(low, high - low)


class _Batch:
    def __init__(self, data: bytes, stretch: Stretch) -> None:
        self._data = data
        self._stretch = stretch
        self._records: list[Record] = []
        self._finder = Finder(data)
        self.messages = 0
        self.body_bytes = 0

    @property
    def first(self) -> int:
        """The number of the first message."""
        return self._records[0].sequence

    def add(self, record: Record) -> None:
        """Take the packets of one record."""
        if not self._finder.take(record.body_start, record.body_end, record.count):
            what = f"count {record.count}, but its body is not that many whole packets"
            raise corrupt(self._stretch.file, record.offset, what)
        self._records.append(record)
        self.messages += record.count
        self.body_bytes += record.body_end - record.body_start

    def finish(self) -> pa.RecordBatch:
        """Return the columns."""
        records = self._records
        counts = [record.count for record in records]
        of_record = np.repeat(np.arange(len(records), dtype=np.int32), counts)
        time_ns = np.array([record.time_ns for record in records], np.uint64).astype(np.int64)
        # Ids begin with 1 at every start of the broker.
        connections = np.array([record.connection for record in records], np.int64)
        connections |= self._stretch.run << 32
        flags, paths, payloads = self._packets()
        first = self.first
        # Integer microseconds: seconds as a float would change the last digits.
        microseconds = pa.array((time_ns // 1000)[of_record], pa.timestamp("us", tz="UTC"))
        protocols = [
            _PROTOCOLS.get(record.protocol, f"protocol {record.protocol}") for record in records
        ]
        clients = [record.client for record in records]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(self.messages, self._stretch.partition, np.int32)),
                pa.array(np.arange(first, first + self.messages, dtype=np.int64)),
                microseconds,
                pa.array(time_ns[of_record]),
                pa.array(protocols, pa.string()).take(pa.array(of_record)),
                pa.array(connections[of_record]),
                pa.array(clients, pa.string()).take(pa.array(of_record)),
                _texts(paths),
                pa.array((flags & _RETAINED) != 0),
                pa.array((flags & _WILL) != 0),
                payloads,
            ],
            schema=ARROW_SCHEMA,
        )

    def _packets(self) -> tuple[Bytes, pa.Array, pa.Array]:
        """Return flags, topics and payloads of all packets.

        All bytes of the stretch, as one column of pieces (a head, a topic, a payload, a head, …),
        are those bytes themselves; what is wanted of it is copied once, by Arrow.
        """
        at = self._finder.places()
        data = np.frombuffer(self._data, np.uint8)
        topics, bodies = lengths(data, at)
        edges = np.empty(3 * len(at) + 1, np.int32)
        edges[0] = at[0]
        edges[1::3] = topic_at = at + HEAD_BYTES
        edges[2::3] = payload_at = topic_at + topics
        edges[3::3] = payload_at + bodies
        pieces = pa.BinaryArray.from_buffers(
            pa.binary(), 3 * len(at), [None, pa.py_buffer(edges), pa.py_buffer(self._data)]
        )
        numbers = np.arange(0, 3 * len(at), 3)
        paths, payloads = pieces.take(pa.array(numbers + 1)), pieces.take(pa.array(numbers + 2))
        return data[at], paths, payloads


def _texts(paths: pa.Array) -> pa.Array:
    """Return paths as text; bytes that are not UTF-8 stay visible as backslash escapes."""
    try:
        return paths.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [path.decode("utf-8", "backslashreplace") for path in paths.to_pylist()]
        return pa.array(texts, pa.string())
