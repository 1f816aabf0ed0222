"""The compiled part of the poller by itself: how much it knows, how long it waits."""

import contextlib
import resource
import select
import time
from collections.abc import Iterator

import pytest

from host_broker.bus.publication import pack
from host_broker.net._lanes import Lanes
from tests.host_broker.net.lanes_desk import MAX_BODY, WAIT_S, Desk

ROUTES = 1024  # as many places its table has


@pytest.fixture
def desk() -> Iterator[Desk]:
    with contextlib.closing(Desk()) as desk:
        yield desk


def _hash(topic: bytes) -> int:
    value = 2166136261
    for byte in topic:
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value & (ROUTES - 1)


def test_of_two_topics_with_one_place_the_last_is_known(desk: Desk) -> None:
    names = [b"t%d" % number for number in range(3 * ROUTES)]
    first = names[0]
    second = next(each for each in names[1:] if _hash(each) == _hash(first))
    speaker, one, two = desk.open(), desk.open(), desk.open()
    desk.lanes.learn(speaker, pack(0, first, b"x"), [one])
    desk.lanes.learn(speaker, pack(0, second, b"x"), [two])
    desk.peers[speaker].sendall(pack(0, second, b"x"))
    assert desk.lanes.wait(WAIT_S) == []
    assert desk.peers[two].recv(100) == pack(0, second, b"x")
    desk.peers[speaker].sendall(pack(0, first, b"x"))
    assert desk.lanes.wait(None) == [(speaker, select.EPOLLIN)]
    assert desk.lanes.data == pack(0, first, b"x")


@pytest.mark.parametrize(("count", "known"), [(16, True), (17, False)])
def test_only_so_many_receivers_are_remembered(desk: Desk, count: int, known: bool) -> None:
    speaker = desk.open()
    receivers = [desk.open() for _ in range(count)]
    packet = pack(0, b"home/1", b"21.5")
    desk.lanes.learn(speaker, packet, receivers)
    desk.peers[speaker].sendall(packet)
    assert bool(desk.lanes.wait(WAIT_S)) != known
    assert bool(desk.lanes.passed()) == known


def test_more_senders_than_are_counted_at_once_come_back_sooner(desk: Desk) -> None:
    packet = pack(0, b"home/1", b"21.5")
    speakers = [desk.open() for _ in range(70)]
    for speaker in speakers:
        desk.lanes.learn(speaker, packet, [])
    counted = dict.fromkeys(speakers, 0)
    for speaker in speakers:
        desk.peers[speaker].sendall(packet)
        assert desk.lanes.wait(0.0) == []
        if speaker == speakers[63]:
            passed = desk.lanes.passed()
            assert len(passed) == 64
            for fd, count, _ in passed:
                counted[fd] += count
    for fd, count, size in desk.lanes.passed():
        counted[fd] += count
        assert size == count * len(packet)
    assert set(counted.values()) == {1}


def test_file_numbers_may_be_high(desk: Desk) -> None:
    high = min(4000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1)
    speaker, listener = desk.open(high), desk.open()
    packet = pack(0, b"home/1", b"21.5")
    desk.lanes.learn(speaker, packet, [listener])
    desk.peers[speaker].sendall(packet)
    assert desk.lanes.wait(WAIT_S) == []
    assert desk.peers[listener].recv(100) == packet


@pytest.mark.parametrize(
    ("fd", "data"), [(-1, pack(0, b"a", b"x")), (5, b""), (5, b"\0" * 6), (5, b"\0\x09\0\0\0\0a")]
)
def test_what_cannot_be_learned_is_refused(desk: Desk, fd: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="no file, or no publication"):
        desk.lanes.learn(fd, data, [])


def test_a_timeout_is_kept_however_much_is_passed_on(desk: Desk) -> None:
    """Timers of asyncio's loop depend on it; the echo keeps itself going."""
    speaker, listener = desk.open(), desk.open()
    packet = pack(0, b"home/1", b"21.5")
    # What is sent to the "receiver" is the next thing to be read: our end of its own peer.
    desk.epoll.unregister(listener)
    desk.lanes.learn(speaker, packet, [listener])
    relay = desk.peers[listener].fileno()
    desk.epoll.register(relay, select.EPOLLIN)
    desk.lanes.learn(relay, packet, [relay_back := desk.peers[speaker].fileno()])
    assert relay_back
    desk.peers[speaker].sendall(packet)
    for timeout_s in (0.1, 0.003):
        began = time.monotonic()
        assert desk.lanes.wait(timeout_s) == []
        passed_s = time.monotonic() - began
        assert timeout_s <= passed_s < timeout_s + 0.5
        assert sum(count for _, count, _ in desk.lanes.passed()) > 10
    began = time.monotonic()
    desk.lanes.stray(speaker)
    desk.lanes.stray(relay)
    assert len(desk.lanes.wait(None)) == 1


def test_a_closed_epoll_is_an_error(desk: Desk) -> None:
    lanes = Lanes(desk.epoll.fileno(), MAX_BODY)
    desk.epoll.close()
    with pytest.raises(OSError, match="epoll_wait failed"):
        lanes.wait(0.0)
