"""Many messages at a time: bursts both ways, many observers and publishers, a reader that pauses.

Every message carries a number and a checksum, so that none is lost, doubled, late or changed
without being noticed. On a raw serial line a burst to the board must fit the UART's own buffer:
nothing holds the sender back there, and no client can read what the hardware has dropped.
"""

import threading
import zlib
from contextlib import ExitStack
from typing import Any

from boards.checks.declared import Check, Measurement, Samples
from boards.checks.limits import HEAP_SLOPE
from boards.checks.payloads import (
    board_result,
    expect,
    expect_heard,
    numbered,
    send_down,
    stream_result,
)
from boards.reports.axes import percentile
from boards.session.board_session import BoardSession, CheckFailed, Invalid
from boards.session.observer import connect_fmqp

_ARRIVAL_S = 20.0
_RECEIVE_MS = 30_000
_STEP_S = 45.0
_SIZE = 256  # bytes of a payload
# More than the kernel's socket buffers have room for at first (208 KiB on Linux), where the line
# can carry that; 128 KB take a UART of 921600 baud 1.5 s.
_UP_NETWORK, _UP_SERIAL = 2000, 250
_DOWN_NETWORK, _DOWN_SERIAL = 1500, 120
_DOWN_RAW = 12  # 3.2 KB of a UART's 4 KB
_PAUSE_MS = 1500
_HELD_S = 1.5
_HELD_VIRTUAL, _HELD_REAL = 10_000, 500
_HELD_SIZE = 900
_FAN = 5
_LOOKS = 20
_MEASURED = 3  # times, while heap is lost that may be lost by chance:
_CHANCE = 500.0  # bytes per 1000 messages; more would be 30 new lengths of frames at once

RATE_UP = Measurement("rate_up", "msg/s", "higher")
RATE_DOWN = Measurement("rate_down", "msg/s", "higher")
SLOPE = Measurement("heap_slope", "bytes per 1000 messages", "lower", HEAP_SLOPE)
SLOPE_COUNT = Measurement("heap_slope_messages", "count", "higher")
FREE_AT = Measurement("heap_free_at", "bytes", "higher")


def stream_up(board: BoardSession) -> list[Samples]:
    """Board to host: a burst arrives whole and in order."""
    topic = board.topic("stream_up")
    count = _UP_NETWORK if "network" in board.plan.has else _UP_SERIAL
    with board.observe(board.seen_at(topic)) as observer:
        with board.session():
            result = board.call(
                "send_numbered",
                topic=topic,
                size=_SIZE,
                count=count,
                deadline_s=_STEP_S,
                while_heard=True,
            )
            observer.wait_for(lambda seen: len(seen) >= count, _ARRIVAL_S)
        expect_heard(observer, count, _ARRIVAL_S)  # none may come twice at the end, too
    return [Samples(RATE_UP, [count / max(result["us"], 1) * 1e6])]


def stream_down(board: BoardSession) -> list[Samples]:
    """Host to board: a burst arrives whole and in order."""
    count = _DOWN_NETWORK if "network" in board.plan.has else _DOWN_SERIAL
    count = count if "lossless" in board.plan.has else _DOWN_RAW
    with board.session():
        result = _send_down(board, "stream_down", count)
    rate = (count - 1) / max(result["us"], 1) * 1e6
    return [Samples(RATE_DOWN, [rate])]


def stream_paused_reader(board: BoardSession) -> None:
    """Nothing is lost while the board does not read for a while and more comes than fits."""
    count = _DOWN_NETWORK if "network" in board.plan.has else _DOWN_SERIAL
    with board.session():
        _send_down(board, "paused", count, pause_ms=_PAUSE_MS)


def stream_held_back(board: BoardSession) -> None:
    """Nothing is lost while nobody takes what the board sends, and it sends more than fits."""
    topic = board.topic("held_back")
    # More than all buffers on the way have room for: a real board's are a few KB, Linux lets a
    # socket's grow to 4 MiB, and the proxy takes 128 KiB.
    count = _HELD_VIRTUAL if board.target.model.virtual else _HELD_REAL
    route = board.route
    later = threading.Timer(_HELD_S, route.set_mode, ("forward",))
    with board.observe(board.seen_at(topic)) as observer, board.session():
        route.set_mode("black_hole")
        later.start()
        try:
            result = board.call(
                "send_numbered", topic=topic, size=_HELD_SIZE, count=count, deadline_s=_STEP_S
            )
        finally:
            later.cancel()
            route.set_mode("forward")
        expect_heard(observer, count, _ARRIVAL_S)
    if result["sent_us"] < _HELD_S * 0.8e6:
        took_ms = result["sent_us"] / 1000
        raise Invalid(f"all was handed over within {took_ms:.0f} ms: nothing held it back")


