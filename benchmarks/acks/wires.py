"""The two wire languages in which a message is acknowledged: what a client says and hears.

All messages of a measurement are of one length, so that bytes heard are messages heard.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

TOPIC = "bench/acks"

_LAST = 65535  # number of both; then comes 1
_SHORT = struct.Struct(">H")


@dataclass(frozen=True, slots=True)
class AckedWire:
    """One language. ``window``: how many messages may be without an ack.

    ``hello(name, window)``: what a client says, one after the other, each with the length of its
    answer. ``subscribe``: the same, to hear ``TOPIC``. ``publication(number, payload)``;
    ``delivery_bytes``: of a message as a subscriber hears it. ``acked(data, oldest)``: how many
    messages whole acks in ``data`` cover, of which ``oldest`` is the first, and how many bytes they
    are.
    ``acks(data, count, size)``: what a subscriber answers to so many whole messages.
    """

    name: str
    hello: Callable[[str, int], tuple[tuple[bytes, int], ...]]
    subscribe: tuple[bytes, int]
    publication: Callable[[int, bytes], bytes]
    delivery_bytes: Callable[[int], int]
    acked: Callable[[bytes, int], tuple[int, int]]
    acks: Callable[[bytes, int, int], bytes]


def _micromsg2_hello(name: str, window: int) -> tuple[tuple[bytes, int], ...]:
    required = f"pubsub;batch-ack:max-count={window}".encode()
    raw = name.encode()
    lists = _SHORT.pack(len(required)) + required + _SHORT.pack(0)
    handshake = bytes([1, 0, 0, len(raw)]) + raw + lists
    # Its reply: version, flags, "motemq", two empty lists; the last word has none.
    return (handshake, 4 + 6 + 4), (handshake, 0)


_MICROMSG2_ACK = struct.Struct(">BBBH")
_DESTINATION = f"topic/{TOPIC}".encode()


def _micromsg2_publication(number: int, payload: bytes) -> bytes:
    head = b"\0" + _SHORT.pack(number) + bytes([len(_DESTINATION)]) + _DESTINATION
    return head + _SHORT.pack(0) + bytes([len(payload)]) + payload


def _micromsg2_acked(data: bytes, oldest: int) -> tuple[int, int]:
    whole = len(data) // _MICROMSG2_ACK.size
    if not whole:
        return 0, 0
    *_, number = _MICROMSG2_ACK.unpack_from(data, (whole - 1) * _MICROMSG2_ACK.size)
    return (number - oldest) % _LAST + 1, whole * _MICROMSG2_ACK.size


def _micromsg2_acks(data: bytes, count: int, size: int) -> bytes:
    (number,) = _SHORT.unpack_from(data, (count - 1) * size + 1)
    return _MICROMSG2_ACK.pack(2, 2, 2, number)


_SUBSCRIBE = b"subscribe;destination=" + _DESTINATION.replace(b"/", b"%2F")

MICROMSG2 = AckedWire(
    "MicroMsg2, batch-ack",
    _micromsg2_hello,
    (b"\1" + bytes([len(_SUBSCRIBE)]) + _SUBSCRIBE, 0),
    _micromsg2_publication,
    lambda size: len(_micromsg2_publication(1, bytes(size))),
    _micromsg2_acked,
    _micromsg2_acks,
)


def _mqtt(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) > 127:
        raise ValueError("a packet of one length byte, please")
    return bytes([kind, len(body)]) + body


def _mqtt_text(text: str) -> bytes:
    return _SHORT.pack(len(text)) + text.encode()


def _mqtt_publication(number: int, payload: bytes) -> bytes:
    return _mqtt(0x32, _mqtt_text(TOPIC), _SHORT.pack(number), payload)


def _mqtt_acked(data: bytes, oldest: int) -> tuple[int, int]:
    whole = len(data) // 4
    return whole, whole * 4


def _mqtt_acks(data: bytes, count: int, size: int) -> bytes:
    at = 4 + len(TOPIC)
    numbers = [data[start + at : start + at + 2] for start in range(0, count * size, size)]
    return b"\x40\x02" + b"\x40\x02".join(numbers)


MQTT_QOS_1 = AckedWire(
    "MQTT, QoS 1",
    lambda name, window: ((_mqtt(0x10, _mqtt_text("MQTT"), b"\x04\x02\0\0", _mqtt_text(name)), 4),),
    (_mqtt(0x82, b"\0\1", _mqtt_text(TOPIC), b"\1"), 5),
    _mqtt_publication,
    lambda size: len(_mqtt_publication(1, bytes(size))),
    _mqtt_acked,
    _mqtt_acks,
)
