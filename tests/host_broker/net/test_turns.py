"""Reads through real sockets: what the pure broker says, whoever comes and goes in between."""

import functools
import socket
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from host_broker.bus.publication import pack, unpack
from tests.host_broker.desk import Desk
from tests.host_broker.net.served import TOPIC, Served, exactly, publish, served, there, until
from tests.host_broker.properties.traffic import CUTS, FMQP, HARD_LIMIT, MAX_BODY, cut

SUBSCRIBE = 0x80
_BUS = {"max_body": MAX_BODY}
_FMQP = {"hard_body_limit": HARD_LIMIT}
UNSUBSCRIBE = 0x90


def _done(peer: socket.socket) -> None:
    """Wait until the broker has handled what this one said before."""
    mark = b"done/%d" % id(peer)
    peer.sendall(pack(SUBSCRIBE, mark, b"") + pack(0, mark, b"?"))
    until(peer, pack(0, mark, b"?"))
    peer.sendall(pack(UNSUBSCRIBE, mark, b""))


def test_who_comes_and_goes_is_heard_of_at_once(broker: Served) -> None:
    first, second, speaker = (broker.connect() for _ in range(3))
    first.sendall(pack(SUBSCRIBE, TOPIC, b""))
    _done(first)
    listening = {first}
    for number in range(30):
        if number % 5 == 4:
            second.sendall(pack(UNSUBSCRIBE if second in listening else SUBSCRIBE, b"*/1", b""))
            _done(second)
            listening ^= {second}
        packet = publish(speaker, number)
        for each in listening:
            assert exactly(each, len(packet)) == packet


def _connected_as(broker: Served, fd: int, protocol: str) -> socket.socket:
    """Return a connection of which the broker's end has this file number, which is free."""
    for _ in range(20):
        peer = broker.connect(protocol=protocol)
        if broker.ours(peer)[1].fileno() == fd:
            return peer
    raise AssertionError(f"nobody got file {fd}")


@pytest.mark.parametrize("by", ["peer", "broker"])
@pytest.mark.parametrize("protocol", ["fmqp", "lightmq"])
def test_a_newcomer_with_an_old_file_number_is_nobody_else(
    broker: Served, protocol: str, by: str
) -> None:
    listener, speaker, other = (broker.connect() for _ in range(3))
    broker.say(listener, pack(SUBSCRIBE, TOPIC, b""))
    for number in range(5):
        exactly(listener, len(publish(speaker, number)))
    speaker_fd = broker.ours(speaker)[1].fileno()
    if by == "peer":
        speaker.close()
    else:
        broker.call(broker.ours(speaker)[0].transport.abort)
    broker.call(lambda: None)
    newcomer = _connected_as(broker, speaker_fd, protocol)
    for number in range(5):
        exactly(listener, len(publish(other, number)))
    packet = pack(0, TOPIC, b"from the newcomer")
    broker.say(newcomer, packet)
    # In LightMQ it is nonsense, and ends the connection.
    assert there(listener) == (packet if protocol == "fmqp" else b"")
    listener_fd = broker.ours(listener)[1].fileno()
    listener.close()
    broker.call(lambda: None)
    heir = _connected_as(broker, listener_fd, "fmqp")
    for number in range(5):
        broker.say(other, pack(0, TOPIC, b"%d" % number))
    assert there(heir) == b""


def test_the_brokers_own_topics_are_nobody_elses(broker: Served) -> None:
    """R30: nobody publishes there, though it is known who gets them."""
    listener, speaker = broker.connect(), broker.connect()
    broker.say(listener, pack(SUBSCRIBE, b"$/info/clients", b"") + pack(SUBSCRIBE, TOPIC, b""))
    broker.connect()
    broker.say(speaker, pack(0, TOPIC, b"x"))
    there(listener)
    for _ in range(3):
        broker.say(speaker, pack(0, b"$/info/clients", bytes(8)))
    assert there(listener) == b""


def test_a_sender_is_not_idle(broker: Served) -> None:
    broker.call(functools.partial(broker.server.watch_idleness, "fmqp", 1.5))
    listener, speaker = broker.connect(), broker.connect()
    listener.sendall(pack(SUBSCRIBE, TOPIC, b""))
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        broker.say(listener, pack(SUBSCRIBE, TOPIC, b""))  # it lives, too
        for number in range(5):
            packet = publish(speaker, number)
            assert exactly(listener, len(packet)) == packet
            time.sleep(0.02)  # the pace of a load


def test_the_count_of_a_second_comes_while_it_is_counted(broker: Served) -> None:
    """The timer is not late because there is always something to read; the count is whole."""
    listener, speaker, asking = (broker.connect() for _ in range(3))
    listener.sendall(pack(SUBSCRIBE, TOPIC, b""))
    _done(listener)
    asking.sendall(pack(SUBSCRIBE, b"$/info/messages/second", b""))
    _done(asking)
    before = broker.call(lambda: broker.broker.stats.publications)
    began = time.monotonic()
    asking.setblocking(False)
    said = 0
    told = b""
    while len(told) < 36:
        packet = publish(speaker, 1)
        said += 1
        assert exactly(listener, len(packet)) == packet
        try:
            told += asking.recv(100)
        except BlockingIOError:
            assert time.monotonic() - began < 10
    ((_, _, count),) = unpack(told)
    assert 0.9 < time.monotonic() - began < 5
    assert said - 1 <= int.from_bytes(count, "big") <= said + 3  # those of _done
    assert broker.call(lambda: broker.broker.stats.publications) - before == said


