"""The compiled part of the poller by itself: what it passes on, and what it hands over."""

import contextlib
import hashlib
import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack
from host_broker.net import lanes as glue
from host_broker.net._lanes import SOURCE
from tests.host_broker.net.lanes_desk import MAX_BODY, WAIT_S, Desk, handed, silent


@pytest.fixture
def desk() -> Iterator[Desk]:
    with contextlib.closing(Desk()) as desk:
        yield desk


def test_it_is_compiled_from_what_is_here() -> None:
    source = Path(glue.__file__).with_name("_lanes.pyx").read_bytes()
    assert hashlib.sha256(source).hexdigest() == SOURCE, "run: .venv/bin/pip install -e ."


def test_the_environment_can_do_without(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    for value, wanted in (("", True), ("1", False)):
        monkeypatch.setenv(glue.UNWANTED, value)
        passage = glue.passage(desk.epoll.fileno(), {}, MAX_BODY, lambda: 0)
        assert (passage is not None) == wanted


def test_what_was_learned_is_passed_on_and_counted(desk: Desk) -> None:
    speaker, one, two = desk.open(), desk.open(), desk.open()
    packet = pack(0, b"home/1", b"21.5")
    desk.lanes.learn(speaker, packet, [one, two])
    other_length = pack(0, b"home/1", b"9.75 C")
    for sent in (packet, other_length):
        desk.peers[speaker].sendall(sent)
        assert desk.lanes.wait(WAIT_S) == []
        assert desk.peers[one].recv(100) == desk.peers[two].recv(100) == sent
    assert desk.lanes.passed() == [(speaker, 2, len(packet + other_length))]
    assert desk.lanes.passed() == []
    assert desk.lanes.data is None


def test_many_in_one_read_are_one_send_if_their_receivers_are_the_same(desk: Desk) -> None:
    speaker, one, two = (desk.open() for _ in range(3))
    for topic, receivers in ((b"a", [one, two]), (b"b", [one, two]), (b"c", [two]), (b"d", [])):
        desk.lanes.learn(speaker, pack(0, topic, b"x"), receivers)
    data = pack(0, b"a", b"1") + pack(0, b"b", b"22") + pack(0, b"a", b"333")
    desk.peers[speaker].sendall(data)
    assert desk.lanes.wait(WAIT_S) == []
    assert desk.peers[one].recv(100) == desk.peers[two].recv(100) == data
    assert desk.lanes.passed() == [(speaker, 3, len(data))]
    for other in (b"c", b"d"):
        data = pack(0, b"a", b"1") + pack(0, other, b"2")
        desk.peers[speaker].sendall(data)
        assert desk.lanes.wait(None) == [(speaker, select.EPOLLIN)]
        assert handed(desk) == data
        desk.lanes.learn(speaker, pack(0, b"a", b"x"), [one, two])
    assert silent(desk.peers[one])


def test_a_publication_that_nobody_wants_is_counted(desk: Desk) -> None:
    speaker = desk.open()
    packet = pack(0, b"home/1", b"21.5")
    desk.lanes.learn(speaker, packet, [])
    desk.peers[speaker].sendall(packet)
    assert desk.lanes.wait(WAIT_S) == []
    assert desk.lanes.passed() == [(speaker, 1, len(packet))]


_OTHER = {
    "another topic": pack(0, b"home/2", b"21.5"),
    "a topic that begins alike": pack(0, b"home/10", b"21.5"),
    "a topic that it begins": pack(0, b"home/", b"21.5"),
    "a flag": pack(4, b"home/1", b"21.5"),
    "a subscription": pack(0x80, b"home/1", b""),
    "no body": pack(0, b"home/1", b""),
    "a packet and a part": pack(0, b"home/1", b"21.5") * 2 + b"\0",
    "a packet and another": pack(0, b"home/1", b"21.5") + pack(4, b"home/1", b"21.5"),
    "a packet without a body after one": pack(0, b"home/1", b"x") + pack(0, b"home/1", b""),
    "a known and an unknown topic": pack(0, b"home/1", b"x") + pack(0, b"home/2", b"x"),
    "a part": pack(0, b"home/1", b"21.5")[:-1],
    "a header": pack(0, b"home/1", b"21.5")[:6],
    "one byte": b"\0",
    "no topic": pack(0, b"", b"21.5"),
    "a body too long": pack(0, b"home/1", bytes(MAX_BODY + 1)),
    "a length that wraps": b"\0\x06" + b"\xff" * 4 + b"home/1",
    "more than a read": pack(0, b"home/1", bytes(MAX_BODY)) * 2,
}


@pytest.mark.parametrize("what", _OTHER)
def test_anything_else_is_handed_over_as_it_was_read(desk: Desk, what: str) -> None:
    speaker, listener = desk.open(), desk.open()
    desk.lanes.learn(speaker, pack(0, b"home/1", b"21.5"), [listener])
    other = _OTHER[what]
    desk.peers[speaker].sendall(other)
    assert desk.lanes.wait(None) == [(speaker, select.EPOLLIN)]
    assert handed(desk) == other[: 16 * 1024]
    assert desk.lanes.passed() == []
    # What follows is no business of ours before it is learned again.
    desk.peers[speaker].sendall(pack(0, b"home/1", b"21.5"))
    assert desk.lanes.wait(None) == [(speaker, select.EPOLLIN)]
    assert handed(desk) is None
    assert silent(desk.peers[listener])


def test_an_end_and_an_error_are_handed_over(desk: Desk) -> None:
    packet = pack(0, b"home/1", b"21.5")
    ended = desk.open()
    desk.lanes.learn(ended, packet, [])
    desk.peers[ended].shutdown(socket.SHUT_WR)
    assert desk.lanes.wait(None) == [(ended, select.EPOLLIN)]
    assert handed(desk) == b""
    desk.epoll.unregister(ended)
    gone = desk.open()
    desk.lanes.learn(gone, packet, [])
    desk.peers[gone].close()
    ((fd, what),) = desk.lanes.wait(10.0)
    assert (fd, what & select.EPOLLHUP) == (gone, select.EPOLLHUP)
    assert handed(desk) is None


def test_two_at_once_are_handed_over_unread(desk: Desk) -> None:
    packet = pack(0, b"home/1", b"21.5")
    speakers = [desk.open(), desk.open()]
    for speaker in speakers:
        desk.lanes.learn(speaker, packet, [])
        desk.peers[speaker].sendall(packet)
    assert sorted(desk.lanes.wait(None)) == [(each, select.EPOLLIN) for each in sorted(speakers)]
    assert desk.lanes.data is None
    assert desk.lanes.passed() == []
    assert desk.ours[speakers[0]].recv(100) == packet


def test_after_forget_and_stray_it_is_handed_over(desk: Desk) -> None:
    speaker, listener = desk.open(), desk.open()
    packet = pack(0, b"home/1", b"21.5")
    for forget in (desk.lanes.forget, lambda: desk.lanes.stray(speaker)):
        desk.lanes.learn(speaker, packet, [listener])
        forget()
        desk.peers[speaker].sendall(packet)
        assert desk.lanes.wait(None) == [(speaker, select.EPOLLIN)]
        if desk.lanes.data is None:
            desk.ours[speaker].recv(100)
    for nobody in (-1, 10**6):
        desk.lanes.stray(nobody)


def test_a_receiver_that_takes_a_part_is_named_with_those_after_it(desk: Desk) -> None:
    speaker, first, full, last = (desk.open() for _ in range(4))
    packet = pack(0, b"home/1", bytes(9000))
    desk.lanes.learn(speaker, packet, [first, full, last])
    desk.ours[full].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
    passed = 0
    while passed < 100:
        passed += 1
        desk.peers[speaker].sendall(packet)
        found = desk.lanes.wait(WAIT_S)
        assert desk.lanes.passed() == [(speaker, 1, len(packet))]
        assert desk.peers[first].recv(9100, socket.MSG_WAITALL) == packet
        if desk.lanes.stuck:
            break
        assert desk.peers[last].recv(9100, socket.MSG_WAITALL) == packet
    assert found == [(speaker, select.EPOLLIN)]
    assert desk.lanes.data == packet
    assert desk.lanes.stuck == [full, last]
    taken = b""
    while not silent(desk.peers[full]):
        taken += desk.peers[full].recv(100_000)
    assert taken == packet * (passed - 1) + packet[: desk.lanes.sent]
    assert silent(desk.peers[last])
    assert desk.lanes.wait(0.001) == []
    assert desk.lanes.stuck == []


def test_a_receiver_that_is_gone_is_stuck(desk: Desk) -> None:
    speaker, gone = desk.open(), desk.open()
    desk.epoll.unregister(gone)
    packet = pack(0, b"home/1", b"21.5")
    desk.lanes.learn(speaker, packet, [gone])
    desk.peers[gone].close()
    desk.peers[speaker].sendall(packet)
    assert desk.lanes.wait(None) == [(speaker, select.EPOLLIN)]
    assert (desk.lanes.stuck, desk.lanes.sent) == ([gone], 0)


def _plain(read: bytes, known: set[bytes]) -> int:
    """Count the packets of a read, if all are whole, plain, and of known topics; else 0."""
    count = position = 0
    while position < len(read):
        for topic in known:
            length = int.from_bytes(read[position + 2 : position + 6], "big")
            end = position + 6 + len(topic) + length
            if length and read[position:end] == pack(
                0, topic, read[position + 6 + len(topic) : end]
            ):
                break
        else:
            return 0
        position = end
        count += 1
    return count


_PACKET = st.builds(
    pack,
    st.sampled_from([0, 0, 0, 0, 4, 0x80]),
    st.sampled_from([b"a", b"b", b"a", b"b", b"", b"x" * 255]),
    st.binary(max_size=20),
)
_READS = st.lists(
    st.one_of(
        _PACKET,
        st.lists(_PACKET, min_size=1, max_size=4).map(b"".join),
        st.tuples(_PACKET, st.binary(max_size=10)).map(b"".join),
        st.binary(min_size=1, max_size=30),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(_READS, st.lists(st.booleans(), min_size=30, max_size=30))
def test_every_read_is_passed_on_or_handed_over_whole(
    reads: list[bytes], learn: list[bool]
) -> None:
    with contextlib.closing(Desk()) as desk:
        speaker, listener = desk.open(), desk.open()
        known: set[bytes] = set()
        ready = False
        for number, read in enumerate(reads):
            if learn[number]:
                topic = (b"a", b"b", b"x" * 255)[number % 3]
                desk.lanes.learn(speaker, pack(0, topic, b"learned"), [listener])
                known.add(topic)
                ready = True
            desk.peers[speaker].sendall(read)
            count = _plain(read, known) if ready else 0
            found = desk.lanes.wait(0.0)
            if count:
                assert found == []
                assert desk.peers[listener].recv(10_000) == read
                assert desk.lanes.passed() == [(speaker, count, len(read))]
                continue
            assert found == [(speaker, select.EPOLLIN)]
            assert desk.lanes.data == (read if ready else None)
            if not ready:
                assert desk.ours[speaker].recv(10_000) == read
            ready = False
            assert desk.lanes.passed() == []
        assert silent(desk.peers[listener])
