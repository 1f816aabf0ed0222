"""Each check passes against a good broker, and says what is wrong when something is."""

from collections.abc import Callable

import pytest

from boards.checks.limits import beyond
from boards.session.board_session import CheckFailed
from boards.session.plan import Protocol
from tests.boards.checks.broken_broker import Fault, Way, body_of, topic_of
from tests.boards.checks.conftest import RunCheck

_FMQP = [
    *("pubsub_up", "pubsub_down", "pubsub_sizes_up", "pubsub_sizes_down"),
    *("topics_utf8", "topics_wildcards", "topics_cache", "topics_unsubscribe", "topics_loopback"),
    *("stream_up", "stream_down", "stream_paused_reader", "stream_fan", "stream_heap"),
]
_LIGHTMQ = [
    *("pubsub_up", "pubsub_down", "pubsub_sizes_up", "pubsub_sizes_down"),
    *("stream_up", "stream_down", "stream_paused_reader", "stream_fan", "stream_heap"),
    *("request_up", "request_down", "request_deadline"),
]


@pytest.mark.parametrize(
    ("name", "protocol"),
    [*((name, "fmqp") for name in _FMQP), *((name, "lightmq") for name in _LIGHTMQ)],
)
def test_a_good_board_and_a_good_broker_pass(
    run_check: RunCheck, name: str, protocol: Protocol
) -> None:
    run_check(name, protocol)


def _nth(
    way: Way,
    place: int,
    change: Callable[[bytes], list[bytes]],
    kind: int = 0x00,
    least: int = 8,
) -> Fault:
    """Change the ``place``-th FMQP packet of that way and kind whose body has ``least`` bytes."""
    seen = 0

    def fault(going: Way, packet: bytes) -> list[bytes]:
        nonlocal seen
        if going != way or packet[0] & 0xF8 != kind or len(body_of(packet)) < least:
            return [packet]
        seen += 1
        return change(packet) if seen == place else [packet]

    return fault


def _late(way: Way, place: int) -> Fault:
    """Let the ``place``-th publication be overtaken by the next one."""
    seen = 0
    held: list[bytes] = []

    def fault(going: Way, packet: bytes) -> list[bytes]:
        nonlocal seen
        if going != way or packet[0] & 0xF8 or len(body_of(packet)) < 8:
            return [packet]
        seen += 1
        if seen == place:
            held.append(packet)
            return []
        packets = [packet, *held]
        held.clear()
        return packets

    return fault


def _drop(_packet: bytes) -> list[bytes]:
    return []


def _double(packet: bytes) -> list[bytes]:
    return [packet, packet]


def _flip(packet: bytes) -> list[bytes]:
    return [packet[:-1] + bytes([packet[-1] ^ 1])]


def _forgets_to_unsubscribe(way: Way, packet: bytes) -> list[bytes]:
    return [] if way == "up" and packet[0] & 0xC0 == 0xC0 else [packet]


def _retains_nothing(way: Way, packet: bytes) -> list[bytes]:
    return [bytes([packet[0] & ~0x04]) + packet[1:]] if way == "up" else [packet]


def _never_clears(way: Way, packet: bytes) -> list[bytes]:
    clears = way == "up" and packet[0] & 0x84 == 0x04 and not body_of(packet)
    return [] if clears else [packet]


def _ascii_only(way: Way, packet: bytes) -> list[bytes]:
    return [packet] if topic_of(packet).isascii() else []


def _wildcards_of_any_depth(way: Way, packet: bytes) -> list[bytes]:
    """Take a level * of a publication for two levels."""
    if way == "up" and packet[0] & 0xF8 == 0 and topic_of(packet).endswith(b"wild/*/up"):
        deeper = topic_of(packet).replace(b"*", b"one/more")
        return [packet, bytes([0, len(deeper)]) + packet[2:6] + deeper + body_of(packet)]
    return [packet]


