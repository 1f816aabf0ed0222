"""A reader of docs/journal.md, written from that page and sharing no code with the writer."""

import zlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stored:
    """One message of a journal."""

    seq: int
    topic: str
    body: bytes
    flags: int
    connection: int
    protocol: int
    client: str
    time_ns: int


class Corrupt(Exception):
    """A bad record: file name and offset."""


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _messages(record: bytes) -> list[Stored]:
    time_ns, seq, count = _number(record[0:8]), _number(record[8:16]), _number(record[16:20])
    connection, protocol, encoding = _number(record[20:24]), record[24], record[25]
    client_length = _number(record[26:28])
    client, body = record[28 : 28 + client_length].decode(), record[28 + client_length :]
    messages = []
    while body:
        topic_end = 6 + body[1]
        end = topic_end + _number(body[2:6])
        if end > len(body):
            raise ValueError("a packet is cut short")
        topic, payload, flags = body[6:topic_end].decode(), body[topic_end:end], body[0]
        messages.append(
            Stored(
                seq + len(messages), topic, payload, flags, connection, protocol, client, time_ns
            )
        )
        body = body[end:]
    if encoding != 1 or count == 0 or count != len(messages):
        raise ValueError(f"count {count} for {len(messages)} packets, encoding {encoding}")
    return messages


def read_segment(
    name: str, data: bytes, end_seq: int | None, last: bool
) -> tuple[list[Stored], bool]:
    """Return the messages of a segment, and whether its tail is torn.

    ``end_seq``: where the next segment of the partition begins.
    """
    header = data[:40]
    if header[:8] != b"MOTEJRNL" or _number(header[36:40]) != zlib.crc32(header[:36]):
        raise Corrupt(f"{name}, offset 0")
    partition, seq = _number(header[12:16]), _number(header[16:24])
    if name != f"p{partition:04d}/{seq:020d}.mjl":
        raise Corrupt(f"{name}, offset 0")
    found: list[Stored] = []
    at = 40
    while at < len(data) and seq != end_seq:
        length = _number(data[at : at + 4])
        if len(data) - at < 4:
            return found, True
        if not 28 <= length <= 16 * 1024 * 1024 + 64 * 1024:
            raise Corrupt(f"{name}, offset {at}")
        record = data[at + 8 : at + 8 + length]
        if len(record) < length:
            return found, True
        if zlib.crc32(record) != _number(data[at + 4 : at + 8]):
            if last and at + 8 + length == len(data):
                return found, True
            raise Corrupt(f"{name}, offset {at}")
        try:
            messages = _messages(record)
        except ValueError as error:
            raise Corrupt(f"{name}, offset {at}: {error}") from error
        if messages[0].seq != seq:
            raise Corrupt(f"{name}, offset {at}: sequence")
        found += messages
        seq += len(messages)
        at += 8 + length
    return found, at < len(data)


def read_journal(folder: Path) -> dict[int, list[Stored]]:
    """Return the messages of each partition in order; they are numbered without gaps."""
    found = {}
    for partition in sorted(folder.glob("p*")):
        segments = sorted(partition.glob("*.mjl"))
        starts = [int(path.stem) for path in segments]
        messages: list[Stored] = []
        for path, end in zip(segments, [*starts, None][1:], strict=True):
            name = f"{partition.name}/{path.name}"
            got, _ = read_segment(name, path.read_bytes(), end, last=end is None)
            messages += got
        assert [stored.seq for stored in messages] == list(range(len(messages)))
        found[int(partition.name[1:])] = messages
    return found
