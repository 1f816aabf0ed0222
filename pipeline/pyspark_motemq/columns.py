"""Records to Arrow columns: the one place that touches every message, so it counts copies."""

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

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
_PACKET = struct.Struct(">BBI")  # flags, topic length, body length


def batches(data: bytes, records: Iterable[Record], stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """Yield the messages of ``records`` (which point into ``data``) as bounded batches.

    Raises ``JournalError`` when a record's count is not the number of packets in its body.
    """
    batch = _Batch(stretch)
    for record in records:
        batch.add(data, record)
        if batch.messages >= _BATCH_MESSAGES or batch.body_bytes >= _BATCH_BYTES:
            yield batch.finish()
            batch = _Batch(stretch)
    if batch.messages:
        yield batch.finish()


class _Batch:
    def __init__(self, stretch: Stretch) -> None:
        self._stretch = stretch
        self._records: list[Record] = []
        self._flags = bytearray()
        self._paths: list[bytes] = []
        self._payloads: list[bytes] = []
        self.messages = 0
        self.body_bytes = 0

    def add(self, data: bytes, record: Record) -> None:
        """Take the packets of one record."""
        position, end = record.body_start, record.body_end
        flags, paths, payloads = self._flags.append, self._paths.append, self._payloads.append
        take = _PACKET.unpack_from
        before = len(self._flags)
        last_head = end - _PACKET.size
        while position <= last_head:
            flag, path_length, length = take(data, position)
            path_at = position + 6
            payload_at = path_at + path_length
            position = payload_at + length
            flags(flag)
            paths(data[path_at:payload_at])
            payloads(data[payload_at:position])
        found = len(self._flags) - before
        if position != end or found != record.count:
            what = f"count {record.count}, but its body is not that many whole packets"
            raise corrupt(self._stretch.file, record.offset, what)
        self._records.append(record)
        self.messages += found
        self.body_bytes += end - record.body_start

    def finish(self) -> pa.RecordBatch:
        """Return the columns."""
        records = self._records
        counts = [record.count for record in records]
        of_record = np.repeat(np.arange(len(records), dtype=np.int32), counts)
        time_ns = np.array([record.time_ns for record in records], np.uint64).astype(np.int64)
        connections = np.array([record.connection for record in records], np.int64)
        flags = np.frombuffer(self._flags, np.uint8)
        first = records[0].sequence
        # Integer microseconds: seconds as a float would change the last digits.
        microseconds = pa.array((time_ns // 1000)[of_record], pa.timestamp("us", tz="UTC"))
        protocols = [
            _PROTOCOLS.get(record.protocol, f"protocol {record.protocol}") for record in records
        ]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(np.full(self.messages, self._stretch.partition, np.int32)),
                pa.array(np.arange(first, first + self.messages, dtype=np.int64)),
                microseconds,
                pa.array(time_ns[of_record]),
                pa.array(protocols, pa.string()).take(pa.array(of_record)),
                pa.array(connections[of_record]),
                pa.array([record.client for record in records], pa.string()).take(
                    pa.array(of_record)
                ),
                _texts(self._paths),
                pa.array((flags & _RETAINED) != 0),
                pa.array((flags & _WILL) != 0),
                pa.array(self._payloads, pa.binary()),
            ],
            schema=ARROW_SCHEMA,
        )


def _texts(paths: list[bytes]) -> pa.Array:
    """Return paths as text; bytes that are not UTF-8 stay visible as backslash escapes."""
    try:
        return pa.array(paths, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([path.decode("utf-8", "backslashreplace") for path in paths], pa.string())
