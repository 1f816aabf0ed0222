"""A segment of the journal as docs/journal.md spells it, sharing no code with the broker."""

import struct
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

START_NS = 1_767_225_600_123_456_789  # 2026-01-01 00:00:00.123456789 UTC
JOURNAL = uuid.UUID("6d6f7465-6d71-4000-8000-6a6f75726e61")


def packet(path: str, payload: bytes, flags: int = 0) -> bytes:
    """Spell one publication, encoding 1."""
    topic = path.encode()
    return struct.pack(">BBI", flags, len(topic), len(payload)) + topic + payload


@dataclass(frozen=True)
class Sender:
    """What a record says of the connection it came from."""

    connection: int
    protocol: int
    client: str = ""


@dataclass(frozen=True)
class Record:
    """One record: messages as they are in a block's bodies."""

    sender: Sender
    messages: Sequence[bytes]
    time_ns: int = START_NS
    encoding: int = 1
    count: int | None = None  # what the column says, if that is wrong


class Segment:
    """``data`` is the segment, ``next`` the number of the message that comes next."""

    def __init__(
        self,
        partition: int = 0,
        first: int = 0,
        run: int = 0,
        journal: uuid.UUID = JOURNAL,
        created_ns: int = START_NS,
    ) -> None:
        head = struct.pack(
            "<8sHHIQQ16sIQ",
            b"MOTEJRNL",
            2,
            0,
            partition,
            first,
            created_ns,
            journal.bytes,
            run,
            0,
        )
        self.crc = zlib.crc32(head)
        self.data = head + struct.pack("<I", self.crc)
        self.name = f"p{partition:04d}/{first:020d}.mjl"
        self.next = first

    def block(self, *records: Record, first: int | None = None) -> bytes:
        """Add one block, and return it."""
        messages = [message for record in records for message in record.messages]
        names = [record.sender.client.encode() for record in records]
        counts = [
            len(record.messages) if record.count is None else record.count for record in records
        ]
        columns = (
            struct.pack(f"<{len(records)}Q", *(record.time_ns for record in records))
            + struct.pack(f"<{len(records)}I", *(record.sender.connection for record in records))
            + struct.pack(f"<{len(records)}I", *counts)
            + struct.pack(f"<{len(records)}H", *map(len, names))
            + bytes(record.sender.protocol for record in records)
            + bytes(record.encoding for record in records)
            + struct.pack(f"<{len(messages)}I", *map(len, messages))
            + b"".join(names)
        )
        covered = struct.pack(
            "<HHQQIIII",
            0,
            0,
            self.next if first is None else first,
            max(record.time_ns for record in records),
            len(records),
            len(messages),
            sum(map(len, names)),
            self.crc,
        )
        self.next += len(messages)
        return self.add(covered + columns + b"".join(messages))

    def lost(self, count: int) -> bytes:
        """Add a block that stands for messages that are lost."""
        covered = struct.pack("<HHQQIIII", 2, 0, self.next, 0, 0, count, 0, self.crc)
        self.next += count
        return self.add(covered)

    def add(self, covered: bytes) -> bytes:
        """Add a block of which these are the bytes that its CRC covers."""
        block = struct.pack("<4sII", b"MBLK", 12 + len(covered), zlib.crc32(covered)) + covered
        self.data += block
        return block

    def record(self, sender: Sender, messages: Sequence[bytes], time_ns: int = START_NS) -> bytes:
        """Add one record as a block of its own."""
        return self.block(Record(sender, messages, time_ns))

    def path(self, journal: Path) -> Path:
        """Return where it belongs."""
        return journal / self.name

    def write(self, journal: Path) -> Path:
        """Write it; returns where."""
        path = self.path(journal)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path
