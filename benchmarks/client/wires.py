"""How the endpoint reads and spells each protocol: frames in, answers out."""

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.broker import wires

HUGE = 200_000_000  # bytes that a lying length promises


@dataclass(frozen=True, slots=True)
class Wire:
    """One protocol.

    ``size``: the bytes of the frame that a buffer begins with, 0 = not known yet.
    ``read``: what a frame publishes (topic, payload), or None. ``answer``: what a broker answers to
    it. ``introduces``: whether the client is connected once this frame is answered.
    ``huge``: the head of a message that says that it is absurdly long.
    """

    size: Callable[[bytes | bytearray], int]
    read: Callable[[bytes], tuple[bytes, bytes] | None]
    answer: Callable[[bytes], bytes]
    publication: Callable[[bytes, bytes], bytes]
    introduces: Callable[[bytes], bool]
    huge: bytes


def _fmqp_size(data: bytes | bytearray) -> int:
    return 0 if len(data) < 6 else 6 + data[1] + int.from_bytes(data[2:6], "big")


def _fmqp_read(frame: bytes) -> tuple[bytes, bytes] | None:
    topic_end = 6 + frame[1]
    return None if frame[0] & 0x80 else (frame[6:topic_end], frame[topic_end:])


def _is_ping(frame: bytes) -> bool:
    return not frame[0] & 0x80 and frame[6:11] == b"ping/" and len(frame) > 6 + frame[1]


def _mqtt_body(data: bytes | bytearray) -> int:
    """Return where the body begins; 0 = not known yet."""
    at = 1
    while at < len(data):
        at += 1
        if data[at - 1] < 0x80:
            return at
    return 0


def _mqtt_size(data: bytes | bytearray) -> int:
    body = _mqtt_body(data)
    return sum((data[at] & 0x7F) << 7 * (at - 1) for at in range(1, body)) + body


def _mqtt_read(frame: bytes) -> tuple[bytes, bytes] | None:
    if frame[0] & 0xF0 != 0x30:
        return None
    body = _mqtt_body(frame)
    topic_end = body + 2 + int.from_bytes(frame[body : body + 2], "big")
    return frame[body + 2 : topic_end], frame[topic_end:]


def _mqtt_answer(frame: bytes) -> bytes:
    match frame[0]:
        case 0x10:
            return b"\x20\x02\0\0"
        case 0x82:
            body = _mqtt_body(frame)
            return b"\x90\x03" + frame[body : body + 2] + b"\0"
        case 0xC0:
            return b"\xd0\0"
    return b""


def _lightmq_size(data: bytes | bytearray) -> int:
    return 0 if len(data) < 3 else 3 + int.from_bytes(data[1:3], "big")


def _lightmq_answer(frame: bytes) -> bytes:
    match frame[0]:
        case 1:
            return b"\x02\0\x01\0"
        case 3 | 5:  # PING and SEND: the answer has the next opcode and the same id
            return bytes([frame[0] + 1, 0, 2]) + frame[3:5]
    return b""


FMQP = Wire(
    size=_fmqp_size,
    read=_fmqp_read,
    answer=lambda frame: frame if _is_ping(frame) else b"",
    publication=lambda topic, payload: wires.FMQP.publication(topic.decode(), payload, 0),
    introduces=_is_ping,
    huge=b"\0\x10" + HUGE.to_bytes(4, "big") + b"bench/home/00001",
)
MQTT = Wire(
    size=_mqtt_size,
    read=_mqtt_read,
    answer=_mqtt_answer,
    publication=lambda topic, payload: wires.MQTT.publication(topic.decode(), payload, 0),
    introduces=lambda frame: frame[0] == 0x82,
    huge=b"\x30\x80\x84\xaf\x5f\0\x10bench/home/00001",
)
LIGHTMQ = Wire(
    size=_lightmq_size,
    read=lambda frame: None,
    answer=_lightmq_answer,
    publication=lambda topic, payload: (
        b"\x05" + (3 + len(payload)).to_bytes(2, "big") + b"\0\x01\0" + payload
    ),
    introduces=lambda frame: frame[0] == 1,
    huge=b"\x05\xff\xff\0\x01\0",  # its length field knows no more
)
WIRES = {"fmqp": FMQP, "mqtt": MQTT, "lightmq": LIGHTMQ}
