"""Reads for receivers that take less than they are sent."""

import socket

from host_broker.bus.publication import pack, unpack
from tests.host_broker.net.served import TOPIC, Served, exactly, publish, served

SUBSCRIBE = 0x80
_NARROW = {"outbox_high_bytes": 64 * 1024, "outbox_low_bytes": 16 * 1024}


def test_what_waits_is_not_overtaken(broker: Served) -> None:
    """A kernel that has room again for a little has none yet to speak of (EPOLLOUT)."""
    sleeper, other, speaker = (broker.connect() for _ in range(3))
    for each in (sleeper, other):
        broker.say(each, pack(SUBSCRIBE, TOPIC, b""))
    connection, ours = broker.ours(sleeper)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sent = got = b""
    for number in range(200):
        packet = pack(0, TOPIC, b"%04d" % number + bytes(number % 5 * 1500))
        broker.say(speaker, packet)
        sent += packet
        if broker.call(connection.transport.get_write_buffer_size) and number % 3:
            got += sleeper.recv(3000)
    assert got != sent
    got += exactly(sleeper, len(sent) - len(got))
    assert got == sent == exactly(other, len(sent))


def test_who_congests_a_receiver_waits_from_then_on(pure: bool) -> None:
    with served(net=_NARROW, pure=pure) as broker:
        sleeper, speaker = broker.connect(), broker.connect()
        broker.say(sleeper, pack(SUBSCRIBE, TOPIC, b""))
        receiver, sender = broker.ours(sleeper)[0], broker.ours(speaker)[0]
        sent = b""
        while not broker.call(lambda: receiver.congested):
            assert not broker.call(lambda: sender.on_hold)
            packet = pack(0, TOPIC, bytes(16_000))
            broker.say(speaker, packet)
            sent += packet
            assert len(sent) < 10_000_000
        assert broker.call(lambda: sender.on_hold)
        assert exactly(sleeper, len(sent)) == sent


def test_a_receiver_that_sleeps_holds_its_publisher_and_loses_nothing(pure: bool) -> None:
    with served(net=_NARROW, pure=pure) as broker:
        awake, sleeper, speaker = (broker.connect() for _ in range(3))
        for each in (awake, sleeper):
            broker.say(each, pack(SUBSCRIBE, TOPIC, b""))
        speaker.setblocking(False)
        sent = heard = b""
        number = 0
        try:
            while number < 100_000:
                sent += publish(speaker, number)
                number += 1
                awake.settimeout(0.2)
                heard += awake.recv(1 << 16)
        except (BlockingIOError, TimeoutError):
            pass
        assert number < 100_000  # it was held
        speaker.setblocking(True)
        awake.settimeout(10)
        got = exactly(sleeper, len(sent))
        heard += exactly(awake, len(sent) - len(heard))
        assert got == heard == sent
        packet = publish(speaker, number)
        assert exactly(sleeper, len(packet)) == exactly(awake, len(packet)) == packet


def test_a_receiver_that_may_lose_some_does_not_hold_others_up(pure: bool) -> None:
    with served(net=_NARROW, pure=pure) as broker:
        awake, sleeper, speaker = broker.connect(), broker.connect("drop-oldest"), broker.connect()
        for each in (awake, sleeper):
            broker.say(each, pack(SUBSCRIBE, TOPIC, b""))
        body = bytes(1000)
        for number in range(1000):
            packet = pack(0, TOPIC, b"%06d" % number + body)
            speaker.sendall(packet)
            assert exactly(awake, len(packet)) == packet
        dropped = broker.call(lambda: broker.broker.stats.dropped["fmqp"].messages)
        assert dropped > 100
        got = exactly(sleeper, (1000 - dropped) * len(packet))
        numbers = [int(body[:6]) for _, _, body in unpack(got)]
        assert numbers == sorted(numbers)
        assert numbers[-1] == 999
