"""Publish and subscribe: what is sent arrives, once, in order, unchanged, at every size."""

import zlib

from boards.checks.declared import Check
from boards.checks.payloads import patterned
from boards.session.board_session import BoardSession, CheckFailed, expect_texts
from boards.session.observer import Seen, connect_fmqp

_MESSAGES = 20
_ARRIVAL_S = 15.0
_RECEIVE_MS = 20_000
# The node's buffers, each way: firmware/node/node.py.
BUFFER_BYTES = 1024
# Of whole messages as the board has them: around a frame of the reliable link, a length byte, a
# read of a UART, half the buffer, and the buffer itself.
_EDGES = (242, 243, 244, 255, 256, 257, 511, 512, 513, BUFFER_BYTES - 1, BUFFER_BYTES)


def pubsub_up(board: BoardSession) -> None:
    """Board to host: 20 numbered messages arrive exactly, in order."""
    topic = board.topic("pubsub_up")
    with board.observe(board.seen_at(topic)) as observer:
        with board.session():
            board.call("publish", topic=topic, payload="#n up", count=_MESSAGES)
        seen = observer.settle(_MESSAGES, _ARRIVAL_S)
        expect_texts([f"#{number} up" for number in range(_MESSAGES)], seen)


def pubsub_down(board: BoardSession) -> None:
    """Host to board: 20 numbered messages arrive exactly, in order."""
    topic = board.topic("pubsub_down")
    sent_to = board.sent_to(topic)
    expected = [f"#{number} down" for number in range(_MESSAGES)]

    with board.session(), connect_fmqp(board.broker) as publisher:

        def publish() -> None:
            for text in expected:
                publisher.publish(sent_to, text.encode())

        result = board.call(
            "receive",
            topic=topic,
            count=_MESSAGES,
            timeout_ms=_RECEIVE_MS,
            on_ready=publish,
            deadline_s=_RECEIVE_MS / 1000 + 30,
        )
    expect_texts(expected, [Seen(sent_to, text, 0) for text in result["payloads"]])


def overhead(board: BoardSession, topic: str) -> int:
    """Return the bytes of a message on the board's line beside its payload."""
    # FMQP: flags, two lengths, the topic. LightMQ: opcode, length, id, flags.
    return 6 + len(topic.encode()) if board.is_fmqp else 6


def _sizes(board: BoardSession, topic: str) -> list[int]:
    around = {edge - overhead(board, topic) for edge in _EDGES} | {255, 256, 257}
    return [0, 1, 2, *sorted(around)]


def pubsub_sizes_up(board: BoardSession) -> None:
    """Board to host: binary payloads of every critical size arrive unchanged; more is refused."""
    topic = board.topic("sizes_up")
    sizes = _sizes(board, topic)
    too_long = BUFFER_BYTES + 1 - overhead(board, topic)
    # The one that is refused is not the last: what comes after it must still be whole.
    order = [*sizes[:4], too_long, *sizes[4:]]
    with board.observe(board.seen_at(topic)) as observer:
        with board.session():
            result = board.call("send_sizes", topic=topic, sizes=order)
        if result["refused"] != [too_long]:
            raise CheckFailed(
                f"a payload of {too_long} bytes is one more than fits {BUFFER_BYTES}; expected it "
                f"to be refused and no other, refused: {result['refused']}"
            )
        # An empty publication is sent to nobody (FMQP R18).
        wanted = [patterned(size, seed) for seed, size in enumerate(order) if 0 < size != too_long]
        seen = observer.settle(len(wanted), _ARRIVAL_S)
        expect_payloads(wanted, [message.payload for message in seen])


def pubsub_sizes_down(board: BoardSession) -> None:
    """Host to board: binary payloads of every critical size arrive unchanged; more is skipped."""
    topic = board.topic("sizes_down")
    sizes = _sizes(board, topic)
    too_long = BUFFER_BYTES + 1 - overhead(board, topic)
    order = [*sizes[:4], too_long, *sizes[4:]]
    payloads = [patterned(size, seed) for seed, size in enumerate(order)]
    wanted = [payload for payload in payloads if 0 < len(payload) != too_long]
    with board.session(), connect_fmqp(board.broker) as publisher:

        def publish() -> None:
            for payload in payloads:
                publisher.publish(board.sent_to(topic), payload)

        result = board.call(
            "take",
            topic=topic,
            count=len(wanted),
            timeout_ms=_RECEIVE_MS,
            quiet_ms=200,
            on_ready=publish,
        )
    expect_digests(topic if board.is_fmqp else "", wanted, result["messages"])
    if result["discarded"] != 1:
        raise CheckFailed(
            f"one message was a byte longer than the buffer of {BUFFER_BYTES}; the client says it "
            f"skipped {result['discarded']}"
        )


def expect_payloads(wanted: list[bytes], got: list[bytes]) -> None:
    """Raise ``CheckFailed`` unless exactly these payloads arrived, in order."""
    for place, (one, other) in enumerate(zip(wanted, got, strict=False)):
        if one != other:
            at = next(
                (i for i, pair in enumerate(zip(one, other, strict=False)) if len({*pair}) > 1), -1
            )
            raise CheckFailed(
                f"message {place}: expected {len(one)} bytes, got {len(other)}"
                + (f", different from byte {at} on" if at >= 0 else "")
            )
    if len(wanted) != len(got):
        raise CheckFailed(f"expected {len(wanted)} messages, got {len(got)}")


def expect_digests(topic: str, wanted: list[bytes], messages: list[list[object]]) -> None:
    """Raise ``CheckFailed`` unless the board heard exactly these payloads under ``topic``."""
    expected = [[topic, len(payload), zlib.crc32(payload)] for payload in wanted]
    for place, (one, other) in enumerate(zip(expected, messages, strict=False)):
        if one != other:
            raise CheckFailed(f"message {place}: expected {_digest(one)}, got {_digest(other)}")
    if len(expected) != len(messages):
        raise CheckFailed(f"expected {len(expected)} messages, the board heard {len(messages)}")


def _digest(message: list[object]) -> str:
    topic, size, check = message
    where = f" on {topic}" if topic else ""
    return f"{size} bytes{where} (CRC-32 {check:08x})"


CHECKS = (
    Check("pubsub_up", pubsub_up),
    Check("pubsub_down", pubsub_down, deadline_s=75.0),
    Check("pubsub_sizes_up", pubsub_sizes_up),
    Check("pubsub_sizes_down", pubsub_sizes_down),
)
