"""What is told to the log of clients that cannot be served."""

import logging
from collections.abc import Callable

import pytest

from host_broker.net.rate_limited_log import RateLimitedLog


class Clock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._calls: list[tuple[float, Callable[[], None]]] = []

    def __call__(self) -> float:
        return self.now

    def later(self, after_s: float, call: Callable[[], None]) -> None:
        self._calls.append((self.now + after_s, call))

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [call for at, call in self._calls if at <= self.now]
        self._calls = [each for each in self._calls if each[0] > self.now]
        for call in due:
            call()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def log(clock: Clock) -> RateLimitedLog:
    return RateLimitedLog(clock.later, clock=clock)


def test_a_peer_is_told_once_for_each_reason(
    log: RateLimitedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    said = [("1", "http", "one speaks HTTP"), ("1", "fq", "one speaks fq"), ("2", "http", "two")]
    for peer, reason, text in said:
        log.write(peer, reason, text)
        clock.advance(float(reason == "fq"))
    assert caplog.messages == [text for _, _, text in said]
    for _ in range(5):
        for peer, reason, text in said:
            log.write(peer, reason, text)
            clock.advance(1.0)
    assert len(caplog.messages) == 3
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_crowd_is_a_line_a_second_and_a_number(
    log: RateLimitedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(500):
        log.write(f"peer {number}", "silent", f"{number} is silent")
        clock.advance(0.125)
    assert caplog.messages[:60] == [f"{number} is silent" for number in range(0, 480, 8)]
    clock.advance(120.0)
    counts = [text.split() for text in caplog.messages if text.endswith("without a line each")]
    assert sum(int(words[0]) for words in counts) + len(caplog.messages) - len(counts) == 500
    assert len(counts) == 2
    assert " ".join(counts[0][1:]) == "more clients were refused, without a line each"


def test_who_goes_on_is_counted_more_and_more_seldom(
    log: RateLimitedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3600):
        log.write("one", "http", "one speaks HTTP")
        clock.advance(1.0)
    assert caplog.messages[0] == "one speaks HTTP"
    counts = [int(text.split()[0]) for text in caplog.messages[1:]]
    assert counts == [60, 120, 240, 480, 960]
    clock.advance(3600.0)
    assert sum(int(text.split()[0]) for text in caplog.messages[1:]) == 3599


def test_what_is_remembered_is_bounded(
    log: RateLimitedLog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(2000):
        clock.advance(1.0)
        log.write(f"peer {number}", "silent", "silent")
    caplog.clear()
    clock.advance(1.0)
    log.write("peer 1999", "silent", "known")
    log.write("peer 0", "silent", "forgotten long since")
    assert caplog.messages == ["forgotten long since"]
