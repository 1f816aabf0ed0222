"""The stored forms of a publication (docs/journal.md, encodings 1 and 2), and runs of them.

Encoding 1: ``flags(1) topic_length(1) body_length(4, big-endian) topic body``. The bus carries it,
the journal keeps it, and it is byte for byte an FMQP publication packet, so that FMQP pays nothing
for it. Encoding 2, of publications with properties: ``length(4, big-endian) properties packet``,
where ``length`` is that of the properties, each ``name_length(1) value_length(4) name value``, and
the packet is encoding 1.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct

from host_broker.outputs import Buffer

HEADER = Struct(">BBI")
WILL = 0x08
RETAINED = 0x04
FEEDBACK = 0x20
MAX_TOPIC = 255
SERVICE = b"$"  # the first level of the broker's own topics

PACKETS, WITH_PROPERTIES = 1, 2  # encodings

Properties = Mapping[str, bytes]


class _NoProperties(dict[str, bytes]):
    """Hashable, so that a dataclass takes it for a default; nobody changes it."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]


NO_PROPERTIES: Properties = _NoProperties()
MAX_PROPERTIES = 64  # of one publication
MAX_PROPERTY_NAME = 255  # bytes of UTF-8
MAX_PROPERTY_VALUE = 64 * 1024  # bytes

_LONG_PIECE = 4 * 1024 * 1024  # bytes; a record of the journal is at most 16 MiB (docs/journal.md)
_COPIED_BYTES = 1024  # a slice of less is copied: a view costs as much and keeps the read
_LENGTH = Struct(">I")
_PROPERTY = Struct(">BI")


@dataclass(slots=True)  # not frozen: one is made for every read, and freezing triples that time
class Run:
    """``count`` consecutive plain publications, ``data[start:end]``, in encoding 1.

    Plain: flags 0, a normal topic outside ``$``, a body. A codec's event and the bus's command: it
    is journalled verbatim, and forwarded so to everybody who takes the stored form. ``data`` is
    immutable.
    """

    data: bytes
    start: int
    end: int
    count: int

    def body(self) -> Buffer:
        """Return its bytes, without keeping a long read for the sake of a little of it."""
        data = self.data
        length = self.end - self.start
        if length == len(data):
            return data
        if length < _COPIED_BYTES or length < len(data) // 2:
            return data[self.start : self.end]
        return memoryview(data)[self.start : self.end]


def is_service(topic: bytes) -> bool:
    """Whether a topic belongs to the broker: its first level is literally ``$`` (FMQP A15)."""
    return topic == b"$" or topic.startswith(b"$/")


def topic_fault(topic: bytes) -> str:
    """Return what keeps bytes from being a normal topic, "" if nothing does.

    A normal topic is 1 to 255 bytes of UTF-8 without NUL and without a slash at either end.
    """
    if not 0 < len(topic) <= MAX_TOPIC:
        return f"the topic has {len(topic)} bytes, it can have 1 to {MAX_TOPIC}"
    if topic.startswith(b"/") or topic.endswith(b"/"):
        return f"the topic {topic!r} begins or ends with a slash"
    if b"\0" in topic:
        return f"the topic {topic!r} contains NUL"
    try:
        topic.decode()
    except UnicodeDecodeError:
        return f"the topic {topic!r} is not UTF-8"
    return ""


def pack(flags: int, topic: bytes, body: bytes) -> bytes:
    """Spell one publication. ``topic`` is normal and at most 255 bytes."""
    return HEADER.pack(flags, len(topic), len(body)) + topic + body


def pack_many(topic: bytes, bodies: Sequence[bytes]) -> bytes:
    """Spell plain publications of one topic, back to back."""
    heads = {
        size: HEADER.pack(0, len(topic), size) + topic for size in {len(body) for body in bodies}
    }
    return b"".join([part for body in bodies for part in (heads[len(body)], body)])


def pack_list(topics: Sequence[bytes], bodies: Sequence[bytes]) -> list[bytes]:
    """Spell plain publications, each for itself."""
    spell = HEADER.pack
    return [
        b"".join((spell(0, len(topic), len(body)), topic, body))
        for topic, body in zip(topics, bodies, strict=True)
    ]


def pack_each(
    topics: Sequence[bytes],
    bodies: Sequence[bytes],
    shared: Sequence[Properties],
    named: str,
    values: Sequence[bytes],
) -> Iterator[tuple[bytes, int]]:
    """Spell plain publications in encoding 2, in pieces of at most some MiB: the bytes and how many
    there are.

    Each has its properties of ``shared``, or the one that is there, and one more called ``named``
    with a value of its own.
    """
    spell = HEADER.pack
    parts: list[bytes] = []
    count = size = length = 0
    head = b""
    last: Properties | None = None
    each = zip(topics, bodies, _for_each(shared, topics), values, strict=False)
    for topic, body, own, value in each:
        if own is not last or len(value) != length:
            last, length = own, len(value)
            spelled = _properties_before(own, named, length)
            head = _LENGTH.pack(len(spelled) + length) + spelled
        parts += (head, value, spell(0, len(topic), len(body)), topic, body)
        count += 1
        size += len(head) + length + HEADER.size + len(topic) + len(body)
        if size > _LONG_PIECE:
            yield b"".join(parts), count
            parts, count, size = [], 0, 0
    if parts:
        yield b"".join(parts), count