def _cuts_at_255(way: Way, packet: bytes) -> list[bytes]:
    body = body_of(packet)
    if len(body) <= 255 or not topic_of(packet).startswith(b"check/"):
        return [packet]
    head = packet[:2] + (255).to_bytes(4, "big") + topic_of(packet)
    return [head + body[:255]]


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("pubsub_up", _nth("up", 4, _drop, least=4), r"missing \['#3 up'\]"),
        ("pubsub_down", _nth("down", 4, _double, least=4), "expected 20 messages"),
        ("pubsub_sizes_up", _cuts_at_255, "expected 256 bytes, got 255"),
        ("pubsub_sizes_up", _nth("up", 3, _flip), "different from byte"),
        ("pubsub_sizes_down", _cuts_at_255, "got 255 bytes"),
        ("pubsub_sizes_down", _nth("down", 3, _flip), r"CRC-32 .*, got .*CRC-32"),
        ("topics_utf8", _ascii_only, "expected 2 messages on check/c1.Prüfstand/温度/🌡, got 0"),
        ("topics_wildcards", _nth("down", 2, _drop), "heard .*wild/a/t'"),
        ("topics_wildcards", _wildcards_of_any_depth, "a level deeper, got 1 and 1"),
        ("topics_cache", _retains_nothing, "expected 1 messages, got 0"),
        ("topics_cache", _never_clears, "expected 0 messages, got 1"),
        ("topics_unsubscribe", _forgets_to_unsubscribe, "5 messages came after unsubscribing"),
        ("topics_loopback", _nth("down", 1, _double), "message 2: expected"),
        ("stream_up", _nth("up", 100, _drop), "got 1999: 1 missing"),
        ("stream_up", _nth("up", 100, _double), "got 2001: 1 doubled"),
        ("stream_up", _late("up", 100), "got 2000: 1 late"),
        ("stream_up", _nth("up", 100, _flip), "1 missing, 1 corrupt"),
        ("stream_down", _nth("down", 100, _drop), "got 1499: 1 missing"),
        ("stream_down", _nth("down", 1500, _drop), "got 1499: 1 missing"),
        ("stream_down", _nth("down", 100, _double), "got 1501: 1 doubled"),
        ("stream_down", _late("down", 100), "got 1500: 1 missing, 1 late"),
        ("stream_down", _nth("down", 100, _flip), "1 missing, 1 corrupt"),
        ("stream_paused_reader", _nth("down", 1000, _drop), "got 1499: 1 missing"),
        ("stream_fan", _nth("up", 2, _drop), "observer 1 of 5: .*1 missing"),
        ("stream_fan", _nth("down", 7, _drop), "publisher . of 5: .*heard 9"),
        ("stream_heap", _nth("down", 7, _drop), "1 missing"),
    ],
)
def test_a_broker_that_breaks_fmqp_is_told(
    run_check: RunCheck, monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault, words: str
) -> None:
    _hurry(monkeypatch)
    with pytest.raises(CheckFailed, match=words):
        run_check(name, "fmqp", fault)


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not come has not to be waited for as long as on a board."""
    monkeypatch.setattr("boards.checks.requests._TAKE_MS", 3_000)
    for module in ("pubsub", "topics", "streams"):
        monkeypatch.setattr(f"boards.checks.{module}._ARRIVAL_S", 2.0)
        monkeypatch.setattr(f"boards.checks.{module}._RECEIVE_MS", 2_000)


def _lightmq(way: Way, opcode: int, place: int, change: Callable[[bytes], list[bytes]]) -> Fault:
    seen = 0

    def fault(going: Way, packet: bytes) -> list[bytes]:
        nonlocal seen
        if going != way or packet[0] != opcode:
            return [packet]
        seen += 1
        return change(packet) if seen == place else [packet]

    return fault


def _answers_whoever_waits() -> Fault:
    """Give the first answer, which is late, to the request after it."""
    asked: list[bytes] = []
    late: list[bytes] = []

    def fault(way: Way, packet: bytes) -> list[bytes]:
        if way == "up" and packet[0] == 5:
            asked.append(packet[3:5])
        if way == "down" and packet[0] == 6:
            if len(asked) < 2:  # on a busy machine it may come before that request
                late.append(packet)
                return []
            answer = late.pop() if late else packet
            return [answer[:3] + asked[-1] + answer[5:]]
        return [packet]

    return fault


@pytest.mark.parametrize(
    ("name", "fault", "words"),
    [
        ("request_up", _lightmq("down", 6, 3, _flip), "expected a good answer, it was wrong"),
        ("request_down", _lightmq("up", 6, 3, _flip), "an answer that is not theirs"),
        ("request_deadline", _answers_whoever_waits(), "expected a good answer, it was wrong"),
        ("stream_up", _lightmq("up", 5, 9, _flip), "1 missing, 1 corrupt"),
        ("pubsub_sizes_down", _lightmq("down", 5, 3, _flip), "CRC-32"),
    ],
)
def test_a_broker_that_breaks_lightmq_is_told(
    run_check: RunCheck, monkeypatch: pytest.MonkeyPatch, name: str, fault: Fault, words: str
) -> None:
    _hurry(monkeypatch)
    with pytest.raises(CheckFailed, match=words):
        run_check(name, "lightmq", fault)


_LEAKS = """
import node
_kept = None
_send = node.Connection.send
_count = 0
def send(self, topic, payload):
    global _count, _kept
    _count += 1
    if _count % 20 == 0:
        _kept = (_kept, bytes(16))  # no list: that asks for ever longer pieces of the heap
    _send(self, topic, payload)
node.Connection.send = send
"""
_REFUSES_NOTHING = """
import traffic
_all = traffic.send_sizes
traffic.send_sizes = lambda *arguments: _all(*arguments) and []
"""


@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_a_node_that_keeps_what_it_sends_is_told(run_check: RunCheck, protocol: Protocol) -> None:
    samples = run_check("stream_heap", protocol, on_board=_LEAKS)
    (slope,) = [each for each in samples if each.of.metric == "heap_slope"]
    assert beyond(slope.of.limit, {}, slope.values).startswith("heap lost is ")
    (messages,) = [each for each in samples if each.of.metric == "heap_slope_messages"]
    assert messages.values == [10_000]


def test_a_client_that_refuses_nothing_is_told(run_check: RunCheck) -> None:
    with pytest.raises(CheckFailed, match="one more than fits 1024"):
        run_check("pubsub_sizes_up", on_board=_REFUSES_NOTHING)
