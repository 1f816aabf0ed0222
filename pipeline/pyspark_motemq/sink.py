"""What Spark calls for ``writeStream.format("motemq")``: rows become publications at commit.

Tasks only prepare what is to be published, because a task may run twice. The driver publishes when
Spark commits the batch, under a number that the broker knows: a batch that Spark repeats after a
crash is not published again.
"""

import hashlib
import json
import urllib.parse
import uuid
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, BooleanType, StringType, StructType

from pyspark_motemq.blocks import JournalError
from pyspark_motemq.remote import Broker, brokers_at
from pyspark_motemq.workers import settle

_PACKETS = "application/x-fmqp"
_PART_BYTES = 4 * 1024 * 1024  # of one request
_ASKED_AT_ONCE = 1000  # topics
_RETAINED = 0x04
_MOST_BODY = 8 * 1024 * 1024  # of a payload, whatever the broker's bus.max_body is
_OPTIONS = ("brokers", "tokenFile", "caFile", "onDemand")
_OF_SPARK = ("checkpointlocation", "queryname", "path")  # it hands on what it was told itself
_COLUMNS = "path (string), payload (binary or string) and, if wanted, retained (boolean)"


@dataclass(frozen=True)
class SinkOptions:
    """Where to publish; ``on_demand``: nothing that nobody listens to, unless it is retained."""

    broker: Broker
    on_demand: bool
    publisher: str

    @classmethod
    def read(cls, given: Mapping[str, str], schema: StructType) -> "SinkOptions":
        """Read options and check the columns. Raises ``JournalError``."""
        values = {name.lower(): value for name, value in given.items()}
        known = {*map(str.lower, _OPTIONS), *_OF_SPARK}
        for name in values:
            if name not in known and not name.startswith("async"):  # Spark's, too
                raise JournalError(
                    f"option {name} is not known to the sink 'motemq'; there are: "
                    f"{', '.join(_OPTIONS)}"
                )
        url = values.get("brokers", "").strip()
        if not url or "," in url:
            raise JournalError(
                "to publish, the sink 'motemq' needs one broker's HTTP: "
                '.option("brokers", "http://127.0.0.1:8765")'
            )
        _check_columns(schema)
        on_demand = values.get("ondemand", "false").lower()
        if on_demand not in ("true", "false"):
            raise JournalError(f"option onDemand: '{on_demand}' must be true or false")
        (broker,) = brokers_at([url], values.get("tokenfile", ""), values.get("cafile", ""))
        return cls(broker, on_demand == "true", _publisher(values))


@dataclass
class Prepared(WriterCommitMessage):
    """Publications of one task: the lengths of all rows' packets, and those that are wanted.

    What nobody listens to is not ``wanted``, and not in ``packets``. Its length counts all the
    same: somebody may listen when Spark repeats the batch, and its parts must be the same then.
    """

    lengths: "array[int]"
    wanted: bytearray
    packets: bytes


