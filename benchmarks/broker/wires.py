"""The words of each broker, prebuilt: topics are ours (``a/*/c``) and translated here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

FIRST_ID = 100  # of NATS subscriptions; three digits, so the uniform deliveries are as long


@dataclass(frozen=True, slots=True)
class Wire:
    """One wire language.

    ``greeting`` and the second value of ``subscribe`` are what the broker's answer ends with,
    b"" = it has none. ``room`` is for the relay only, which knows no topics. ``before_tls`` is what
    the broker's words end with that it says before TLS begins, b"" = it says none.
    ``aside``: what it tells a subscriber between two deliveries if that lasts two seconds.
    """

    hello: Callable[[int], bytes]  # a publisher's first words; its room
    greeting: bytes
    subscribe: Callable[[Sequence[str], int], tuple[bytes, bytes]]  # after hello; topics, room
    publication: Callable[[str, bytes, int], bytes]  # topic, payload, number of the publication
    delivery: Callable[[str, bytes, int], bytes]  # topic, payload, number of the subscription
    before_tls: bytes = b""
    aside: bytes = b""
    # As publication, retained; None = it cannot retain.
    retained: Callable[[str, bytes], bytes] | None = None
    answer_bytes: int = 0  # of the answer to each publication
    chosen: tuple[int, int] = (0, 0)  # which bytes of a delivery the broker chooses


def _fmqp(flags: int, topic: str, body: bytes) -> bytes:
    raw = topic.encode()
    return bytes([flags, len(raw)]) + len(body).to_bytes(4, "big") + raw + body


def _fmqp_subscribe(topics: Sequence[str], room: int) -> tuple[bytes, bytes]:
    # FMQP acknowledges nothing; packets of one client are handled in order, so the answer to a
    # publication that it sends to itself says that the subscriptions are active.
    echo, said = "bench-ready", _fmqp(0, "bench-ready", b"!")
    words = b"".join(_fmqp(0x80, topic, b"") for topic in [*topics, echo])
    return words + said + _fmqp(0xC0, echo, b""), said


def _mqtt_length(length: int) -> bytes:
    digits = bytearray()
    while length > 127:
        digits.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*digits, length])


def _mqtt_publication(topic: str, body: bytes, first: bytes = b"\x30") -> bytes:
    raw = topic.encode()
    rest = len(raw).to_bytes(2, "big") + raw + body
    return first + _mqtt_length(len(rest)) + rest


def _mqtt_subscribe(topics: Sequence[str], room: int) -> tuple[bytes, bytes]:
    words = b""
    for number, topic in enumerate(topics, 1):
        raw = topic.replace("*", "+").encode()
        rest = number.to_bytes(2, "big") + len(raw).to_bytes(2, "big") + raw + b"\0"
        words += b"\x82" + _mqtt_length(len(rest)) + rest
    return words, b"\x90\x03" + len(topics).to_bytes(2, "big") + b"\0"


def _nats_subject(topic: str) -> bytes:
    return topic.replace("/", ".").encode()


def _nats_subscribe(topics: Sequence[str], room: int) -> tuple[bytes, bytes]:
    lines = [b"SUB %s %d\r\n" % (_nats_subject(t), FIRST_ID + n) for n, t in enumerate(topics)]
    return b"".join(lines) + b"PING\r\n", b"PONG\r\n"


def _lightmq(opcode: int, payload: bytes) -> bytes:
    return bytes([opcode]) + len(payload).to_bytes(2, "big") + payload


def _lightmq_connect(client_id: str) -> bytes:
    raw = client_id.encode()
    return _lightmq(1, bytes([len(raw)]) + raw)


def _lightmq_send(number: int, body: bytes) -> bytes:
    return _lightmq(5, (number & 0xFFFF).to_bytes(2, "big") + b"\0" + body)


def _lightmq_subscribe(topics: Sequence[str], room: int) -> tuple[bytes, bytes]:
    # It hears what is sent to it by its name, which is the middle of the only topic it can have.
    (topic,) = topics
    return _lightmq_connect(topic.split("/")[1]), _LIGHTMQ_ACCEPTED


_LIGHTMQ_ACCEPTED = _lightmq(2, b"\0")
LIGHTMQ_SOURCE, LIGHTMQ_SINK = "lightmq/source/up", "lightmq/sink/down"

FMQP = Wire(
    hello=lambda room: b"",
    greeting=b"",
    subscribe=_fmqp_subscribe,
    publication=lambda topic, body, number: _fmqp(0, topic, body),
    delivery=lambda topic, body, number: _fmqp(0, topic, body),
    retained=lambda topic, body: _fmqp(0x04, topic, body),
)
# A publisher says something before it is measured, so that a listener for all protocols knows what
# it is; it waits until that has been read.
FMQP_GREETING = replace(
    FMQP,
    hello=lambda room: _fmqp_subscribe([], room)[0],
    greeting=_fmqp_subscribe([], 0)[1],
)
MQTT = Wire(
    hello=lambda room: b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
    greeting=b"\x20\x02\x00\x00",
    subscribe=_mqtt_subscribe,
    publication=lambda topic, body, number: _mqtt_publication(topic, body),
    delivery=lambda topic, body, number: _mqtt_publication(topic, body),
    retained=lambda topic, body: _mqtt_publication(topic, body, b"\x31"),
)
NATS = Wire(
    hello=lambda room: b'CONNECT {"verbose":false,"echo":true}\r\nPING\r\n',
    greeting=b"PONG\r\n",
    subscribe=_nats_subscribe,
    publication=lambda topic, body, number: (
        b"PUB %s %d\r\n%s\r\n" % (_nats_subject(topic), len(body), body)
    ),
    delivery=lambda topic, body, number: (
        b"MSG %s %d %d\r\n%s\r\n" % (_nats_subject(topic), FIRST_ID + number, len(body), body)
    ),
    before_tls=b"\r\n",
    aside=b"PING\r\n",
)
# Two bytes say who one is: a room, and whether one listens. It forwards FMQP without reading it.
RELAY = Wire(
    hello=lambda room: bytes([room, 0]),
    greeting=b"",
    subscribe=lambda topics, room: (bytes([room, 1]), b"ok"),
    publication=FMQP.publication,
    delivery=FMQP.delivery,
)
# A publisher is the client "source", whatever the topic; SENDRESP says that the bus has a SEND. A
# subscriber does not answer, which a LightMQ client need not.
LIGHTMQ = Wire(
    hello=lambda room: _lightmq_connect("source"),
    greeting=_LIGHTMQ_ACCEPTED,
    subscribe=_lightmq_subscribe,
    publication=lambda topic, body, number: _lightmq_send(number, body),
    delivery=lambda topic, body, number: _lightmq_send(0, body),
    answer_bytes=len(_lightmq(6, b"\0\0")),
    chosen=(3, 5),
)
# Its CONNECT is its subscription.
LIGHTMQ_SUBSCRIBER = replace(LIGHTMQ, hello=lambda room: b"", greeting=b"")
