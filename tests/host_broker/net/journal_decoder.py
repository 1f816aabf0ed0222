"""A reader of docs/journal.md, written from that page and sharing no code with the writer."""

import struct
import zlib
from dataclasses import dataclass, field
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
    properties: dict[str, bytes] = field(default_factory=dict, hash=False)


class Corrupt(Exception):
    """A bad block: file name and offset."""


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big")


class _Columns:
    def __init__(self, block: bytes) -> None:
        self._block = block
        self._at = 48

    def numbers(self, code: str, count: int) -> list[int]:
        size = struct.calcsize(f"<{count}{code}")
        found = struct.unpack(f"<{count}{code}", self.bytes(size))
        return list(found)

    def bytes(self, size: int) -> bytes:
        data = self._block[self._at : self._at + size]
        if len(data) < size:
            raise ValueError("the columns are longer than the block")
        self._at += size
        return data

    def rest(self) -> bytes:
        return self._block[self._at :]


def read_block(block: bytes) -> list[Stored]:
    """Return the messages of a whole block; ValueError if they are not what its columns say."""
    flags, _, first, latest_ns, records, count, clients_length, _ = struct.unpack(
        "<HHQQIIII", block[12:48]
    )
    if flags == 2:
        return []
    columns = _Columns(block)
    times = columns.numbers("Q", records)
    connections, counts = columns.numbers("I", records), columns.numbers("I", records)
    client_lengths = columns.numbers("H", records)
    protocols, encodings = columns.numbers("B", records), columns.numbers("B", records)
    lengths = columns.numbers("I", count)
    numbers = columns.numbers("I", count) if flags == 1 else list(range(count))
    names, bodies = columns.bytes(clients_length), columns.rest()
    if sum(counts) != count or sum(client_lengths) != len(names) or sum(lengths) != len(bodies):
        raise ValueError("count: the columns do not add up")
    if max(times) != latest_ns or 0 in counts:
        raise ValueError("count: a record without messages, or another latest time")
    found = []
    for number, messages in enumerate(counts):
        client, names = names[: client_lengths[number]], names[client_lengths[number] :]
        for _ in range(messages):
            message, bodies = bodies[: lengths[0]], bodies[lengths.pop(0) :]
            topic, body, its_flags, properties = _message(message, encodings[number])
            found.append(
                Stored(
                    first + numbers.pop(0),
                    topic,
                    body,
                    its_flags,
                    connections[number],
                    protocols[number],
                    client.decode(),
                    times[number],
                    properties,
                )
            )
    return found


def _message(message: bytes, encoding: int) -> tuple[str, bytes, int, dict[str, bytes]]:
    properties = {}
    if encoding == 2:
        length = _number(message[:4])
        properties = _properties(message[4 : 4 + length])
        message = message[4 + length :]
    elif encoding != 1:
        raise ValueError(f"encoding {encoding}")
    if len(message) < 6 or len(message) != 6 + message[1] + _number(message[2:6]):
        raise ValueError("length: a message is not one packet")
    topic_end = 6 + message[1]
    return message[6:topic_end].decode(), message[topic_end:], message[0], properties


def _properties(data: bytes) -> dict[str, bytes]:
    properties = {}
    while data:
        name_end = 5 + data[0]
        end = name_end + _number(data[1:5])
        if end > len(data):
            raise ValueError("a property is cut short")
        properties[data[5:name_end].decode()] = data[name_end:end]
        data = data[end:]
    return properties


def read_blocks(data: bytes) -> list[Stored]:
    """Return the messages of whole blocks, as an HTTP answer has them."""
    found: list[Stored] = []
    while data:
        length = _whole(data, 0)
        assert length
        found += read_block(data[:length])
        data = data[length:]
    return found


def _whole(data: bytes, at: int) -> int:
    """Return the length of the whole block there is, 0 if there is none."""
    if len(data) - at < 48 or data[at : at + 4] != b"MBLK":
        return 0
    length, crc = struct.unpack_from("<II", data, at + 4)
    block = data[at : at + length]
    return length if len(block) == length >= 48 and zlib.crc32(block[12:]) == crc else 0


def read_segment(
    name: str, data: bytes, end_seq: int | None, last: bool
) -> tuple[list[Stored], bool]:
    """Return the messages of a segment, and whether its tail is torn.

    ``end_seq``: where the next segment of the partition begins.
    """
    head = data[:64]
    if head[:8] != b"MOTEJRNL" or struct.pack("<I", zlib.crc32(head[:60])) != head[60:]:
        if last and not any(_whole(data, at) for at in range(64, len(data))):
            return [], True
        raise Corrupt(f"{name}, offset 0")
    version, _, partition, seq = struct.unpack_from("<HHIQ", head, 8)
    if version != 2 or name != f"p{partition:04d}/{seq:020d}.mjl":
        raise Corrupt(f"{name}, offset 0")
    found: list[Stored] = []
    at = 64
    while at < len(data) and seq != end_seq:
        length = _whole(data, at)
        if not length:
            if last and not any(_whole(data, later) for later in range(at, len(data))):
                return found, True
            raise Corrupt(f"{name}, offset {at}")
        block = data[at : at + length]
        try:
            messages = read_block(block)
        except (ValueError, IndexError, struct.error) as error:
            raise Corrupt(f"{name}, offset {at}: {error}") from error
        first, count = struct.unpack_from("<Q12xI", block, 16)
        if first != seq or block[44:48] != head[60:] or block[12] == 1:
            raise Corrupt(f"{name}, offset {at}: sequence")
        found += messages
        seq += count
        at += length
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
