"""Records to the columns of blocks (docs/journal.md, Block): what the journal's thread does most.

This is the Python twin of ``_assembly``, which is compiled where that is possible; both have the
same signature and give the same answers (tests/host_broker/net/test_journal_assembly.py). The
thread shares the interpreter with the event loop, so what it does for a record must be little.
``MOTEMQ_PURE_PYTHON=1`` in the environment leaves the compiled one out.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from host_broker.net.journal.format import pack_column
from host_broker.net.journal.mark import PROTOCOL, is_mark
from host_broker.outputs import Buffer, Record

_PACKETS, _WITH_PROPERTIES = 1, 2
_LONGEST_CLIENT = 65535
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


def python_assemble(
    group: Sequence[tuple[int, list[Record]]], partitions: int, most_bytes: int
) -> list[Assembled]:
    """Return the blocks of a group of records, those of each partition in order.

    ``group``: times of reads (ns since 1970 UTC) with their records. A record belongs to partition
    ``connection % partitions``. A block has bodies of at most ``most_bytes``, or one record. Raises
    ValueError for a record that is not ``count`` whole publications.
    """
    filling: dict[int, list[tuple[int, Record]]] = {}
    sizes: dict[int, int] = {}
    found: list[Assembled] = []
    for time_ns, records in group:
        for record in records:
            partition = record.connection % partitions
            size = len(record.body)
            block = filling.get(partition)
            if block is not None and sizes[partition] + size > most_bytes:
                found.append(_block(partition, block))
                block = None
            if block is None:
                block = filling[partition] = []
                sizes[partition] = 0
            block.append((time_ns, record))
            sizes[partition] += size
    found += [_block(partition, block) for partition, block in filling.items()]
    return found


def _block(partition: int, block: list[tuple[int, Record]]) -> Assembled:
    records = [record for _, record in block]
    times = array("Q", [time_ns for time_ns, _ in block])
    clients = [record.client.encode() for record in records]
    lengths = array("I")
    for record in records:
        if record.count == 1:
            lengths.append(len(record.body))
        else:
            lengths.extend(message_lengths(record))
    if max(map(len, clients)) > _LONGEST_CLIENT:
        raise ValueError(f"the name of a client is at most {_LONGEST_CLIENT} bytes long")
    columns = [
        times,
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
    parts: list[Buffer] = [head, bodies[0]] if len(bodies) == 1 else [b"".join([head, *bodies])]
    marks = [
        record.client
        for record in records
        if record.client and record.protocol == PROTOCOL and is_mark(record.client)
    ]
    return Assembled(
        partition,
        len(records),
        sum(record.count for record in records),
        max(time_ns for time_ns, _ in block),
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
    from host_broker.net.journal._assembly import assemble as assemble
except ImportError:  # not wanted, or no compiler where this was installed: slower, and the same
    COMPILED = False
    assemble = python_assemble