def _send_down(board: BoardSession, name: str, count: int, pause_ms: int = 0) -> dict[str, Any]:
    return send_down(
        board,
        board.topic(name),
        size=_SIZE,
        count=count,
        timeout_ms=_RECEIVE_MS,
        quiet_ms=200,
        pause_ms=pause_ms,
        deadline_s=_STEP_S,
    )


def stream_fan(board: BoardSession) -> None:
    """One board to five observers and five publishers to one board: all get all, each in order."""
    topic = board.topic("fan")
    each = 10
    with ExitStack() as stack:
        observers = [stack.enter_context(board.observe(board.seen_at(topic))) for _ in range(_FAN)]
        hosts = [stack.enter_context(connect_fmqp(board.broker)) for _ in range(_FAN)]
        stack.enter_context(board.session())
        board.call("send_numbered", topic=topic, size=_SIZE, count=each)
        for place, observer in enumerate(observers):
            observer.wait_for(lambda seen: len(seen) >= each, _ARRIVAL_S)
            became = stream_result([seen.payload for seen in observer.seen()], each)
            if not became.is_good:
                raise CheckFailed(f"observer {place + 1} of {_FAN}: {became}")

        # One connection's messages keep their order; between connections there is none.
        def publish() -> None:
            for number in range(each):
                for place, host in enumerate(hosts):
                    size = 16 + place
                    host.publish(board.sent_to(topic), numbered(size, number))

        result = board.call(
            "take",
            topic=topic,
            count=_FAN * each,
            timeout_ms=_RECEIVE_MS,
            quiet_ms=200,
            on_ready=publish,
            deadline_s=_STEP_S,
        )
    for place in range(_FAN):
        wanted = [zlib.crc32(numbered(16 + place, number)) for number in range(each)]
        got = [check for _, size, check in result["messages"] if size == 16 + place]
        if got != wanted:
            mixed = " in another order" if sorted(got) == sorted(wanted) else ""
            raise CheckFailed(
                f"publisher {place + 1} of {_FAN}: expected its {each} messages in order, the "
                f"board heard {len(got)}{mixed}"
            )


def stream_heap(board: BoardSession) -> list[Samples]:
    """Thousands of messages leave the heap as it was: what is free does not fall with them."""
    topic = board.topic("heap")
    # An emulated processor behind a UART would take minutes for what a board does in seconds, on a
    # busy machine even for a tenth of it, which is no hanging; and so does the UART of a REPL, with
    # its 11 KB/s.
    is_emulated = board.target.model.virtual and "serial" in board.plan.has
    count = 1_000 if is_emulated or "console" in board.plan.has else 10_000
    lost: list[float] = []
    with board.session():
        board.call("subscribe", topic=topic)

        def send(count: int, **more: int) -> list[float]:
            result = board.call(
                "send_numbered",
                topic=topic,
                size=32,
                count=count,
                deadline_s=_STEP_S,
                while_heard=True,
                **more,
            )
            if board.is_fmqp:
                expect("heard by the board itself", board_result(result["heard"], count))
            return [float(value) for value in result["heap"]]

        # Unmeasured: the reliable link keeps a view of 16 bytes for each length of a frame, and
        # lengths vary with what the bridge has at hand. Most of them come among the first, the
        # others by chance: a leak goes on, so what is lost is what is lost each time.
        send(count // 4)
        while not lost or (0.0 < lost[-1] <= _CHANCE and len(lost) < _MEASURED):
            free = send(count, looks=_LOOKS)
            lost.append(slope(free) * -1000 * _LOOKS / count)
    return [Samples(SLOPE, [min(lost)]), Samples(SLOPE_COUNT, [count]), Samples(FREE_AT, free)]


def slope(values: list[float]) -> float:
    """Return the median change from one value to the next, over all pairs (Theil and Sen).

    One value that is off, as after a first use, does not move it.
    """
    pairs = [
        (after - before) / (later - earlier)
        for earlier, before in enumerate(values)
        for later, after in enumerate(values)
        if later > earlier
    ]
    return percentile(pairs, 50)


_HEAP = (SLOPE, SLOPE_COUNT, FREE_AT)
CHECKS = (
    Check("stream_up", stream_up, measures=(RATE_UP,), deadline_s=90.0, alone=True),
    Check("stream_down", stream_down, measures=(RATE_DOWN,), deadline_s=90.0, alone=True),
    Check(
        "stream_paused_reader", stream_paused_reader, needs=frozenset({"lossless"}), deadline_s=90.0
    ),
    Check(
        "stream_held_back", stream_held_back, needs=frozenset({"network", "proxy"}), deadline_s=90.0
    ),
    Check("stream_fan", stream_fan, deadline_s=90.0),
    Check("stream_heap", stream_heap, measures=_HEAP, deadline_s=900.0),
)
