"""Journals to measure with, written by the broker's own code."""

import random
from dataclasses import replace
from pathlib import Path

from host_broker.net.journal.assembly import assemble
from host_broker.net.journal.identity import identity_of
from host_broker.net.journal.segment import BLOCK_BYTES, Partition
from host_broker.outputs import Record
from host_broker.settings import JournalSettings

TOPICS = 50
_START_NS = 1_767_225_600_000_000_000
_FLUSH_NS = 50_000_000


def reads(count: int, messages: int, seed: int = 1) -> list[Record]:
    """Return so many records of ``messages`` each: telemetry of 50 topics, lengths differ."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        packets = []
        for _ in range(messages):
            topic = b"home/room%02d/temperature" % chance.randrange(TOPICS)
            body = b'{"n":%d,"temperature":%.3f}' % (number, chance.uniform(10, 30))
            packets.append(bytes([0, len(topic)]) + len(body).to_bytes(4, "big") + topic + body)
        found.append(Record(1 + number % 500, 1, "", messages, b"".join(packets)))
    return found


def write(
    folder: Path, records: list[Record], flush: int, total_bytes: int, partitions: int = 1
) -> int:
    """Write ``records`` again and again, ``flush`` of them at once; returns the messages."""
    identity = identity_of(folder)
    made = [
        assemble([(_START_NS, records[at : at + flush])], 1, BLOCK_BYTES)
        for at in range(0, len(records), flush)
    ]
    messages = 0
    for number in range(partitions):
        partition = Partition(folder, number, identity, 1, JournalSettings())
        size = turn = 0
        while size < total_bytes // partitions:
            blocks = [
                replace(each, latest_ns=_START_NS + turn * _FLUSH_NS)
                for each in made[turn % len(made)]
            ]
            size += sum(each.length for each in blocks)
            partition.write(blocks)
            turn += 1
        messages += partition.next
        partition.close()
    return messages
