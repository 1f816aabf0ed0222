"""The bytes of a journal segment, as docs/journal.md says; no files here."""

import struct

from host_broker.net.checksum import crc32
from host_broker.outputs import Record

SEGMENT_SUFFIX = ".mjl"
HEADER_LENGTH = 40
LONGEST_RECORD = 16 * 1024 * 1024 + 64 * 1024  # of the length field
RECORD_FIXED_LENGTH = 28  # of what the length field counts: time to client_length
PREFIX_LENGTH = 8  # length and CRC fields

_MAGIC = b"MOTEJRNL"
_VERSION = 1
_ENCODING_FMQP = 1
_HEADER = struct.Struct(">8sHHIQQI")  # the last: the run of the broker
_CRC = struct.Struct(">I")
_PREFIX = struct.Struct(">II")
_FIXED = struct.Struct(">QQIIBBH")
_TIME = struct.Struct(">Q")
_RUN_AT = 32
_SEQUENCE_AND_COUNT = struct.Struct(">8xQI")


def segment_name(first_sequence: int) -> str:
    """Return the file name of the segment whose first message has this number."""
    return f"{first_sequence:020d}{SEGMENT_SUFFIX}"


def segment_header(partition: int, first_sequence: int, created_ns: int, run: int = 0) -> bytes:
    """Return the 40 bytes a segment begins with; ``run`` is 1 to 2**31 - 1, 0 = not known."""
    head = _HEADER.pack(_MAGIC, _VERSION, 0, partition, first_sequence, created_ns, run)
    return head + _CRC.pack(crc32(head))


def header_complaint(data: bytes, partition: int, first_sequence: int) -> str:
    """Return what is wrong with a segment's first 40 bytes, "" if nothing is."""
    if len(data) < HEADER_LENGTH:
        return f"its header is {len(data)} bytes long instead of {HEADER_LENGTH}"
    magic, version, _, stored_partition, stored_sequence, _, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        return "it does not begin with MOTEJRNL"
    if _CRC.unpack_from(data, _HEADER.size)[0] != crc32(data[: _HEADER.size]):
        return "the CRC of its header is wrong"
    if version != _VERSION:
        return f"it has format version {version}, this broker writes version {_VERSION}"
    if (stored_partition, stored_sequence) != (partition, first_sequence):
        return f"its header is of partition {stored_partition}, message {stored_sequence}"
    return ""


def record_head(record: Record, time_ns: int, sequence: int) -> bytes:
    """Return everything of a record that comes before its body; the body follows verbatim.

    ``time_ns`` is the time of the read (ns since 1970 UTC), ``sequence`` the number of the run's
    first message in its partition.
    """
    client = record.client.encode()
    fixed = _FIXED.pack(
        time_ns,
        sequence,
        record.count,
        record.connection,
        record.protocol,
        _ENCODING_FMQP,
        len(client),
    )
    head = fixed + client
    crc = crc32(record.body, crc32(head))
    return _PREFIX.pack(len(head) + len(record.body), crc) + head


def take_prefix(data: memoryview, position: int) -> tuple[int, int]:
    """Return the length and CRC fields of the record at ``position`` (8 bytes must be there)."""
    length, crc = _PREFIX.unpack_from(data, position)
    return length, crc


def take_sequence_and_count(data: memoryview, position: int) -> tuple[int, int]:
    """Return first sequence number and message count of a whole record at ``position``."""
    sequence, count = _SEQUENCE_AND_COUNT.unpack_from(data, position + PREFIX_LENGTH)
    return sequence, count


def take_time_ns(data: memoryview, position: int) -> int:
    """Return the time of a whole record at ``position``, ns since 1970 UTC."""
    (time_ns,) = _TIME.unpack_from(data, position + PREFIX_LENGTH)
    return int(time_ns)


def take_client(data: memoryview, position: int) -> tuple[int, bytes]:
    """Return protocol and client name of a whole record at ``position``; "" if it is cut short."""
    at = position + PREFIX_LENGTH
    *_, protocol, _, length = _FIXED.unpack_from(data, at)
    name = at + RECORD_FIXED_LENGTH
    return int(protocol), bytes(data[name : name + length])


def run_of(header: bytes) -> int:
    """Return the broker's run of a segment header without complaints."""
    return int.from_bytes(header[_RUN_AT : _RUN_AT + 4], "big")
