"""What is told to the log of clients that cannot be served."""

import logging

import pytest

from host_broker.net.rate_limited_log import RateLimitedLog


class Clock:
    """Time passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_peer_is_told_once_for_each_reason(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = RateLimitedLog(clock=clock)
    for _ in range(5):
        log.write("192.0.2.1", "http", "one speaks HTTP")
        log.write("192.0.2.1", "fq", "one speaks fq")
        log.write("192.0.2.2", "http", "two speaks HTTP")
        clock.now += 3600.0
    assert caplog.messages == ["one speaks HTTP", "one speaks fq", "two speaks HTTP"]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_crowd_is_twenty_lines_a_minute_and_a_number(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    log = RateLimitedLog(clock=clock)
    for number in range(500):
        log.write(f"peer {number}", "silent", f"{number} is silent")
    assert caplog.messages == [f"{number} is silent" for number in range(20)]
    clock.now += 60.0
    log.write("peer 499", "silent", "499 is silent")
    assert caplog.messages[20:] == [
        "480 more clients were refused, without a line each",
        "499 is silent",
    ]


def test_what_is_remembered_is_bounded(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    log = RateLimitedLog(clock=clock)
    for number in range(2000):
        clock.now += 60.0
        log.write(f"peer {number}", "silent", "silent")
    caplog.clear()
    clock.now += 60.0
    log.write("peer 1999", "silent", "known")
    log.write("peer 0", "silent", "forgotten long since")
    assert caplog.messages == ["forgotten long since"]
