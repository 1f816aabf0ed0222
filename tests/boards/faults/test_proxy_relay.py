"""The fault proxy's idea of one connection: what passes when, and what is told to whom."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boards.faults.relay import BUFFER_LIMIT, Relay
from boards.faults.trace import Side, Trace

_MS = 1_000_000


def _relay(*, delay_ms: int = 0, held: bool = False) -> Relay:
    relay = Relay(Trace(1, 0), delay_ns=delay_ms * _MS, held=held)
    if not held:
        relay.dialled(1)  # 0 would be never
    return relay


def _take(relay: Relay, side: Side, now: int) -> bytes:
    relay.tick(now)
    data = bytes(relay.out(side))
    relay.sent(side, len(data), now)
    relay.tick(now)
    return data


def test_bytes_and_a_fin_pass_in_order_and_the_other_way_stays_open() -> None:
    relay = _relay()
    relay.received("client", b"ab", 10)
    relay.ended("client", "fin", 11)
    assert _take(relay, "broker", 12) == b"ab"
    assert relay.take_endings() == [("broker", "fin")]
    assert not relay.finished(12)
    relay.received("broker", b"rest", 13)
    relay.ended("broker", "fin", 14)
    assert _take(relay, "client", 15) == b"rest"
    assert relay.take_endings() == [("client", "fin")]
    assert relay.finished(15)
    trace = relay.trace
    assert (trace.to_broker_bytes, trace.to_broker_ns) == (2, 12)
    assert (trace.client_ended, trace.client_ended_ns) == ("fin", 11)
    assert (trace.broker_told, trace.broker_told_ns, trace.cut) == ("fin", 12, False)


def test_a_trace_tells_its_story() -> None:
    relay = Relay(Trace(3, 5 * _MS))
    relay.dialled(6 * _MS)
    relay.received("client", b"ab", 7 * _MS)
    _take(relay, "broker", 8 * _MS)
    relay.cut("rst", 20 * _MS)
    assert relay.trace.story() == (
        "connection 3: cut, the broker took it at 1 ms, last of 2 bytes to the broker at 3 ms, "
        "rst to the broker at 15 ms, rst to the client at 15 ms"
    )
    gone = Relay(Trace(4, 0))
    assert gone.trace.story() == "connection 4: nothing"
    gone.dial_failed("refused", 1)
    assert gone.trace.story().endswith("no broker: refused")


def test_a_fin_waits_for_the_bytes_that_were_not_taken() -> None:
    relay = _relay()
    relay.received("client", b"abc", 0)
    relay.ended("client", "fin", 0)
    relay.tick(0)
    relay.sent("broker", 2, 0)
    relay.tick(0)
    assert relay.take_endings() == []
    relay.sent("broker", 1, 1)
    relay.tick(1)
    assert relay.take_endings() == [("broker", "fin")]


def test_a_rst_reaches_the_other_side_as_one() -> None:
    relay = _relay()
    relay.received("broker", b"lost", 0)
    relay.ended("client", "rst", 1)
    relay.tick(1)
    assert relay.take_endings() == [("broker", "rst")]
    assert relay.finished(1)
    assert not relay.reads("broker")


def test_a_rst_before_the_broker_was_dialled_ends_it() -> None:
    relay = Relay(Trace(1, 0))
    assert relay.wants_broker
    relay.ended("client", "rst", 1)
    relay.tick(1)
    assert relay.take_endings() == [("broker", "rst")]  # it may be being dialled
    assert relay.finished(1)


def test_a_fin_is_kept_until_there_is_a_broker() -> None:
    relay = Relay(Trace(1, 0))
    relay.received("client", b"x", 1)
    relay.ended("client", "fin", 1)
    relay.tick(2)
    assert relay.take_endings() == []
    relay.dialled(3)
    assert _take(relay, "broker", 3) == b"x"
    assert relay.take_endings() == [("broker", "fin")]


def test_a_delay_holds_bytes_and_endings_for_its_time() -> None:
    relay = _relay(delay_ms=5)
    relay.received("client", b"a", 0)
    relay.ended("client", "fin", 1 * _MS)
    assert relay.next_deadline() == 5 * _MS
    assert _take(relay, "broker", 5 * _MS - 1) == b""
    assert _take(relay, "broker", 5 * _MS) == b"a"
    assert relay.take_endings() == []
    assert relay.next_deadline() == 6 * _MS
    relay.tick(6 * _MS)
    assert relay.take_endings() == [("broker", "fin")]


def test_a_black_hole_reads_nothing_passes_nothing_and_tells_nobody() -> None:
    relay = _relay()
    relay.received("client", b"under way", 0)
    relay.held = True
    assert not relay.reads("client")
    assert not relay.reads("broker")
    relay.tick(10_000 * _MS)
    assert relay.out("broker") == b""
    assert relay.take_endings() == []
    assert relay.next_deadline() is None
    assert not relay.finished(10_000 * _MS)
    relay.held = False  # the line is back: nothing was lost
    assert _take(relay, "broker", 10_001 * _MS) == b"under way"


def test_who_comes_into_a_black_hole_reaches_no_broker() -> None:
    relay = Relay(Trace(1, 0), held=True)
    assert not relay.wants_broker
    relay.held = False
    assert relay.wants_broker


def test_a_cut_by_rst_closes_at_once_and_says_so_to_both() -> None:
    relay = _relay()
    relay.received("client", b"dropped", 0)
    relay.tick(0)
    relay.cut("rst", 7)
    assert relay.out("broker") == b""
    assert sorted(relay.take_endings()) == [("broker", "rst"), ("client", "rst")]
    assert relay.finished(7)
    assert relay.trace.cut
    assert (relay.trace.broker_told, relay.trace.client_ended) == ("rst", "")


def test_a_cut_by_fin_waits_for_both_sides_and_drops_what_they_say() -> None:
    relay = _relay()
    relay.cut("fin", 0)
    assert sorted(relay.take_endings()) == [("broker", "fin"), ("client", "fin")]
    assert relay.reads("client")
    relay.received("client", b"late", 1)
    assert relay.out("broker") == b""
    relay.ended("client", "fin", 2)
    assert not relay.finished(2)
    relay.ended("broker", "fin", 3)
    assert relay.finished(3)


def test_a_cut_by_fin_that_nobody_answers_is_closed_after_two_seconds() -> None:
    relay = _relay()
    relay.cut("fin", 0)
    assert relay.next_deadline() == 2_000 * _MS
    assert not relay.finished(2_000 * _MS - 1)
    assert relay.finished(2_000 * _MS)


def test_a_broker_that_is_not_there_is_a_rst_for_the_client() -> None:
    relay = Relay(Trace(1, 0))
    relay.dial_failed("refused", 3)
    assert relay.take_endings() == [("client", "rst")]
    assert relay.finished(3)
    assert relay.trace.dial_error == "refused"
    assert relay.trace.dialled_ns == 0


def test_a_sender_that_is_faster_than_the_receiver_is_not_read() -> None:
    relay = _relay()
    while relay.reads("client"):
        relay.received("client", bytes(4096), 0)
    relay.tick(0)
    assert len(relay.out("broker")) == BUFFER_LIMIT
    relay.sent("broker", 1, 0)
    assert relay.reads("client")


# Other tests may hold the processor while inputs are made.
@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    pieces=st.lists(st.binary(min_size=1, max_size=40), max_size=20),
    delays=st.lists(st.integers(0, 50), max_size=20),
    takes=st.lists(st.integers(1, 30), min_size=1, max_size=20),
)
def test_what_passes_is_what_was_sent_however_it_is_cut(
    pieces: list[bytes], delays: list[int], takes: list[int]
) -> None:
    relay, got, now = _relay(), b"", 0
    for number, piece in enumerate(pieces):
        relay.delay_ns = delays[number % len(delays)] if delays else 0
        relay.received("client", piece, now)
        relay.held = number % 3 == 1
        relay.tick(now)
        now += 7
    relay.held = False
    relay.ended("client", "fin", now)
    for turn in range(2000):
        relay.tick(now + turn)
        part = relay.out("broker")[: takes[turn % len(takes)]]
        got += part
        relay.sent("broker", len(part), now)
    assert got == b"".join(pieces)
    assert relay.take_endings() == [("broker", "fin")]


def test_silence_is_counted_up_to_the_moment_that_is_asked_for() -> None:
    """What a board did not say later is no silence of before."""
    trace = Trace(1, opened_ns=0, dialled_ns=_MS)
    for at_ms in (10, 110, 3_110):
        trace.went("broker", 1, at_ms * _MS)
    assert trace.silence_ms(510 * _MS) == 400
    assert trace.silence_ms(3_200 * _MS) == 3_000
    assert trace.silence_ms(9_110 * _MS) == 6_000
    assert Trace(1, opened_ns=0).silence_ms(0) == 0