class Writer(DataSourceArrowWriter):
    """Publishes a batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        """Prepare the publications of one task."""
        settle()
        return _prepared(self._options, iterator)

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Publish everything."""
        _publish(self._options.broker, f"batch:{uuid.uuid4()}", 0, messages)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """Publish nothing."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Publishes the batches of a stream, each once."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Prepared:
        """Prepare the publications of one task."""
        settle()
        return _prepared(self._options, iterator)

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        """Publish a batch, unless the broker knows it already."""
        _publish(self._options.broker, self._options.publisher, batchId, messages)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        """Publish nothing."""


def publish_once(rows: Iterable[pa.RecordBatch], options: Mapping[str, str], batch: int) -> None:
    """Publish the rows of a ``foreachBatch`` from the driver, as the sink would.

    ``options`` are those of the sink; ``checkpointLocation`` is the query's, by which and by
    ``batch`` the broker knows what it has published already. Raises ``JournalError``.
    """
    first, *others = list(rows)
    found = SinkOptions.read(options, from_arrow_schema(first.schema))
    _publish(found.broker, found.publisher, batch, [_prepared(found, iter([first, *others]))])


def _check_columns(schema: StructType) -> None:
    types = {field.name: field.dataType for field in schema.fields}
    known = {
        "path": (StringType,),
        "payload": (BinaryType, StringType),
        "retained": (BooleanType,),
    }
    wrong = [
        name
        for name, kind in types.items()
        if name not in known or not isinstance(kind, known[name])
    ]
    if wrong or not {"path", "payload"} <= set(types):
        found = ", ".join(f"{name} ({kind.simpleString()})" for name, kind in types.items())
        raise JournalError(f"the sink 'motemq' takes the columns {_COLUMNS}; there are {found}")


def _publisher(values: Mapping[str, str]) -> str:
    """Return the name under which the broker knows a query's batches.

    Batch numbers go on as long as a checkpoint lives, so the name is that of the checkpoint: Spark
    writes a random id into each.
    """
    place = values.get("checkpointlocation", "")
    if not place:
        return f"query:{uuid.uuid4()}"
    path = urllib.parse.urlsplit(place)
    if path.scheme in ("", "file"):
        try:
            metadata = json.loads((Path(path.path) / "metadata").read_text())
            return f"query:{metadata['id']}"
        except (OSError, ValueError, KeyError, TypeError):
            pass  # not there yet, or not a file system of this machine
    return "checkpoint:" + hashlib.sha256(place.encode()).hexdigest()


def _prepared(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> Prepared:
    lengths = array("I")
    wanted = bytearray()
    packets: list[bytes] = []
    asked: dict[str, bool] = {}
    for batch in batches:
        columns = batch.to_pydict()
        paths, payloads = columns["path"], columns["payload"]
        retained = columns.get("retained") or [False] * len(paths)
        if options.on_demand:
            _ask(options.broker, {path for path in paths if path not in asked}, asked)
        for path, payload, keep in zip(paths, payloads, retained, strict=True):
            packet = _packet(path, payload, bool(keep))
            lengths.append(len(packet))
            wanted.append(not options.on_demand or bool(keep) or asked[path])
            if wanted[-1]:
                packets.append(packet)
    return Prepared(lengths, wanted, b"".join(packets))


def _parts(prepared: Iterable[Prepared]) -> Iterator[bytes]:
    """Yield the packets of a batch in parts of about one size, in order; some may be empty.

    Where parts end depends on the rows alone: not on how they were spread over tasks, which may be
    another way when Spark repeats a batch. So a part has the same rows whenever it has its number.
    """
    part: list[memoryview] = []
    size = 0
    for each in prepared:
        packets, at = memoryview(each.packets), 0
        for length, wanted in zip(each.lengths, each.wanted, strict=True):
            if size and size + length > _PART_BYTES:
                yield b"".join(part)
                part, size = [], 0
            size += length
            if wanted:
                part.append(packets[at : at + length])
                at += length
    yield b"".join(part)


def _packet(path: str | None, payload: bytes | str | None, retained: bool) -> bytes:
    if path is None or payload is None:
        raise JournalError("the sink 'motemq' cannot publish a row whose path or payload is null")
    topic = path.encode()
    body = payload.encode() if isinstance(payload, str) else payload
    if not 0 < len(topic) <= 255:
        raise JournalError(f"the path '{path[:80]}' has {len(topic)} bytes; 1 to 255 are allowed")
    if len(body) > _MOST_BODY:
        raise JournalError(
            f"the payload for '{path[:80]}' has {len(body)} bytes; {_MOST_BODY} are allowed"
        )
    head = bytes([_RETAINED * retained, len(topic)]) + len(body).to_bytes(4, "big")
    return head + topic + body


def _ask(broker: Broker, paths: set[str | None], asked: dict[str, bool]) -> None:
    topics = sorted(path for path in paths if path is not None)
    for first in range(0, len(topics), _ASKED_AT_ONCE):
        some = topics[first : first + _ASKED_AT_ONCE]
        status, _, body = broker.ask("POST", "/wanted", json.dumps({"topics": some}).encode())
        if status != 200:
            raise broker.error_for(status, body)
        asked.update(zip(some, json.loads(body)["wanted"], strict=True))


def _publish(
    broker: Broker, publisher: str, batch: int, messages: "list[WriterCommitMessage | None]"
) -> None:
    prepared = [message for message in messages if isinstance(message, Prepared)]
    for number, part in enumerate(_parts(prepared)):
        if not part:
            continue
        headers = {
            "Content-Type": _PACKETS,
            "Publisher": publisher,
            "Publisher-Number": f"{batch}.{number}",
        }
        status, _, body = broker.ask("POST", "/publish", part, headers)
        if status != 200:
            raise broker.error_for(status, body)
        discarded = json.loads(body).get("discarded", 0)
        if discarded:
            raise JournalError(
                f"the broker at {broker.url} discarded {discarded} publications of batch {batch}: "
                "an incorrect path, a path of the broker's own, an empty payload, or one above "
                "bus.max_body; when the batch is repeated, it goes on without them"
            )