def pack_properties_each(
    shared: Sequence[Properties], named: str, values: Sequence[bytes]
) -> list[bytes]:
    """Spell the properties of publications, which are as those of ``pack_each``."""
    spelled: list[bytes] = []
    length = 0
    head = b""
    last: Properties | None = None
    for own, value in zip(_for_each(shared, values), values, strict=False):
        if own is not last or len(value) != length:
            last, length = own, len(value)
            head = _properties_before(own, named, length)
        spelled.append(head + value)
    return spelled


def _for_each(shared: Sequence[Properties], messages: Sequence[bytes]) -> Iterable[Properties]:
    return shared if len(shared) == len(messages) else repeat(shared[0])


def _properties_before(shared: Properties, named: str, length: int) -> bytes:
    """Return properties as they are spelled before the value of one more, of this length."""
    raw_name = named.encode()
    return pack_properties(shared) + _PROPERTY.pack(len(raw_name), length) + raw_name


def unpack(run: Buffer) -> Iterator[tuple[int, bytes, bytes]]:
    """Read (flags, topic, body) of every publication of a run; a run holds whole ones only."""
    run = bytes(run)  # once, and none if it is: what is cut from it is no copy of a copy
    position = 0
    size = len(run)
    header = HEADER.unpack_from
    while position < size:
        flags, topic_length, body_length = header(run, position)
        body = position + 6 + topic_length
        position = body + body_length
        yield flags, run[body - topic_length : body], run[body:position]


def unpack_one(packet: bytes) -> tuple[int, bytes, bytes]:
    """Read the only publication of a packet; ValueError if it is not exactly one."""
    if len(packet) >= HEADER.size:
        flags, topic_length, body_length = HEADER.unpack_from(packet)
        body = HEADER.size + topic_length
        if len(packet) == body + body_length:
            return flags, packet[HEADER.size : body], packet[body:]
    raise ValueError(f"{len(packet)} bytes are not one publication")


def property_fault(properties: Properties) -> str:
    """Return what is wrong with properties, "" if nothing is.

    At most 64 of them; a name is 1 to 255 bytes of UTF-8, a value at most 64 KiB.
    """
    if len(properties) > MAX_PROPERTIES:
        return f"{len(properties)} properties, at most {MAX_PROPERTIES} are allowed"
    for name, value in properties.items():
        try:
            length = len(name.encode())
        except UnicodeEncodeError:
            return f"a property's name is no UTF-8: {name!r}"
        if not 0 < length <= MAX_PROPERTY_NAME:
            return f"a property's name has {length} bytes, it can have 1 to {MAX_PROPERTY_NAME}"
        if len(value) > MAX_PROPERTY_VALUE:
            return (
                f"the property {name!r} has {len(value)} bytes, "
                f"at most {MAX_PROPERTY_VALUE} are allowed"
            )
    return ""


def pack_properties(properties: Properties) -> bytes:
    """Spell properties without faults (``property_fault``)."""
    parts = []
    for name, value in properties.items():
        raw = name.encode()
        parts += [_PROPERTY.pack(len(raw), len(value)), raw, value]
    return b"".join(parts)


def unpack_properties(data: bytes) -> dict[str, bytes]:
    """Read what ``pack_properties`` spelled; ValueError if it is anything else."""
    properties: dict[str, bytes] = {}
    position = 0
    while position < len(data):
        if len(data) - position < _PROPERTY.size:
            raise ValueError("properties are cut short")
        name_length, value_length = _PROPERTY.unpack_from(data, position)
        name = position + _PROPERTY.size
        value = name + name_length
        position = value + value_length
        if position > len(data):
            raise ValueError("properties are cut short")
        properties[data[name:value].decode()] = data[value:position]
    return properties


def pack_with_properties(packet: bytes, properties: Properties) -> bytes:
    """Spell one publication, given in encoding 1, in encoding 2."""
    spelled = pack_properties(properties)
    return _LENGTH.pack(len(spelled)) + spelled + packet


def unpack_with_properties(data: Buffer) -> Iterator[tuple[int, bytes, bytes, dict[str, bytes]]]:
    """Read (flags, topic, body, properties) of every publication in encoding 2."""
    position = 0
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        packet = position + _LENGTH.size + length
        properties = unpack_properties(bytes(data[packet - length : packet]))
        flags, topic_length, body_length = HEADER.unpack_from(data, packet)
        body = packet + HEADER.size + topic_length
        position = body + body_length
        yield (
            flags,
            bytes(data[body - topic_length : body]),
            bytes(data[body:position]),
            properties,
        )
