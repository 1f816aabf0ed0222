"""Looking instead of sleeping: when it is worth it, when it stops, and what it must not change."""

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from selectors import EVENT_READ

import pytest

from host_broker.bus.publication import pack
from host_broker.net.busy_poll import BusyPoll, busy_poll_s
from host_broker.net.poller import Poller
from tests.host_broker.net.broker_process import broker

WITHIN_S = 10.0
MOST_S = 0.0001


def _after(*waits_s: float) -> BusyPoll:
    busy = BusyPoll(MOST_S)
    for wait_s in waits_s:
        busy.waited(wait_s)
    return busy


def test_it_begins_when_waits_were_short() -> None:
    assert not BusyPoll(MOST_S).worth
    assert not _after(0.00002).worth  # one alone is chance
    assert _after(*[0.00008] * 10).worth


@pytest.mark.parametrize("pause_s", [0.001, 1.0, 86_400.0])
def test_a_pause_ends_it_however_long_it_was(pause_s: float) -> None:
    busy = _after(*[0.00005] * 1000)
    busy.waited(pause_s)
    busy.waited(pause_s)
    assert not busy.worth
    for _ in range(10):
        busy.waited(0.00005)
    assert busy.worth  # and soon it is back


def test_a_thousand_messages_a_second_do_not_begin_it() -> None:
    """Nor do those that come in pairs, or at random with gaps as long on average."""
    assert not _after(*[0.001] * 100).worth
    assert not _after(*[0.00005, 0.00195] * 100).worth


def test_of_random_gaps_few_are_looked_through_in_vain() -> None:
    """Exponential gaps of 1 ms on average, as of ten thousand sensors: less than 1 % of a core."""
    busy, looked_s, passed_s = BusyPoll(MOST_S), 0.0, 0.0
    seed = 1
    for _ in range(20_000):
        seed = seed * 1103515245 + 12345 & 0x7FFFFFFF
        gap_s = -0.001 * math.log(1.0 - seed / 0x80000000)
        if busy.worth:
            looked_s += min(gap_s, MOST_S)
        busy.waited(gap_s)
        passed_s += gap_s
    assert 15.0 < passed_s < 25.0
    assert looked_s < 0.01 * passed_s


def test_none_is_none() -> None:
    busy = BusyPoll(0.0)
    for _ in range(100):
        busy.waited(0.0)
    assert not busy.worth


@pytest.fixture
def poller() -> Iterator[Poller]:
    """A poller that looks for up to 1 ms, and was made to believe that it pays off."""
    with contextlib.closing(Poller(busy_poll_s=0.001)) as poller:
        yield poller


def _warmed(poller: Poller) -> socket.socket:
    """Have short waits make looking worth it; returns a socket that can be registered."""
    ours, peer = socket.socketpair()
    with ours:
        poller.register(ours, EVENT_READ)
        peer.send(b"x")
        for _ in range(20):
            assert poller.select(1.0)
        poller.unregister(ours)
    return peer


def test_what_comes_is_found_while_looking_and_while_sleeping(poller: Poller) -> None:
    _warmed(poller).close()
    ours, peer = socket.socketpair()
    with ours, peer:
        poller.register(ours, EVENT_READ)
        for delay_s in (0.0002, 0.02):
            late = threading.Timer(delay_s, peer.send, (b"x",))
            late.start()
            found = poller.select(WITHIN_S)
            late.join()
            assert [(key.fileobj, events) for key, events in found] == [(ours, EVENT_READ)]
            assert ours.recv(1) == b"x"
            _warmed(poller).close()


def test_a_timeout_is_kept(poller: Poller) -> None:
    """Whether shorter or longer than looking takes: timers of the loop depend on it."""
    for timeout_s in (0.0001, 0.0005, 0.02, 0.1):
        _warmed(poller).close()
        began = time.monotonic()
        assert poller.select(timeout_s) == []
        passed_s = time.monotonic() - began
        assert timeout_s <= passed_s < timeout_s + 0.5


def test_a_poller_that_waits_uses_no_processor_time(poller: Poller) -> None:
    _warmed(poller).close()
    poller.select(0.1)  # the vain tries
    poller.select(0.1)
    began = time.thread_time()
    poller.select(0.5)
    assert time.thread_time() - began < 0.01


def test_on_one_core_it_is_off() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert busy_poll_s(150) == 0.0
    finally:
        os.sched_setaffinity(0, allowed)
    assert busy_poll_s(150) == (0.00015 if len(allowed) > 1 else 0.0)


def test_a_broker_that_looks_delivers_all_and_rests_when_nothing_comes() -> None:
    with broker("--set", "net.busy_poll_us=1000") as running, running.raw("fmqp") as board:
        # The clock of a process is its negated id and CPUCLOCK_SCHED (2): clock_getcpuclockid(3).
        clock = (~running.process.pid << 3) | 2
        board.sendall(pack(0x80, b"home/a", b""))
        for number in range(2000):
            packet = pack(0, b"home/a", b"%d" % number)
            board.sendall(packet)
            got = b""
            while len(got) < len(packet):
                got += board.recv(100)
            assert got == packet
        used_s = time.clock_gettime(clock)
        board.settimeout(0.5)
        with pytest.raises(TimeoutError):  # half a second of nothing
            board.recv(1)
        assert time.clock_gettime(clock) - used_s < 0.1
