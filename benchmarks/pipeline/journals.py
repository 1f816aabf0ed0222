"""Journals to measure with, written by the broker's own code."""

import json
import random
from collections.abc import Callable
from pathlib import Path

from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings

PARTITIONS = 4
_READ_BYTES = 256 * 1024  # of one read of a busy publisher, hence of one record
_BOARDS = 25  # of one partition
_SENSORS = ((b"temperature", b"C"), (b"humidity", b"%"), (b"pressure", b"hPa"))
_START_NS = 1_767_225_600_000_000_000


def write(folder: Path, messages: int, a_record: int = 4000, seed: int = 1) -> None:
    """Write telemetry of 20 rooms: JSON of about 40 bytes, lengths differ.

    ``a_record``: how many messages one read of a connection brought, at most.
    """
    random_ = random.Random(seed)

    def message(number: int) -> tuple[bytes, bytes]:
        value = {"temperature": round(random_.uniform(10, 30), 3), "n": number}
        return f"home/room{number % 20}/temperature".encode(), json.dumps(value).encode()

    _write(folder, messages // PARTITIONS, lambda _: message, a_record)


def write_telemetry(folder: Path, messages: int) -> int:
    """Write readings (docs/node.md) of 25 boards a partition, 3 sensors each, 10 s apart.

    Returns how many there are.
    """

    def of_partition(partition: int) -> Callable[[int], tuple[bytes, bytes]]:
        def message(number: int) -> tuple[bytes, bytes]:
            seq, which = divmod(number, _BOARDS)
            board, (sensor, unit) = b"b%d-%d" % (partition, which), _SENSORS[seq % 3]
            body = (
                b'{"v":1,"board":"%s","seq":%d,"t_ms":%d,"sensor":"%s","unit":"%s","value":%.2f}'
                % (board, seq, seq * 10_000, sensor, unit, 20 + number * 7919 % 1000 / 100)
            )
            return b"telemetry/%s/%s" % (board, sensor), body

        return message

    _write(folder, messages // PARTITIONS, of_partition)
    return messages // PARTITIONS * PARTITIONS


def _write(
    folder: Path,
    each: int,
    of_partition: Callable[[int], Callable[[int], tuple[bytes, bytes]]],
    a_record: int = 1_000_000,
) -> None:
    identity = identity_of(folder)
    for number in range(PARTITIONS):
        message = of_partition(number)
        partition = Partition(folder, number, identity, 1, JournalSettings())
        packets: list[bytes] = []
        size = written = 0
        for at in range(each):
            topic, body = message(at)
            packets.append(bytes([0, len(topic)]) + len(body).to_bytes(4, "big") + topic + body)
            size += len(packets[-1])
            end = at == each - 1
            if size > _READ_BYTES or len(packets) == a_record or end:
                record = Record(number + 1, 1, "", len(packets), b"".join(packets))
                partition.append(_START_NS + at * 1_000_000, record)
                written += size
                packets, size = [], 0
            if written > _READ_BYTES or end:  # what the broker writes at a time, when it is busy
                partition.flush()
                written = 0
        partition.close()