def test_nothing_is_delivered_once_the_broker_is_ending(broker: Served) -> None:
    listener, speaker = broker.connect(), broker.connect()
    listener.sendall(pack(SUBSCRIBE, TOPIC, b""))
    _done(listener)
    for number in range(5):
        exactly(listener, len(publish(speaker, number)))
    broker.call(broker.broker.stopping)
    for number in range(5):
        broker.say(speaker, pack(0, TOPIC, b"%d" % number))
    assert there(listener) == b""


@pytest.mark.parametrize("part", [1, 6, 7, 12])
def test_a_packet_in_two_parts_after_whole_ones_is_joined(broker: Served, part: int) -> None:
    listener, speaker = broker.connect(), broker.connect()
    listener.sendall(pack(SUBSCRIBE, TOPIC, b""))
    _done(listener)
    other = broker.connect()
    for number in range(20):
        exactly(listener, len(publish(speaker, number)))
        packet = pack(0, TOPIC, b"in two parts")
        speaker.sendall(packet[:part])
        exactly(listener, len(publish(other, number)))  # the first part has been read
        speaker.sendall(packet[part:])
        assert exactly(listener, len(packet)) == packet


def test_a_body_that_looks_like_a_packet_is_a_body(broker: Served) -> None:
    listener, speaker = broker.connect(), broker.connect()
    broker.say(listener, pack(SUBSCRIBE, TOPIC, b""))
    inner = pack(0, TOPIC, b"inner")
    packet = pack(0, TOPIC, inner)
    for number in range(3):
        exactly(listener, len(publish(speaker, number)))
        broker.say(speaker, packet[: -len(inner)])
        assert there(listener) == b""
        broker.say(speaker, inner)
        assert exactly(listener, len(packet)) == packet


def _both(one: socket.socket, data: bytes, other: socket.socket) -> None:
    """In the thread of the broker, which then finds both."""
    one.sendall(data)
    publish(other, 1)


def test_of_two_who_speak_at_once_a_part_is_remembered(broker: Served) -> None:
    listener, speaker, other = (broker.connect() for _ in range(3))
    broker.say(listener, pack(SUBSCRIBE, TOPIC, b""))
    inner = pack(0, TOPIC, b"inner")
    packet = pack(0, TOPIC, inner)
    for number in range(3):
        exactly(listener, len(publish(speaker, number)))
        broker.call(functools.partial(_both, speaker, packet[: -len(inner)], other))
        exactly(listener, len(pack(0, TOPIC, b"1")))
        broker.say(speaker, inner)
        assert exactly(listener, len(packet)) == packet


_WANTED = st.sampled_from([b"a", b"*", b"a/*"])
_ONE = st.builds(
    pack, st.just(0), st.sampled_from([b"a", b"b", b"a/b"]), st.binary(min_size=1, max_size=9)
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(0), _ONE, st.just([])),
        st.tuples(st.just(0), st.one_of(FMQP, _ONE), CUTS),
        st.tuples(st.just(1), st.builds(pack, st.just(SUBSCRIBE), _WANTED, st.just(b"")), CUTS),
        st.tuples(st.just(1), st.builds(pack, st.just(UNSUBSCRIBE), _WANTED, st.just(b"")), CUTS),
    ),
    max_size=15,
)


def _served_outcome(steps: list[tuple[int, bytes, list[int]]], pure: bool) -> list[bytes]:
    """What two listeners are sent: every read is handled before the next is sent."""
    with served(_FMQP, pure=pure, bus=_BUS) as broker:
        speaker, changing, steady = (broker.connect() for _ in range(3))
        broker.say(steady, pack(SUBSCRIBE, b"a", b"") + pack(SUBSCRIBE, b"*/b", b""))
        got = {changing: b"", steady: b""}
        for who, data, places in steps:
            for read in cut(data, places):
                broker.say(changing if who else speaker, read)
                for each in got:
                    got[each] += there(each)
        return list(got.values())


def _expected(steps: list[tuple[int, bytes, list[int]]]) -> list[bytes]:
    desk = Desk(_FMQP, bus=_BUS)
    speaker, changing, steady = (desk.open() for _ in range(3))
    desk.send(steady, pack(SUBSCRIBE, b"a", b"") + pack(SUBSCRIBE, b"*/b", b""))
    for who, data, places in steps:
        for read in cut(data, places):
            desk.send(changing if who else speaker, read)
    return [desk.got(changing), desk.got(steady)]


@settings(max_examples=300, deadline=None)
@given(_STEPS, st.booleans())
def test_listeners_get_what_the_pure_broker_says(
    steps: list[tuple[int, bytes, list[int]]], pure: bool
) -> None:
    """Same bytes, any cuts, whoever subscribes in between: through sockets, by either way."""
    assert _served_outcome(steps, pure) == _expected(steps)
