"""Journals to measure with, written by the broker's own code."""

import json
import random
from pathlib import Path

from host_broker.net.journal.segment import Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings

PARTITIONS = 4
_READ_BYTES = 256 * 1024  # of one read of a busy publisher, hence of one record
_START_NS = 1_767_225_600_000_000_000


def write(folder: Path, messages: int, seed: int = 1) -> None:
    """Write telemetry of 20 rooms: JSON of about 40 bytes, lengths differ."""
    random_ = random.Random(seed)
    for number in range(PARTITIONS):
        partition = Partition(folder, number, 1, JournalSettings())
        packets: list[bytes] = []
        size = 0
        for message in range(messages // PARTITIONS):
            topic = f"home/room{message % 20}/temperature".encode()
            value = {"temperature": round(random_.uniform(10, 30), 3), "n": message}
            body = json.dumps(value).encode()
            packets.append(bytes([0, len(topic)]) + len(body).to_bytes(4, "big") + topic + body)
            size += len(packets[-1])
            if size > _READ_BYTES or message == messages // PARTITIONS - 1:
                record = Record(number + 1, 1, "", len(packets), b"".join(packets))
                partition.append(_START_NS + message * 1_000_000, record)
                partition.flush()
                packets, size = [], 0
        partition.close()
